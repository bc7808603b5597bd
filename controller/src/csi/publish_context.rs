//! The publish context for the node: the device name, as in the Go driver, and facts by which the
//! node refuses a wrong or lost disk.

use std::collections::HashMap;

use crate::attach::Attached;
use crate::volume::origin::{Origin, Writer};

/// The device name that EC2 was given; on Nitro only a hint.
pub(crate) const DEVICE_PATH: &str = "devicePath";
/// The EBS volume that a node-local handle stands for; set only for such a handle.
pub(crate) const VOLUME_ID: &str = "volumeID";
/// The size at attach in bytes; a smaller device is another disk.
pub(crate) const SIZE_BYTES: &str = "ebs.csi.aws.com/size-bytes";
/// `blank`, or the kind of source of a copy, which holds data and is never formatted: `snapshot` or
/// `volume`, with the prefix `own-` where the source has the tags of this driver and cluster, and
/// `unseen-` where EC2 does not show the source any more.
pub(crate) const ORIGIN: &str = "ebs.csi.aws.com/origin";
/// When the attach was accepted, RFC 3339.
pub(crate) const ATTACHED_AT: &str = "ebs.csi.aws.com/attached-at";

/// Returns the publish context of an attachment. Nodes of the Go driver read only the device name.
pub(crate) fn build(attached: &Attached, origin: Origin) -> HashMap<String, String> {
    let volume = &attached.volume;
    let origin = match origin {
        Origin::Blank => "blank",
        Origin::Snapshot(Writer::Own) => "own-snapshot",
        Origin::Snapshot(Writer::Another) => "snapshot",
        Origin::Snapshot(Writer::Unseen) => "unseen-snapshot",
        Origin::Volume(Writer::Own) => "own-volume",
        Origin::Volume(Writer::Another) => "volume",
        Origin::Volume(Writer::Unseen) => "unseen-volume",
    };
    let mut context = HashMap::from([
        (DEVICE_PATH.to_owned(), attached.device.clone()),
        (SIZE_BYTES.to_owned(), volume.size.to_bytes().0.to_string()),
        (ORIGIN.to_owned(), origin.to_owned()),
    ]);
    if let Some(since) = attached.since {
        context.insert(ATTACHED_AT.to_owned(), since.to_string());
    }
    context
}
