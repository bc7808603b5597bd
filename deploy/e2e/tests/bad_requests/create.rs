//! Invalid creations.

use csi::volume_capability::access_mode::Mode;
use ebs_csi_e2e::Fixture;
use ebs_csi_proto::csi;
use ebs_csi_sandbox::co::{Claim, GIB, Source, Volume};
use tonic::Code::{Aborted, AlreadyExists, InvalidArgument, NotFound, OutOfRange};

use crate::UNKNOWN_VOLUME;
use crate::refused::{Differences, Row};

const UNKNOWN_SNAPSHOT: &str = "snap-0123456789abcdef0";

type Change = Box<dyn Fn(&mut csi::CreateVolumeRequest)>;

fn change(change: impl Fn(&mut csi::CreateVolumeRequest) + 'static) -> Change {
    Box::new(change)
}

fn parameter(key: &'static str, value: &'static str) -> Change {
    change(move |request| drop(request.parameters.insert(key.to_owned(), value.to_owned())))
}

fn size(required_bytes: i64, limit_bytes: i64) -> Change {
    change(move |request| {
        request.capacity_range = Some(csi::CapacityRange { required_bytes, limit_bytes });
    })
}

fn source(source: Source) -> Change {
    let co = ebs_csi_sandbox::Co::new(std::path::Path::new("/x"), "z").unwrap();
    let claim = Claim::filesystem("", "ext4", 1).from_source(source);
    let source = co.create_request(&claim).volume_content_source;
    change(move |request| request.volume_content_source.clone_from(&source))
}

fn mode(mode: Mode) -> Change {
    change(move |request| {
        for capability in &mut request.volume_capabilities {
            capability.access_mode = Some(csi::volume_capability::AccessMode { mode: mode as i32 });
        }
    })
}

fn rows() -> Vec<Row<'static, Change>> {
    let tag = |value| parameter("tagSpecification_1", value);
    let snapshot = |id: &str| source(Source::Snapshot(id.to_owned()));
    let clone = source(Source::Volume(UNKNOWN_VOLUME.to_owned()));
    let no_capability = change(|request| request.volume_capabilities.clear());
    let mutable = change(|request| {
        request.mutable_parameters.insert("colour".to_owned(), "red".to_owned());
    });
    let two_rates = change(|request| {
        parameter("iops", "3000")(request);
        parameter("iopsPerGB", "5")(request);
    });
    let (no_name, too_large) = (change(|request| request.name.clear()), size(70_000 * GIB, 0));
    let multi_writer = mode(Mode::MultiNodeMultiWriter);
    vec![
        ("without a name", InvalidArgument, &["name"], no_name),
        ("without a capability", InvalidArgument, &["volume_capabilities"], no_capability),
        ("with unknown parameter", InvalidArgument, &["flavour"], parameter("flavour", "mint")),
        ("with unknown mutable parameter", InvalidArgument, &["colour"], mutable),
        ("with IOPS as text", InvalidArgument, &["iops", "many"], parameter("iops", "many")),
        ("with unknown type", InvalidArgument, &["gp9"], parameter("type", "gp9")),
        ("with IOPS in two ways", InvalidArgument, &["iops", "iopspergb"], two_rates),
        ("with block size", InvalidArgument, &["blocksize"], parameter("blockSize", "4096 -E x")),
        (
            "with a cluster size without bigalloc",
            InvalidArgument,
            &["ext4clustersize", "ext4bigalloc"],
            parameter("ext4ClusterSize", "16384"),
        ),
        ("with empty tag", InvalidArgument, &["tagSpecification", "no-equals"], tag("no-equals")),
        ("with reserved tag", InvalidArgument, &["CSIVolumeName"], tag("CSIVolumeName=mine")),
        ("with a limit below the size", OutOfRange, &["limit"], size(2 * GIB, GIB)),
        ("with a negative size", InvalidArgument, &["required_bytes"], size(-1, 0)),
        ("beyond EBS's sizes", OutOfRange, &["capacity_range", "65536 GiB"], too_large),
        (
            "with a file system for many nodes",
            InvalidArgument,
            &["MULTI_NODE_MULTI_WRITER", "block"],
            multi_writer,
        ),
        ("from an unknown snapshot", Aborted, &[UNKNOWN_SNAPSHOT], snapshot(UNKNOWN_SNAPSHOT)),
        ("from an invalid snapshot id", NotFound, &["photo"], snapshot("photo")),
        ("from an unknown volume", Aborted, &[UNKNOWN_VOLUME], clone),
    ]
}

pub(crate) async fn send_rows(fixture: &Fixture, volume: &Volume, wrong: &mut Differences<'_>) {
    let send = async |request| fixture.co.controller().create_volume(request).await;
    let request =
        |name: &str, gib| fixture.co.create_request(&Claim::filesystem(name, "ext4", gib));
    let rows = rows().into_iter().map(|(what, code, words, change)| {
        let mut request = request("pvc-bad", 10);
        change(&mut request);
        (what, code, words, request)
    });
    wrong.send("create", rows, send).await;
    let other_size = request(&volume.name, 12);
    let words: &[&str] = &[&volume.id];
    let row = ("of a name that has another size", AlreadyExists, words, other_size);
    wrong.send("create", [row], send).await;
}
