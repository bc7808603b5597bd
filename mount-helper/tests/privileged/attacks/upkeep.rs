//! Volumes as their applications left them: growth, checks, read-only disks, mount options.
