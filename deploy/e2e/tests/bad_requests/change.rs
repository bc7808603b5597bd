//! Invalid requests for an existing volume: attach, delete, expand, modify, snapshots, listings.

use std::collections::HashMap;

use ebs_csi_e2e::Fixture;
use ebs_csi_proto::csi;
use ebs_csi_sandbox::co::{GIB, Volume};
use tonic::Code::{Aborted, FailedPrecondition, InvalidArgument, NotFound, OutOfRange};

use crate::UNKNOWN_VOLUME;
use crate::refused::{Differences, Row};

const UNKNOWN_INSTANCE: &str = "i-0123456789abcdef0";

pub(crate) async fn send_rows(fixture: &Fixture, volume: &Volume, wrong: &mut Differences<'_>) {
    let (id, client) = (volume.id.as_str(), || fixture.co.controller());
    let publish = |volume_id: &str, node_id: &str| csi::ControllerPublishVolumeRequest {
        volume_id: volume_id.to_owned(),
        node_id: node_id.to_owned(),
        volume_capability: Some(volume.capability()),
        ..Default::default()
    };
    let (here, there) = (&*fixture.instance(0), &*fixture.instance(1));
    let mut no_capability = publish(id, here);
    no_capability.volume_capability = None;
    let both_instances: &[&str] = &[UNKNOWN_INSTANCE, here];
    let rows: [Row<'_, _>; 8] = [
        ("without a volume", InvalidArgument, &["volume_id"], publish("", here)),
        ("without a node", InvalidArgument, &["node_id"], publish(id, "")),
        ("of unknown volume", NotFound, &[UNKNOWN_VOLUME], publish(UNKNOWN_VOLUME, here)),
        ("of an invalid volume id", NotFound, &["my-disk"], publish("my-disk", here)),
        ("to unknown node", FailedPrecondition, both_instances, publish(id, UNKNOWN_INSTANCE)),
        ("to an invalid node id", NotFound, &["my-laptop"], publish(id, "my-laptop")),
        ("of what is attached elsewhere", FailedPrecondition, &[here], publish(id, there)),
        ("without a capability", InvalidArgument, &["volume_capability"], no_capability),
    ];
    let send = async |request| client().controller_publish_volume(request).await;
    wrong.send("publish", rows, send).await;

    let delete =
        |id: &str| csi::DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
    let rows: [Row<'_, _>; 2] = [
        ("without a volume", InvalidArgument, &["volume_id"], delete("")),
        ("of what is attached", FailedPrecondition, &[id], delete(id)),
    ];
    wrong.send("delete", rows, async |request| client().delete_volume(request).await).await;
    let before = fixture.requests().mark().await;
    client().delete_volume(delete("my-disk")).await.expect("what EC2 cannot have made is gone");
    let since = fixture.requests().since(before).await;
    if !since.is_empty() {
        wrong.found.push(format!("delete of an invalid volume id: EC2 got {since:?}"));
    }

    let expand = |id: &str, range: Option<(i64, i64)>| csi::ControllerExpandVolumeRequest {
        volume_id: id.to_owned(),
        capacity_range: range.map(|(required_bytes, limit_bytes)| csi::CapacityRange {
            required_bytes,
            limit_bytes,
        }),
        ..Default::default()
    };
    let (to_12, low_limit) = (Some((12 * GIB, 0)), Some((12 * GIB, 11 * GIB)));
    let rows: [Row<'_, _>; 4] = [
        ("without a size", InvalidArgument, &["capacity_range"], expand(id, None)),
        ("with a limit below the size", OutOfRange, &["limit"], expand(id, low_limit)),
        ("of an unknown volume", NotFound, &[UNKNOWN_VOLUME], expand(UNKNOWN_VOLUME, to_12)),
        ("beyond EBS's sizes", OutOfRange, &["65536 GiB"], expand(id, Some((70_000 * GIB, 0)))),
    ];
    let send = async |request| client().controller_expand_volume(request).await;
    wrong.send("expand", rows, send).await;

    let modify = |key: &str, value: &str| csi::ControllerModifyVolumeRequest {
        volume_id: id.to_owned(),
        mutable_parameters: HashMap::from([(key.to_owned(), value.to_owned())]),
        ..Default::default()
    };
    let reserved = modify("tagDeletion_1", "CSIVolumeName");
    let rows: [Row<'_, _>; 3] = [
        ("with an unknown parameter", InvalidArgument, &["colour"], modify("colour", "red")),
        ("with IOPS that are no number", InvalidArgument, &["iops"], modify("iops", "many")),
        ("that removes a reserved tag", InvalidArgument, &["CSIVolumeName"], reserved),
    ];
    let send = async |request| client().controller_modify_volume(request).await;
    wrong.send("modify", rows, send).await;

    let snapshot = |name: &str, source: &str, parameter: Option<&str>| csi::CreateSnapshotRequest {
        name: name.to_owned(),
        source_volume_id: source.to_owned(),
        parameters: parameter.map(|key| (key.to_owned(), "x".to_owned())).into_iter().collect(),
        ..Default::default()
    };
    let of_unknown = snapshot("s", UNKNOWN_VOLUME, None);
    let outpost = snapshot("s", id, Some("outpostArn"));
    let rows: [Row<'_, _>; 5] = [
        ("without a name", InvalidArgument, &["name"], snapshot("", id, None)),
        ("without a source", InvalidArgument, &["source_volume_id"], snapshot("s", "", None)),
        ("of an unknown volume", NotFound, &[UNKNOWN_VOLUME], of_unknown),
        ("with parameter", InvalidArgument, &["colour"], snapshot("s", id, Some("colour"))),
        ("with an invalid ARN", InvalidArgument, &["outpostarn"], outpost),
    ];
    wrong.send("snapshot", rows, async |request| client().create_snapshot(request).await).await;

    let list = |entries: i32, token: &str| csi::ListSnapshotsRequest {
        max_entries: entries,
        starting_token: token.to_owned(),
        ..Default::default()
    };
    let rows: [Row<'_, _>; 2] = [
        ("with a negative page", InvalidArgument, &["max_entries"], list(-1, "")),
        ("from an invalid token", Aborted, &["token"], list(0, "no-token")),
    ];
    wrong.send("list", rows, async |request| client().list_snapshots(request).await).await;
}
