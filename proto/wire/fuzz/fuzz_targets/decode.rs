//! Raw bytes as a peer could send them: frames, then messages.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../inputs.rs"]
mod inputs;

fuzz_target!(|input: &[u8]| {
    inputs::decode(input);
});
