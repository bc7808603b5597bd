//! A table of mounts, as a process with mounts of any name could make the kernel write it.
#![no_main]

use ebs_csi_mount_helper::fuzz_inputs;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    fuzz_inputs::mountinfo(input);
});
