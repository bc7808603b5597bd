//! The real helper, started as on a node but for its policy (`--sandbox`), against real loop
//! devices and real file systems, in a mount namespace of its own. Needs root; says so and returns
//! where it has not got it.
mod attacks;
mod checks;
mod confined;
mod copied;
mod crashes;
mod disk_groups;
mod elsewhere;
mod ending;
mod filesystems;
mod geometries;
mod hostile;
mod hostile_disks;
mod kills;
mod kubelet_root;
mod late_disks;
mod lifecycle;
mod partitions;
mod power_cut;
mod pulled;
mod raw_beside_mounted;
mod refusals;
mod rig;
mod unfinished;
mod virtual_machine;
mod xen;
