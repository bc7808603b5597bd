//! The relevant parts of Kubernetes' objects.

mod attachment;
mod csi_node;
mod lease;
mod node;
mod object;
mod pod;
mod volume;

pub use attachment::{BREAK_GLASS, NUDGE, Order, Refused, SeenAttachment};
pub use csi_node::SeenCsiNode;
pub use lease::SeenLease;
pub use node::{MAY_FENCE, OPT_OUT, OUT_OF_SERVICE, OWNER, RETURN, STARTUP, SeenNode, instance_of};
pub use object::{Meta, Object, Owner, Seen, Watched, key_of};
pub use pod::SeenPod;
pub use volume::{SeenVolume, claim_of};
