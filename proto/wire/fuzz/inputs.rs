//! What the fuzz target does with an input.

use ebs_csi_wire::{Reply, Request, frame};

/// Reads the input as frames of requests and replies. What is accepted can be encoded, and is then
/// decoded as the same. Returns how many messages were accepted.
pub(crate) fn decode(input: &[u8]) -> usize {
    let mut accepted = 0;
    let mut buffer = input.to_vec();
    while let Ok(Some(payload)) = frame::split(&mut buffer) {
        if let Ok(request) = Request::decode(&payload) {
            accepted += 1;
            assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
        if let Ok(reply) = Reply::decode(&payload) {
            accepted += 1;
            assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
        }
    }
    accepted
}
