//! A node facts file, as whoever may annotate the pod could make kubelet write it.
#![no_main]

use ebs_csi_node_agent::fuzz_inputs;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    fuzz_inputs::facts_file(input);
});
