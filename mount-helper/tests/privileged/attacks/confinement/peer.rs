//! A container of the node that has the helper's socket by mistake.
use crate::attacks::row;
use crate::rig::{Client, Rig, connect};
use std::io::Read;

/// The user that base images call `nonroot`, the one after it, `nobody`, and root.
const USERS: [u32; 4] = [65532, 65533, 65534, 0];

#[test]
fn base_image_uids_are_refused_on_helper_socket() {
    let Some(rig) = Rig::start() else { return };
    for user in USERS {
        let mut client = Client::new(connect(&rig.socket(), user));
        let read = client.stream.read(&mut [0]);
        assert!(matches!(read, Ok(0) | Err(_)), "{user}: {read:?}");
        rig.wait_for(&format!("peer-refused uid={user}"));
    }
    row(
        "N20",
        "connect as 65532, 65533, 65534 and 0, in the group of the socket",
        "each is cut off; every process has a number from 65520 to 65531, which nobody gives away",
    );
}
