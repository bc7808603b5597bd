//! Every input in the fuzz corpus is decoded or refused.

use std::fs;

#[path = "../fuzz/inputs.rs"]
mod inputs;

#[test]
fn accepted_fuzz_corpus_messages_round_trip() {
    let mut replayed = 0;
    let mut accepted = 0;
    for entry in fs::read_dir("fuzz/corpus/decode").expect("the corpus is there") {
        let input = fs::read(entry.expect("an entry").path()).expect("a readable input");
        accepted += inputs::decode(&input);
        replayed += 1;
    }
    assert!(replayed >= 10 && accepted >= 10, "{replayed} inputs, {accepted} accepted");
}
