//! Every input in the fuzz corpus is decoded or refused.

use std::fs;
use std::path::PathBuf;

use ebs_csi_wire::{Reply, Request, frame};

/// Returns this crate's directory as cargo names it when the test runs. `env!` would not do: in a
/// target directory that several checkouts share, it may name another checkout's directory.
fn crate_directory() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").expect("tests are run by cargo").into()
}

#[test]
fn accepted_fuzz_corpus_messages_round_trip() {
    let corpus = crate_directory().join("fuzz/corpus/decode");
    let mut replayed = 0;
    let mut accepted = 0;
    for entry in fs::read_dir(&corpus).expect("the corpus is there") {
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
