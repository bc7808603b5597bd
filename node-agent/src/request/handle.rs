//! The kind of a request's volume id.

use std::collections::HashMap;

use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire::VolumeId;

/// Prefix of a static volume that stands for a device name on every node that uses it.
const NODE_LOCAL: &str = "local-ebs://";
/// In the publish context of a node-local volume: the EBS volume that it stands for on this node.
const VOLUME_ID: &str = "volumeID";

/// The object that a volume id names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Handle {
    /// An EBS volume.
    Volume(VolumeId),
    /// A node-local volume: the publish context, or the helper's inventory, tells which EBS volume
    /// it is on this node.
    NodeLocal,
    /// An id that EC2 cannot have issued.
    Unknown,
}

impl Handle {
    /// Classifies an id by its form.
    #[must_use]
    pub(crate) fn read(id: &str) -> Self {
        match VolumeId::parse(id) {
            Ok(volume) => Self::Volume(volume),
            Err(_) if id.starts_with(NODE_LOCAL) => Self::NodeLocal,
            Err(_) => Self::Unknown,
        }
    }

    /// Returns the EBS volume.
    ///
    /// # Errors
    /// NOT_FOUND for an unknown id; INVALID_ARGUMENT when the publish context of a node-local
    /// volume does not name the volume.
    pub(super) fn volume(
        self,
        id: &str,
        publish_context: &HashMap<String, String>,
    ) -> Result<VolumeId, Failure> {
        match self {
            Self::Volume(volume) => Ok(volume),
            Self::NodeLocal => {
                let named = publish_context.get(VOLUME_ID).map_or("", String::as_str);
                VolumeId::parse(named).map_err(|error| {
                    Failure::invalid(
                        "publish_context.volumeID",
                        format!("{error}; the controller gives it for node-local volumes when it runs with --enable-node-local-volumes"),
                    )
                })
            }
            Self::Unknown => Err(unknown(id)),
        }
    }
}

/// Creates the failure for a volume id that EC2 cannot have issued.
pub(super) fn unknown(id: &str) -> Failure {
    let why = VolumeId::parse(id)
        .err()
        .map_or_else(String::new, |e| e.to_string());
    Failure::new(
        Condition::NotFound,
        format!("volume_id: no such volume: {why}"),
    )
}
