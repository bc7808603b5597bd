//! What the agent reads from its mount-helper: the greeting, and the answer to one request.
#![no_main]

use ebs_csi_node_agent::helper::fuzz_answers::Peer;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

static PEER: OnceLock<(tempfile::TempDir, Peer)> = OnceLock::new();

fuzz_target!(|input: &[u8]| {
    let (_, peer) = PEER.get_or_init(|| {
        let directory = tempfile::tempdir().expect("tempdir");
        let peer = Peer::new(directory.path());
        (directory, peer)
    });
    peer.answers(input);
});
