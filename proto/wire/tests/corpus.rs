//! Every input in the fuzz corpus is decoded or refused.

use std::fs;

use ebs_csi_wire::{Reply, Request, frame};

#[test]
fn accepted_fuzz_corpus_messages_round_trip() {
    let mut replayed = 0;
    let mut accepted = 0;
    for entry in fs::read_dir("fuzz/corpus/decode").expect("the corpus is there") {
        let input = fs::read(entry.expect("an entry").path()).expect("a readable input");
        let mut buffer = input.clone();
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
        replayed += 1;
    }
    assert!(replayed >= 10 && accepted >= 10, "{replayed} inputs, {accepted} accepted");
}
