//! Files of `/proc`, in which a process chooses some of the bytes.
#![no_main]

use ebs_csi_audit::fuzz_inputs;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    fuzz_inputs::proc_files(input);
});
