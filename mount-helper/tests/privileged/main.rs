//! The real helper, started as on a node except for its policy (`--sandbox`), with real loop
//! devices and real file systems, in its own mount namespace. The tests need root; without root
//! they print a message and return.
mod attacks;
mod confined;
mod deaths;
mod disks;
mod filesystems;
mod geometries;
mod hostile;
mod hostile_disks;
mod kubelet_root;
mod lifecycle;
mod refusals;
mod rig;
mod virtual_machine;
mod vsock;
