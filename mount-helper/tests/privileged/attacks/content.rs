//! What a disk may hold, and what a tool may need to look at it.
