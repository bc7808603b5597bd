//! VolumeAttachments of this driver.

use ebs_csi_proto::DRIVER_NAME;
use ebs_csi_safe_detach::lifecycle::Attachment;
use k8s_openapi::api::storage::v1 as storage;
use kube::ResourceExt;

use super::Volumes;

/// The annotation whose appearance has external-attacher try a refused detach again at once.
pub const NUDGE: &str = "ebs.csi.aws.com/safe-to-detach";
/// Where external-attacher writes the node id that it attached to: it outlives Node and CSINode.
const NODE_ID: &str = "csi.alpha.kubernetes.io/node-id";

/// A person's order to let the attachment go, whatever else is known: `INSTANCE TIME`, the instance's id and the time when EC2 accepted the
/// attach (RFC 3339, as EC2 shows it).
pub const BREAK_GLASS: &str = "ebs.csi.aws.com/break-glass";

/// What is ordered to be let go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Order {
    /// From that instance.
    pub instance: String,
    /// The attachment that was made then.
    pub since: String,
}

/// A VolumeAttachment.
#[derive(Clone, Debug)]
pub struct SeenAttachment {
    /// A person's order about it.
    pub order: Option<Order>,
    /// The node that it names.
    pub node: String,
    /// The PersistentVolume that it names.
    persistent_volume: String,
    /// All but the volume.
    attachment: Attachment,
}

impl SeenAttachment {
    /// What matters of it; `None` for another driver's, and for one without a PersistentVolume.
    pub fn new(object: &storage::VolumeAttachment) -> Option<Self> {
        if object.spec.attacher != DRIVER_NAME {
            return None;
        }
        let annotations = object.annotations();
        let order = annotations.get(BREAK_GLASS).and_then(|text| {
            let (instance, since) = text.split_once(' ')?;
            Some(Order {
                instance: instance.to_owned(),
                since: since.to_owned(),
            })
        });
        Some(Self {
            order,
            node: object.spec.node_name.clone(),
            persistent_volume: object.spec.source.persistent_volume_name.clone()?,
            attachment: Attachment {
                name: object.name_any(),
                uid: object.uid().unwrap_or_default(),
                volume: String::new(),
                instance: annotations.get(NODE_ID).cloned(),
                deleting: object.metadata.deletion_timestamp.is_some(),
                nudged: annotations.contains_key(NUDGE),
            },
        })
    }

    /// With its volume. One whose PersistentVolume has not been seen has no instance either: nothing is asked and nothing done about it.
    pub fn resolve(&self, volumes: &Volumes) -> Attachment {
        let volume = volumes.volume(&self.persistent_volume);
        Attachment {
            volume: volume.unwrap_or_default().to_owned(),
            instance: self
                .attachment
                .instance
                .clone()
                .filter(|_| volume.is_some()),
            ..self.attachment.clone()
        }
    }
}
