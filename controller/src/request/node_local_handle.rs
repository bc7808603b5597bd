//! Volume handles that stand for the EBS volume at a device name of each node.

use ebs_csi_proto::{Condition, Failure};

pub(crate) const PREFIX: &str = "local-ebs://";

/// Returns whether a volume handle is of this kind.
pub(crate) fn is_handle(volume: &str) -> bool {
    volume.starts_with(PREFIX)
}

/// Refuses such a handle where the id of an EC2 volume is needed; `what` completes "cannot".
///
/// # Errors
/// [`Condition::Unsupported`] for a handle of this kind.
pub(crate) fn refuse(field: &str, volume: &str, what: &str) -> Result<(), Failure> {
    if !is_handle(volume) {
        return Ok(());
    }
    Err(Failure::new(
        Condition::Unsupported,
        format!(
            "{field}: a volume of a node itself ({PREFIX}…) cannot {what}; use an EBS volume's id"
        ),
    ))
}
