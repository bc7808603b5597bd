//! A Kubernetes API server of the bench's own: list, watch, get, create, replace, patch and delete over HTTP/1.1, from memory.
//!
//! It holds what a cluster of thousands of nodes holds, so that what watches it can be measured on a small machine. It knows pages, resource
//! versions, preconditions, merge patches and the field selector `spec.nodeName`; it has no authentication, no admission, no schema, no etcd
//! and no controllers, and answers faster than a real one.

mod kind;
mod objects;
mod route;
mod serve;
mod store;

pub(crate) use kind::Kind;
pub(crate) use objects::{attachment, claim_volume, lease, node, pod};
pub(crate) use serve::{Changed, Requests, serve};
pub(crate) use store::Store;
