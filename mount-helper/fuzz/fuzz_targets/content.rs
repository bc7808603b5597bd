//! Disks that hold anything anywhere, as far as a few kilobytes can say it: looked at and judged.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/content/scattered.rs"]
mod scattered;

fuzz_target!(|input: &[u8]| {
    scattered::look_and_judge(input);
});
