//! Invalid expansions, modifications, snapshots and listings.

use std::collections::HashMap;

use csi::controller_client::ControllerClient;
use ebs_csi_e2e::Setting;
use ebs_csi_proto::csi;
use ebs_csi_sandbox::co::Volume;
use tonic::Code;
use tonic::transport::Channel;

use crate::refused::{judge, refused, unchanged};
use crate::{GIB, UNKNOWN_VOLUME};

/// Sends invalid requests to expand, to modify and for snapshots.
pub(crate) async fn later_rows(
    setting: &Setting,
    volume: &Volume,
    mark: u64,
    client: &mut ControllerClient<Channel>,
    wrong: &mut Vec<String>,
) {
    let expand = |id: &str, range: Option<(i64, i64)>| csi::ControllerExpandVolumeRequest {
        volume_id: id.to_owned(),
        capacity_range: range.map(|(required_bytes, limit_bytes)| csi::CapacityRange {
            required_bytes,
            limit_bytes,
        }),
        ..Default::default()
    };
    for (request, expected) in [
        (
            expand(&volume.id, None),
            refused("expand without a size", Code::InvalidArgument, &["capacity_range"]),
        ),
        (
            expand(&volume.id, Some((12 * GIB, 11 * GIB))),
            refused("expand with a limit below the size", Code::OutOfRange, &["limit"]),
        ),
        (
            expand(UNKNOWN_VOLUME, Some((12 * GIB, 0))),
            refused("expand of an unknown volume", Code::NotFound, &[UNKNOWN_VOLUME]),
        ),
        (
            expand(&volume.id, Some((70_000 * GIB, 0))),
            refused("expand beyond what EBS makes", Code::OutOfRange, &["65536 GiB"]),
        ),
    ] {
        wrong.extend(judge(client.controller_expand_volume(request).await, &expected));
        unchanged(setting, mark, expected.what, wrong).await;
    }
    for (key, value, expected) in [
        (
            "colour",
            "red",
            refused("modify with an unknown parameter", Code::InvalidArgument, &["colour"]),
        ),
        (
            "iops",
            "many",
            refused("modify with IOPS that are no number", Code::InvalidArgument, &["iops"]),
        ),
        (
            "tagDeletion_1",
            "CSIVolumeName",
            refused(
                "modify that removes a reserved tag",
                Code::InvalidArgument,
                &["CSIVolumeName"],
            ),
        ),
    ] {
        let request = csi::ControllerModifyVolumeRequest {
            volume_id: volume.id.clone(),
            mutable_parameters: HashMap::from([(key.to_owned(), value.to_owned())]),
            ..Default::default()
        };
        wrong.extend(judge(client.controller_modify_volume(request).await, &expected));
        unchanged(setting, mark, expected.what, wrong).await;
    }
    let snapshot = |name: &str, source: &str, parameter: Option<&str>| csi::CreateSnapshotRequest {
        name: name.to_owned(),
        source_volume_id: source.to_owned(),
        parameters: parameter.map(|key| (key.to_owned(), "x".to_owned())).into_iter().collect(),
        ..Default::default()
    };
    for (request, expected) in [
        (
            snapshot("", &volume.id, None),
            refused("snapshot without a name", Code::InvalidArgument, &["name"]),
        ),
        (
            snapshot("s", "", None),
            refused("snapshot without a source", Code::InvalidArgument, &["source_volume_id"]),
        ),
        (
            snapshot("s", UNKNOWN_VOLUME, None),
            refused("snapshot of an unknown volume", Code::NotFound, &[UNKNOWN_VOLUME]),
        ),
        (
            snapshot("s", &volume.id, Some("colour")),
            refused("snapshot with an unknown parameter", Code::InvalidArgument, &["colour"]),
        ),
        (
            snapshot("s", &volume.id, Some("outpostArn")),
            refused("snapshot with an ARN that is none", Code::InvalidArgument, &["outpostarn"]),
        ),
    ] {
        wrong.extend(judge(client.create_snapshot(request).await, &expected));
        unchanged(setting, mark, expected.what, wrong).await;
    }
    let list = |entries: i32, token: &str| csi::ListSnapshotsRequest {
        max_entries: entries,
        starting_token: token.to_owned(),
        ..Default::default()
    };
    for (request, expected) in [
        (
            list(-1, ""),
            refused("list with a negative page", Code::InvalidArgument, &["max_entries"]),
        ),
        (list(0, "no-token"), refused("list from a token that is none", Code::Aborted, &["token"])),
    ] {
        wrong.extend(judge(client.list_snapshots(request).await, &expected));
    }
}
