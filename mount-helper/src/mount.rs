//! The kubelet root, the places beneath it, and mounts.
pub(crate) mod detached_mount;
pub(crate) mod directory_requests;
pub(crate) mod kubelet_root;
pub(crate) mod kubelet_root_lock;
pub(crate) mod mount_table;
pub mod privilege;
pub(crate) mod propagation;
