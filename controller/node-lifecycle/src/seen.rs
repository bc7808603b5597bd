//! What matters of Kubernetes' objects.

mod attachment;
mod node;
mod pod;
mod volume;

pub use attachment::{BREAK_GLASS, NUDGE, Order, SeenAttachment};
pub use node::{MAY_FENCE, OPT_OUT, OUT_OF_SERVICE, OWNER, RETURN, SeenNode, instance_of};
pub use pod::SeenPod;
pub use volume::{SeenVolume, Volumes};
