//! A page of EBS statistics, as any NVMe controller could fill it.
#![no_main]

use ebs_csi_node_agent::fuzz_inputs;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    fuzz_inputs::statistics_page(input);
});
