//! Invalid creations.

use csi::volume_capability::access_mode::Mode;
use ebs_csi_proto::csi;
use ebs_csi_sandbox::co::{Claim, Source};
use tonic::Code;

use crate::refused::{Refused, refused};
use crate::{GIB, UNKNOWN_VOLUME};

pub(crate) type Change = Box<dyn Fn(&mut csi::CreateVolumeRequest)>;

fn parameter(key: &'static str, value: &'static str) -> Change {
    Box::new(move |request| {
        request.parameters.insert(key.to_owned(), value.to_owned());
    })
}

fn size(required: i64, limit: i64) -> Change {
    Box::new(move |request| {
        request.capacity_range =
            Some(csi::CapacityRange { required_bytes: required, limit_bytes: limit });
    })
}

fn source(id: &'static str, snapshot: bool) -> Change {
    Box::new(move |request| {
        let claim = Claim::filesystem("", "ext4", 1);
        let from =
            if snapshot { Source::Snapshot(id.to_owned()) } else { Source::Volume(id.to_owned()) };
        let co = ebs_csi_sandbox::Co::new(std::path::Path::new("/x"), "z").unwrap();
        request.volume_content_source =
            co.create_request(&claim.from_source(from)).volume_content_source;
    })
}

fn capability(mode: Mode) -> Change {
    Box::new(move |request| {
        for capability in &mut request.volume_capabilities {
            capability.access_mode = Some(csi::volume_capability::AccessMode { mode: mode as i32 });
        }
    })
}

pub(crate) fn bad_creates() -> Vec<(Refused<'static>, Change)> {
    use Code::{Aborted, InvalidArgument, NotFound, OutOfRange};
    vec![
        (
            refused("create without a name", InvalidArgument, &["name"]),
            Box::new(|request| request.name.clear()),
        ),
        (
            refused("create without a capability", InvalidArgument, &["volume_capabilities"]),
            Box::new(|request| request.volume_capabilities.clear()),
        ),
        (
            refused("create with an unknown parameter", InvalidArgument, &["flavour"]),
            parameter("flavour", "mint"),
        ),
        (
            refused("create with an unknown mutable parameter", InvalidArgument, &["colour"]),
            Box::new(|request| {
                request.mutable_parameters.insert("colour".to_owned(), "red".to_owned());
            }),
        ),
        (
            refused("create with IOPS that are no number", InvalidArgument, &["iops", "many"]),
            parameter("iops", "many"),
        ),
        (
            refused("create with a type that does not exist", InvalidArgument, &["gp9"]),
            parameter("type", "gp9"),
        ),
        (
            refused("create with IOPS in two ways", InvalidArgument, &["iops", "iopspergb"]),
            Box::new(|request| {
                request.parameters.insert("iops".to_owned(), "3000".to_owned());
                request.parameters.insert("iopsPerGB".to_owned(), "5".to_owned());
            }),
        ),
        (
            refused("create with a block size that is not one", InvalidArgument, &["blocksize"]),
            parameter("blockSize", "4096 -E x"),
        ),
        (
            refused(
                "create with a cluster size without bigalloc",
                InvalidArgument,
                &["ext4clustersize", "ext4bigalloc"],
            ),
            parameter("ext4ClusterSize", "16384"),
        ),
        (
            refused(
                "create with a tag without a value",
                InvalidArgument,
                &["tagSpecification", "no-equals-sign"],
            ),
            parameter("tagSpecification_1", "no-equals-sign"),
        ),
        (
            refused("create with a reserved tag", InvalidArgument, &["CSIVolumeName"]),
            parameter("tagSpecification_1", "CSIVolumeName=mine"),
        ),
        (refused("create with a limit below the size", OutOfRange, &["limit"]), size(2 * GIB, GIB)),
        (refused("create with a negative size", InvalidArgument, &["required_bytes"]), size(-1, 0)),
        (
            refused("create beyond what EBS makes", OutOfRange, &["capacity_range", "65536 GiB"]),
            size(70_000 * GIB, 0),
        ),
        (
            refused(
                "create a file system for many nodes",
                InvalidArgument,
                &["MULTI_NODE_MULTI_WRITER", "block"],
            ),
            capability(Mode::MultiNodeMultiWriter),
        ),
        (
            refused("restore of an unknown snapshot", Aborted, &["snap-0123456789abcdef0"]),
            source("snap-0123456789abcdef0", true),
        ),
        (
            refused("restore of what cannot be a snapshot", NotFound, &["photo"]),
            source("photo", true),
        ),
        (
            refused("clone of an unknown volume", Aborted, &[UNKNOWN_VOLUME]),
            source(UNKNOWN_VOLUME, false),
        ),
    ]
}
