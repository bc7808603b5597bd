//! The rules as data: what may be mounted, run, opened and called.
