//! A container of the node that has the helper's socket by mistake.
use crate::rig::{Client, Rig, connect};
use ebs_csi_policy::profile::{BROKER, TOOL};
use ebs_csi_wire::frame;
use std::io::Write;

/// The user that base images call `nonroot`, the one after it, `nobody`, root, and the helper's own
/// users.
const USERS: [u32; 6] = [65532, 65533, 65534, 0, BROKER.identity.uid, TOOL.identity.uid];

/// N20: connect as 65532, 65533, 65534 and 0, in the group of the socket.
#[test]
fn only_the_agents_uid_is_answered() {
    let Some(rig) = Rig::start() else { return };
    for user in USERS {
        let mut client = Client::new(connect(&rig.socket(), user));
        // The helper may close the connection before this side has written.
        let _ = client.stream.write_all(&frame::framed(&[8, 1]).expect("frame"));
        client.check_cut_off();
        rig.wait_for(&format!("peer-refused uid={user}"));
    }
    rig.inventory();
}
