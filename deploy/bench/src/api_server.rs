//! The bench's own Kubernetes API server: list, watch, get, create, replace, patch and delete over
//! HTTP/1.1, from memory.
//!
//! It holds the objects of a cluster of thousands of nodes, so that a program that watches such a
//! cluster can be measured on a small machine. It implements pages, resource versions,
//! preconditions, merge patches, JSON patches and the field selector `spec.nodeName`. It has no
//! authentication, no admission, no schema, no etcd and no controllers, and answers faster than a
//! real API server.

mod kind;
mod objects;
mod route;
mod serve;
mod store;

pub(crate) use kind::Kind;
pub(crate) use objects::{attachment, claim_volume, csi_node, lease, node, pod};
pub(crate) use serve::{Changed, Requests, serve};
pub(crate) use store::Store;
