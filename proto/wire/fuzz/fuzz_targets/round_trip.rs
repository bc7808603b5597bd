//! Messages whose fields are chosen freely: what is accepted must come back as it was.
#![no_main]

use arbitrary::Arbitrary;
use ebs_csi_wire::{Request, pb};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Chosen {
    id: u64,
    wait_ms: u32,
    volume_id: String,
    path: String,
    hint: String,
    fs_type: i32,
    origin: i32,
    source: i32,
    partition: u32,
    size: u64,
    read_only: bool,
    flags: Vec<(String, String)>,
    format: Vec<(u32, u64)>,
}

fuzz_target!(|chosen: Chosen| {
    let wire = pb::Request {
        id: chosen.id,
        wait_ms: chosen.wait_ms,
        operation: Some(pb::request::Operation::Stage(pb::Stage {
            disk: Some(pb::Disk {
                volume_id: chosen.volume_id,
                device_hint: chosen.hint,
                partition: chosen.partition,
                size_at_attach: chosen.size,
                attached_at: None,
                origin: chosen.origin,
                source: chosen.source,
            }),
            staging_path: chosen.path,
            fs_type: chosen.fs_type,
            read_only: chosen.read_only,
            flags: chosen
                .flags
                .into_iter()
                .map(|(name, value)| pb::MountFlag { name, value })
                .collect(),
            format: chosen
                .format
                .into_iter()
                .map(|(number, value)| pb::FormatOption { number, value })
                .collect(),
        })),
    };
    if let Ok(request) = Request::try_from(wire) {
        assert_eq!(Request::decode(&request.encode()), Ok(request));
    }
});
