//! Requests that must be refused: checks the code, the message, and that nothing has changed.

mod change;
mod create;
mod node;
mod publish;
mod refused;
mod stage;

use csi::controller_client::ControllerClient;
use ebs_csi_e2e::Setting;
use ebs_csi_proto::csi;
use ebs_csi_sandbox::co::{Claim, Volume};
use tonic::Code;
use tonic::transport::Channel;

use create::bad_creates;
use refused::{judge, refused, unchanged};

const UNKNOWN_VOLUME: &str = "vol-0123456789abcdef0";
const UNKNOWN_INSTANCE: &str = "i-0123456789abcdef0";
const GIB: i64 = 1 << 30;

async fn controller_rows(setting: &Setting, volume: &Volume, wrong: &mut Vec<String>) {
    let mut client: ControllerClient<Channel> = setting.co.controller();
    let mark = setting.requests().mark().await;
    for (expected, change) in bad_creates() {
        let mut request = setting.co.create_request(&Claim::filesystem("pvc-bad", "ext4", 10));
        change(&mut request);
        wrong.extend(judge(client.create_volume(request).await, &expected));
        unchanged(setting, mark, expected.what, wrong).await;
    }
    let mut other_size = setting.co.create_request(&Claim::filesystem(&volume.name, "ext4", 12));
    wrong.extend(judge(
        client.create_volume(other_size.clone()).await,
        &refused("create of a name that has another size", Code::AlreadyExists, &[&volume.id]),
    ));
    other_size.capacity_range = None;
    let publish = |volume_id: &str, node_id: &str| csi::ControllerPublishVolumeRequest {
        volume_id: volume_id.to_owned(),
        node_id: node_id.to_owned(),
        volume_capability: Some(volume.capability()),
        ..Default::default()
    };
    let (here, there) = (setting.instance(0), setting.instance(1));
    for (request, expected) in [
        (
            publish("", &here),
            refused("publish without a volume", Code::InvalidArgument, &["volume_id"]),
        ),
        (
            publish(&volume.id, ""),
            refused("publish without a node", Code::InvalidArgument, &["node_id"]),
        ),
        (
            publish(UNKNOWN_VOLUME, &here),
            refused("publish of an unknown volume", Code::NotFound, &[UNKNOWN_VOLUME]),
        ),
        (
            publish("my-disk", &here),
            refused("publish of what cannot be a volume", Code::NotFound, &["my-disk"]),
        ),
        (
            publish(&volume.id, UNKNOWN_INSTANCE),
            refused(
                "publish of what is attached to an unknown node",
                Code::FailedPrecondition,
                &[UNKNOWN_INSTANCE, &here],
            ),
        ),
        (
            publish(&volume.id, "my-laptop"),
            refused("publish to what cannot be a node", Code::NotFound, &["my-laptop"]),
        ),
        (
            publish(&volume.id, &there),
            refused("publish of what is attached elsewhere", Code::FailedPrecondition, &[&here]),
        ),
        (
            csi::ControllerPublishVolumeRequest {
                volume_capability: None,
                ..publish(&volume.id, &here)
            },
            refused("publish without a capability", Code::InvalidArgument, &["volume_capability"]),
        ),
    ] {
        wrong.extend(judge(client.controller_publish_volume(request).await, &expected));
        unchanged(setting, mark, expected.what, wrong).await;
    }
    let delete =
        |id: &str| csi::DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
    for (request, expected) in [
        (delete(""), refused("delete without a volume", Code::InvalidArgument, &["volume_id"])),
        (
            delete(&volume.id),
            refused("delete of what is attached", Code::FailedPrecondition, &[&volume.id]),
        ),
    ] {
        wrong.extend(judge(client.delete_volume(request).await, &expected));
        unchanged(setting, mark, expected.what, wrong).await;
    }
    let asked = setting.requests().mark().await;
    client.delete_volume(delete("my-disk")).await.expect("what EC2 cannot have made is gone");
    let since = setting.requests().since(asked).await;
    if !since.is_empty() {
        wrong.push(format!("delete of what cannot be a volume: EC2 was asked: {since:?}"));
    }
    change::later_rows(setting, volume, mark, &mut client, wrong).await;
}

#[tokio::test]
async fn bad_controller_requests_are_refused_and_change_nothing() {
    let Some(setting) = Setting::start().await else { return };
    let volume =
        setting.must("create", setting.co.create(&Claim::filesystem("pvc-good", "ext4", 10))).await;
    let instance = setting.instance(0);
    setting.must("attach", setting.co.attach(&volume, &instance)).await;
    let mut wrong = Vec::new();
    controller_rows(&setting, &volume, &mut wrong).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    setting.must("detach", setting.co.detach(&volume.id, &instance)).await;
    setting.must("delete", setting.co.delete(&volume.id)).await;
    setting.finish().await;
}
