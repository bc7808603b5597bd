//! Disks and places that another process or program uses.
mod others_disks;
mod others_files;
mod others_helpers;
mod others_mounts;
mod others_places;
