//! The relevant parts of Kubernetes' objects.

mod agent_pod;
mod attachment;
mod csi_node;
mod lease_age;
mod node;
mod node_fact;
mod object;
mod object_table;
mod pod;
mod tables;
mod volume;

pub(crate) use agent_pod::AGENT_PODS;
pub use agent_pod::AgentPodRow;
pub(crate) use attachment::{
    AnnotatedOrder, AttachmentRow, BREAK_GLASS, RETRY_ANNOTATION, RefusedDetach,
};
pub(crate) use csi_node::CsiNodeRow;
pub use lease_age::LeaseAges;
pub(crate) use node::{
    NodeRow, OPT_OUT, OUT_OF_SERVICE, OUT_OF_SERVICE_VALUE, STARTUP_TAINT, TAINTED_BOOT,
    is_own_taint,
};
pub(crate) use object::{Object, Retained, Watched, key_of};
pub use object_table::{Table, TableRow};
pub(crate) use pod::PodRow;
pub(crate) use tables::Suspect;
pub use tables::{Tables, Task, watch_agent_pods};
pub(crate) use volume::{VolumeRow, claim_of};

#[cfg(test)]
pub(crate) use object::retained;
