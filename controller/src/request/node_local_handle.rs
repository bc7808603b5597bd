//! Volume handles that stand for whatever EBS volume a node has at a device name.

use ebs_csi_proto::{Condition, Failure};

/// What such a handle begins with.
pub(crate) const PREFIX: &str = "local-ebs://";

/// Whether a volume handle is of this kind.
pub(crate) fn is_handle(volume: &str) -> bool {
    volume.starts_with(PREFIX)
}

/// Refuses such a handle where only a volume of EC2 will do; `what` completes "cannot".
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
