//! The bench's own Kubernetes API server: what node-lifecycle asks of one, over HTTP/1.1, from
//! memory.
//!
//! It holds the objects of a cluster of thousands of nodes, so that a program that watches such a
//! cluster can be measured on a small machine. It implements lists in pages, watches, the field
//! selector `spec.nodeName`, resource versions, and patches of Nodes; it records and refuses all
//! other patches and deletes. It has no authentication, no admission, no schema, no etcd and no
//! controllers, and answers faster than a real API server.

mod objects;
mod serve;
mod store;

pub(crate) use objects::{attachment, claim_volume, csi_node, lease, node, pod};
pub(crate) use serve::serve;
pub(crate) use store::Store;

/// The kinds of objects that the bench writes, by their plural names in a path.
pub(crate) mod kind {
    pub(crate) const NODES: &str = "nodes";
    pub(crate) const PODS: &str = "pods";
    pub(crate) const PERSISTENT_VOLUMES: &str = "persistentvolumes";
    pub(crate) const VOLUME_ATTACHMENTS: &str = "volumeattachments";
    pub(crate) const CSI_DRIVERS: &str = "csidrivers";
    pub(crate) const CSI_NODES: &str = "csinodes";
    pub(crate) const LEASES: &str = "leases";
}
