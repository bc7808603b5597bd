//! An RPC continues after its client gave up, and a retry joins it.

use std::time::Duration;

use ebs_csi_e2e::{Setting, tool_at_work};
use ebs_csi_sandbox::CoError;
use ebs_csi_sandbox::co::Claim;
use serde_json::json;
use tonic::Code;

const SHORT: Duration = Duration::from_millis(300);

/// Returns how many requests of this kind the driver sent after `mark`.
async fn sent(setting: &Setting, mark: u64, action: &str) -> usize {
    let records = setting.requests().mutations(mark).await;
    records.iter().filter(|record| record["action"] == action).count()
}

/// Checks that kubelet and the sidecars read a refusal as "it may still be in progress".
fn assert_in_progress(refused: &CoError) {
    use Code::{Aborted, Cancelled, DeadlineExceeded, Unavailable};
    let code = refused.code();
    assert!(
        matches!(code, Some(DeadlineExceeded | Aborted | Unavailable | Cancelled)),
        "{refused}"
    );
}

#[tokio::test]
async fn abandoned_create_continues_and_retries_share_volume() {
    let Some(setting) = Setting::start().await else { return };
    setting.latency(json!({ "volume_create": { "fixed_ms": 1500 } })).await;
    let mark = setting.requests().mark().await;
    let claim = Claim::filesystem("pvc-slow", "ext4", 10);
    let mut with_deadline = setting.co.clone();
    with_deadline.provisioner = with_deadline.provisioner.deadline(SHORT).once();
    let refused = with_deadline.create(&claim).await.unwrap_err();
    assert_in_progress(&refused);
    let mut retries = setting.co.clone();
    retries.provisioner = retries.provisioner.once();
    let (first, second) = tokio::join!(retries.create(&claim), retries.create(&claim));
    let first = setting.must("retry", async { first }).await;
    let second = setting.must("another retry", async { second }).await;
    assert_eq!(first.id, second.id);
    assert_eq!(sent(&setting, mark, "CreateVolume").await, 1);
    setting.must("delete", setting.co.delete(&first.id)).await;
    setting.finish().await;
}

#[tokio::test]
async fn abandoned_attach_and_detach_are_carried_out_once() {
    let Some(setting) = Setting::start().await else { return };
    let claim = Claim::filesystem("pvc-hang-up", "ext4", 10);
    let volume = setting.must("create", setting.co.create(&claim)).await;
    setting.latency(json!({ "attach": { "fixed_ms": 1000 } })).await;
    let mark = setting.requests().mark().await;
    let instance = setting.instance(0);
    // Dropping the call closes its stream: the server sees a cancelled RPC.
    let abandoned = tokio::time::timeout(SHORT, setting.co.attach(&volume, &instance)).await;
    assert!(abandoned.is_err(), "the attach was not slow: {abandoned:?}");
    let attachment = setting.must("retry", setting.co.attach(&volume, &instance)).await;
    assert!(attachment.context.contains_key("devicePath"));
    assert_eq!(sent(&setting, mark, "AttachVolume").await, 1);
    // An abandoned unpublish is completed as well.
    setting.latency(json!({ "detach": { "fixed_ms": 1000 } })).await;
    let abandoned = tokio::time::timeout(SHORT, setting.co.detach(&volume.id, &instance)).await;
    assert!(abandoned.is_err(), "the detach was not slow: {abandoned:?}");
    setting.must("retry", setting.co.detach(&volume.id, &instance)).await;
    assert_eq!(sent(&setting, mark, "DetachVolume").await, 1);
    setting.must("delete", setting.co.delete(&volume.id)).await;
    setting.finish().await;
}

#[tokio::test]
async fn abandoned_resize_continues_with_1_modify_call() {
    let Some(setting) = Setting::start().await else { return };
    let claim = Claim::filesystem("pvc-slow-resize", "ext4", 10);
    let mut volume = setting.must("create", setting.co.create(&claim)).await;
    setting.latency(json!({ "modify": { "fixed_ms": 3000 } })).await;
    let mark = setting.requests().mark().await;
    let mut with_deadline = setting.co.clone();
    with_deadline.provisioner = with_deadline.provisioner.deadline(SHORT).once();
    let wanted = volume.bytes + (1 << 30);
    let refused = with_deadline.expand(&mut volume, wanted).await.unwrap_err();
    assert_in_progress(&refused);
    setting.must("retry", setting.co.expand(&mut volume, wanted)).await;
    assert_eq!(sent(&setting, mark, "ModifyVolume").await, 1);
    setting.must("delete", setting.co.delete(&volume.id)).await;
    setting.finish().await;
}

#[tokio::test]
async fn abandoned_format_continues_and_retry_joins() {
    let Some(setting) = Setting::start().await else { return };
    for kind in ["ext4", "xfs"] {
        let claim = Claim::filesystem(&format!("pvc-slow-{kind}"), kind, 10);
        let (volume, attachment) = setting.attached(&claim).await;
        let kubelet = &setting.kubelets[0];
        let mut with_deadline = kubelet.clone();
        with_deadline.retry_policy =
            with_deadline.retry_policy.deadline(Duration::from_secs(3)).once();
        let (tool, refused) = tokio::join!(
            tool_at_work::catch(&setting.world.nodes[0]),
            with_deadline.stage(&volume, &attachment)
        );
        let refused = refused.unwrap_err();
        assert_in_progress(&refused);
        assert!(tool.alive(), "the tool ended with its client");
        // The retry waits for the running tool instead of starting a second one.
        let (joined, ()) = tokio::join!(kubelet.stage(&volume, &attachment), async {
            tokio::time::sleep(SHORT).await;
            let running = tool_at_work::running(&setting.world.nodes[0]);
            assert_eq!(running, [tool.pid()], "the retry started a tool of its own");
            drop(tool);
        });
        setting.must("retry", async { joined }).await;
        setting.discard(&volume).await;
    }
    setting.finish().await;
}
