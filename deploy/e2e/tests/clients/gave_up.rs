//! An RPC continues after its client gave up, and a retry joins it.

use std::time::Duration;

use ebs_csi_e2e::{Fixture, tool_at_work};
use ebs_csi_sandbox::CoError;
use ebs_csi_sandbox::co::Claim;
use serde_json::json;
use tonic::Code;

const SHORT: Duration = Duration::from_millis(300);

/// Returns how many requests of this kind the driver sent after `mark`.
async fn sent(fixture: &Fixture, mark: u64, action: &str) -> usize {
    let records = fixture.requests().mutations(mark).await;
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
    let Some(fixture) = Fixture::start().await else { return };
    fixture.latency(json!({ "volume_create": { "fixed_ms": 1500 } })).await;
    let mark = fixture.requests().mark().await;
    let claim = Claim::filesystem("pvc-slow", "ext4", 10);
    let mut with_deadline = fixture.co.clone();
    with_deadline.provisioner = with_deadline.provisioner.deadline(SHORT).once();
    let refused = with_deadline.create(&claim).await.unwrap_err();
    assert_in_progress(&refused);
    let mut retries = fixture.co.clone();
    retries.provisioner = retries.provisioner.once();
    let (first, second) = tokio::join!(retries.create(&claim), retries.create(&claim));
    let first = fixture.must("retry", async { first }).await;
    let second = fixture.must("another retry", async { second }).await;
    assert_eq!(first.id, second.id);
    assert_eq!(sent(&fixture, mark, "CreateVolume").await, 1);
    fixture.must("delete", fixture.co.delete(&first.id)).await;
    fixture.finish().await;
}

#[tokio::test]
async fn abandoned_attach_and_detach_are_carried_out_once() {
    let Some(fixture) = Fixture::start().await else { return };
    let claim = Claim::filesystem("pvc-hang-up", "ext4", 10);
    let volume = fixture.must("create", fixture.co.create(&claim)).await;
    fixture.latency(json!({ "attach": { "fixed_ms": 1000 } })).await;
    let mark = fixture.requests().mark().await;
    let instance = fixture.instance(0);
    // Dropping the call closes its stream: the server sees a cancelled RPC.
    let abandoned = tokio::time::timeout(SHORT, fixture.co.attach(&volume, &instance)).await;
    assert!(abandoned.is_err(), "the attach was not slow: {abandoned:?}");
    let attachment = fixture.must("retry", fixture.co.attach(&volume, &instance)).await;
    assert!(attachment.context.contains_key("devicePath"));
    assert_eq!(sent(&fixture, mark, "AttachVolume").await, 1);
    // An abandoned unpublish is completed as well.
    fixture.latency(json!({ "detach": { "fixed_ms": 1000 } })).await;
    let abandoned = tokio::time::timeout(SHORT, fixture.co.detach(&volume.id, &instance)).await;
    assert!(abandoned.is_err(), "the detach was not slow: {abandoned:?}");
    fixture.must("retry", fixture.co.detach(&volume.id, &instance)).await;
    assert_eq!(sent(&fixture, mark, "DetachVolume").await, 1);
    fixture.must("delete", fixture.co.delete(&volume.id)).await;
    fixture.finish().await;
}

#[tokio::test]
async fn abandoned_resize_continues_with_1_modify_call() {
    let Some(fixture) = Fixture::start().await else { return };
    let claim = Claim::filesystem("pvc-slow-resize", "ext4", 10);
    let mut volume = fixture.must("create", fixture.co.create(&claim)).await;
    fixture.latency(json!({ "modify": { "fixed_ms": 3000 } })).await;
    let mark = fixture.requests().mark().await;
    let mut with_deadline = fixture.co.clone();
    with_deadline.provisioner = with_deadline.provisioner.deadline(SHORT).once();
    let wanted = volume.bytes + (1 << 30);
    let refused = with_deadline.expand(&mut volume, wanted).await.unwrap_err();
    assert_in_progress(&refused);
    fixture.must("retry", fixture.co.expand(&mut volume, wanted)).await;
    assert_eq!(sent(&fixture, mark, "ModifyVolume").await, 1);
    fixture.must("delete", fixture.co.delete(&volume.id)).await;
    fixture.finish().await;
}

#[tokio::test]
async fn abandoned_format_continues_and_retry_joins() {
    let Some(fixture) = Fixture::start().await else { return };
    for kind in ["ext4", "xfs"] {
        let claim = Claim::filesystem(&format!("pvc-slow-{kind}"), kind, 10);
        let (volume, attachment) = fixture.attached(&claim).await;
        let kubelet = &fixture.kubelets[0];
        let mut with_deadline = kubelet.clone();
        with_deadline.retry_policy =
            with_deadline.retry_policy.deadline(Duration::from_secs(3)).once();
        let (tool, refused) = tokio::join!(
            tool_at_work::catch(&fixture.world.nodes[0]),
            with_deadline.stage(&volume, &attachment)
        );
        let refused = refused.unwrap_err();
        assert_in_progress(&refused);
        assert!(tool.alive(), "the tool ended with its client");
        // The retry waits for the running tool instead of starting a second one.
        let (joined, ()) = tokio::join!(kubelet.stage(&volume, &attachment), async {
            tokio::time::sleep(SHORT).await;
            let running = tool_at_work::running(&fixture.world.nodes[0]);
            assert_eq!(running, [tool.pid()], "the retry started a tool of its own");
            drop(tool);
        });
        fixture.must("retry", async { joined }).await;
        fixture.discard(&volume).await;
    }
    fixture.finish().await;
}
