//! The relevant parts of Kubernetes' objects.

mod agent_pod;
mod attachment;
mod csi_node;
mod joined_texts;
mod lease;
mod lease_age;
mod node;
mod node_fact;
mod object;
mod object_table;
mod pod;
mod tables;
mod volume;

pub use agent_pod::SeenAgentPod;
pub(crate) use agent_pod::{AGENT_PODS, DRAINING};
pub(crate) use attachment::{BREAK_GLASS, Order, RETRY_ANNOTATION, RefusedDetach, SeenAttachment};
pub(crate) use csi_node::SeenCsiNode;
pub(crate) use lease::SeenLease;
pub use lease_age::LeaseAges;
pub(crate) use node::{
    OPT_OUT, OUT_OF_SERVICE, OUT_OF_SERVICE_VALUE, STARTUP_TAINT, SeenNode, TAINTED_BOOT,
    is_own_taint,
};
pub(crate) use node_fact::{FACTS, NodeFact};
pub(crate) use object::{Object, Retained, Watched, key_of};
pub use object_table::{Table, TableRow};
pub(crate) use pod::SeenPod;
pub(crate) use tables::Suspect;
pub use tables::{Tables, Task, watch_agent_pods};
pub(crate) use volume::{SeenVolume, claim_of};

#[cfg(test)]
pub(crate) use object::retained;
