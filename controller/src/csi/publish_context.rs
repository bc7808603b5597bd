//! The publish context for the node: the device name, as in the Go driver, and facts by which the
//! node refuses a wrong or lost disk.

use std::collections::HashMap;

use ebs_csi_proto::publish_context::{
    ATTACHED_AT, BLANK, DEVICE_PATH, ORIGIN, OWN_SNAPSHOT, OWN_VOLUME, SIZE_BYTES, SNAPSHOT,
    UNSEEN_SNAPSHOT, UNSEEN_VOLUME, VOLUME,
};

use crate::attach::Attached;
use crate::volume::origin::{Origin, Writer};

/// Returns the publish context of an attachment. Nodes of the Go driver read only the device name.
pub(crate) fn build(attached: &Attached, origin: Origin) -> HashMap<String, String> {
    let volume = &attached.volume;
    let origin = match origin {
        Origin::Blank => BLANK,
        Origin::Snapshot(Writer::Own) => OWN_SNAPSHOT,
        Origin::Snapshot(Writer::Another) => SNAPSHOT,
        Origin::Snapshot(Writer::Unseen) => UNSEEN_SNAPSHOT,
        Origin::Volume(Writer::Own) => OWN_VOLUME,
        Origin::Volume(Writer::Another) => VOLUME,
        Origin::Volume(Writer::Unseen) => UNSEEN_VOLUME,
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
