//! Whether a volume may leave a node: the facts that EC2 shows, gathered after the call began, for the decision of `ebs-csi-safe-detach`.

mod evidence;

pub use ebs_csi_safe_detach::{Fact, Facts, Mode, Power, Refusal, Rung, Verdict, Waiting, decide};
pub(crate) use evidence::gather;
