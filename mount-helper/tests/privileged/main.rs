//! The real helper, started as on a node except for its policy (`--sandbox`), with real loop
//! devices and real file systems, in its own mount namespace. The tests need root; without root
//! they print a message and return.
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
