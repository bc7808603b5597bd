//! This driver's VolumeAttachments.

use ebs_csi_proto::DRIVER_NAME;
use ebs_csi_safe_detach::lifecycle::{Attachment, ObjectVersion};
use jiff::Timestamp;
use k8s_openapi::api::storage::v1::{
    VolumeAttachment, VolumeAttachmentSpec, VolumeAttachmentStatus,
};

use super::object_table::{Table, TableRow, Texts};
use super::{Object, Retained, VolumeRow};

/// The annotation whose change makes external-attacher retry a refused detach at once. Its value is
/// the time of the last write.
pub(crate) const RETRY_ANNOTATION: &str = "ebs.csi.aws.com/safe-to-detach";
/// The annotation in which external-attacher writes the node id that it attached to: it outlives
/// Node and CSINode.
const NODE_ID: &str = "csi.alpha.kubernetes.io/node-id";

/// The annotation of an override order: `INSTANCE TIME`, the instance's id and the time when EC2
/// accepted the attach (RFC 3339, as EC2 shows it).
pub(crate) const BREAK_GLASS: &str = "ebs.csi.aws.com/break-glass";

/// The attachment that an override order names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AnnotatedOrder {
    pub(crate) instance: String,
    pub(crate) since: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusedDetach {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) node: String,
    pub(crate) token: String,
    /// The time of the detach request, by the API server's clock.
    pub(crate) since: Timestamp,
}

const NAME: usize = 0;
const NODE: usize = 1;
const PERSISTENT_VOLUME: usize = 2;
const UID: usize = 3;
const INSTANCE: usize = 4;
const VERSION: usize = 5;

#[derive(Clone, Debug)]
pub(crate) struct AttachmentRow {
    texts: Texts<6>,
    order: Option<Box<AnnotatedOrder>>,
    refused: Option<Box<RefusedDetach>>,
    deleting: bool,
    retry_requested: bool,
}

/// Returns the controller's reason for a refused detach, from its message:
/// `SafeDetachRefused/TOKEN: …`.
fn refusal_token(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("SafeDetachRefused/")?;
    let mut words = rest.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    words.next().filter(|token| !token.is_empty())
}

impl TableRow for AttachmentRow {
    fn key(&self) -> &str {
        self.texts.get(NAME)
    }
}

impl Retained for AttachmentRow {
    type Kind = VolumeAttachment;
    type Spec = VolumeAttachmentSpec;
    type Status = VolumeAttachmentStatus;

    /// Returns `None` for another driver's attachment, and for one without a PersistentVolume.
    fn new(object: Object<VolumeAttachmentSpec, VolumeAttachmentStatus>) -> Option<Self> {
        let (meta, spec) = (object.metadata, object.spec);
        if spec.attacher != DRIVER_NAME {
            return None;
        }
        let order = meta.annotations.get(BREAK_GLASS).and_then(|text| {
            let (instance, since) = text.split_once(' ')?;
            Some(Box::new(AnnotatedOrder {
                instance: instance.to_owned(),
                since: since.to_owned(),
            }))
        });
        let instance = meta.annotations.get(NODE_ID);
        Some(Self {
            order,
            refused: meta.deletion_timestamp.as_ref().and_then(|since| {
                let message = object.status.detach_error?.message?;
                Some(Box::new(RefusedDetach {
                    name: meta.name.clone(),
                    uid: meta.uid.clone(),
                    node: spec.node_name.clone(),
                    token: refusal_token(&message)?.to_owned(),
                    since: since.0,
                }))
            }),
            deleting: meta.deletion_timestamp.is_some(),
            retry_requested: meta.annotations.contains_key(RETRY_ANNOTATION),
            texts: Texts::new([
                &meta.name,
                &spec.node_name,
                &spec.source.persistent_volume_name?,
                &meta.uid,
                instance.map_or("", String::as_str),
                &meta.resource_version,
            ]),
        })
    }
}

impl AttachmentRow {
    pub(crate) fn node(&self) -> &str {
        self.texts.get(NODE)
    }

    pub(crate) fn persistent_volume(&self) -> &str {
        self.texts.get(PERSISTENT_VOLUME)
    }

    pub(crate) fn order(&self) -> Option<&AnnotatedOrder> {
        self.order.as_deref()
    }

    pub(crate) fn refused(&self) -> Option<&RefusedDetach> {
        self.refused.as_deref()
    }

    /// Returns the attachment together with its volume. An attachment whose PersistentVolume has
    /// not been seen gets no instance either, so that no question is asked and no act is done about
    /// it.
    pub(crate) fn resolve(&self, volumes: &Table<VolumeRow>) -> Attachment {
        let volume = volumes.get(self.persistent_volume());
        let volume = volume.as_ref().and_then(|volume| volume.volume());
        let instance = self.texts.get(INSTANCE);
        Attachment {
            object: ObjectVersion {
                namespace: String::new(),
                name: self.key().to_owned(),
                uid: self.texts.get(UID).to_owned(),
                version: self.texts.get(VERSION).to_owned(),
            },
            volume: volume.unwrap_or_default().to_owned(),
            instance: (volume.is_some() && !instance.is_empty()).then(|| instance.to_owned()),
            deleting: self.deleting,
            retry_requested: self.retry_requested,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::object::retained;

    fn row(change: impl FnOnce(&mut Value)) -> Option<AttachmentRow> {
        let mut object = json!({
            "metadata": {"name": "csi-1", "uid": "u", "annotations": {NODE_ID: "i-1"}},
            "spec": {"attacher": DRIVER_NAME, "nodeName": "n", "source": {"persistentVolumeName": "pv"}},
            "status": {"attached": true},
        });
        change(&mut object);
        retained(object)
    }

    /// The driver ignores attachments of another attacher and those with an inline volume.
    #[test]
    fn own_volume_attachment_fields_are_kept_others_ignored() {
        let attachment = row(|_| ()).expect("ours");
        assert_eq!((attachment.key(), attachment.node()), ("csi-1", "n"));
        assert_eq!(attachment.order(), None);
        let resolved = attachment.resolve(&Table::default());
        assert_eq!(resolved.instance, None, "its volume has not been seen");
        assert_eq!((resolved.object.uid.as_str(), resolved.deleting), ("u", false));

        let other = row(|a| a["spec"]["attacher"] = json!("other.example.com"));
        assert!(other.is_none());
        assert!(row(|a| a["spec"]["source"] = json!({"inlineVolumeSpec": {}})).is_none());
        let ordered = row(|a| {
            a["metadata"]["annotations"] =
                json!({BREAK_GLASS: "i-1 2026-01-01T00:00:00Z", RETRY_ANNOTATION: "true"});
            a["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        })
        .expect("ours");
        let order =
            AnnotatedOrder { instance: "i-1".to_owned(), since: "2026-01-01T00:00:00Z".to_owned() };
        assert_eq!(ordered.order(), Some(&order));
        let resolved = ordered.resolve(&Table::default());
        assert!(resolved.deleting && resolved.retry_requested);
        assert_eq!(ordered.refused(), None, "nothing was tried yet");
    }

    #[test]
    fn refused_detach_is_distinguished_from_failed_detach() {
        let with = |message: &str, deleting: bool| {
            row(|a| {
                a["status"]["detachError"] =
                    json!({"message": message, "time": "2026-01-01T00:00:10Z"});
                if deleting {
                    a["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                }
            })
            .expect("ours")
        };
        let refusal = "rpc error: code = FailedPrecondition desc = SafeDetachRefused/no-report: volume vol-1 stays";
        let refused = with(refusal, true).refused().cloned();
        let refused = refused.expect("it was refused");
        assert_eq!(refused.token, "no-report");
        assert_eq!((refused.name.as_str(), refused.uid.as_str()), ("csi-1", "u"));
        assert_eq!(refused.since.to_string(), "2026-01-01T00:00:00Z");
        assert_eq!(with(refusal, false).refused(), None, "the detach is no longer requested");
        assert_eq!(with("rpc error: code = Unavailable", true).refused(), None);
    }
}
