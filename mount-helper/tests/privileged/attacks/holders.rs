//! Disks and places that somebody else holds.
