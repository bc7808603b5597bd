//! Raw bytes as a peer could send them: frames, then messages.
#![no_main]

use ebs_csi_wire::{Reply, Request, frame};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut buffer = input.to_vec();
    while let Ok(Some(payload)) = frame::split(&mut buffer) {
        if let Ok(request) = Request::decode(&payload) {
            assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
        if let Ok(reply) = Reply::decode(&payload) {
            assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
        }
    }
});
