//! A file of collected processes, as somebody may have changed it.
#![no_main]

use ebs_csi_audit::fuzz_inputs;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    fuzz_inputs::collected(input);
});
