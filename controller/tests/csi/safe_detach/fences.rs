//! Fencing through the SafeDetach socket: only with permission, within the fence limit, and, where
//! the request asks for it, only while EC2's status checks fail.

use ebs_csi_controller::csi::service::ServiceSettings;
use ebs_csi_controller::safe_detach::{FencePermission, FenceSettings, Mode};
use ebs_csi_proto::safe_detach::{
    FenceRequest, QueryInstancesRequest, StatusChecks, fence_request, query_instances_response,
};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::driver::{Driver, NODE_1, NODE_2, assert_refused, assert_status, settings, within};
use crate::safe_detach::{attached, instances, refused, two_nodes};

fn fencing(permission: FencePermission) -> ServiceSettings {
    ServiceSettings {
        safe_detach: Mode::Enforce,
        fence: FenceSettings { permission, limit: 1 },
        ..settings()
    }
}

fn request(node: &str, mode: fence_request::Mode) -> FenceRequest {
    FenceRequest {
        instance_id: node.to_owned(),
        mode: mode.into(),
        reason: "a test".to_owned(),
        ..FenceRequest::default()
    }
}

async fn send(driver: &Driver, request: FenceRequest) -> Result<String, Status> {
    let mut client = driver.safe_detach.clone();
    let answer = client.fence(within(request, 30)).await?;
    Ok(answer.into_inner().instance_state)
}

async fn fence(
    driver: &Driver,
    node: &str,
    mode: fence_request::Mode,
    dry_run: bool,
) -> Result<String, Status> {
    send(driver, FenceRequest { dry_run, ..request(node, mode) }).await
}

fn assert_fences(driver: &Driver, results: &[(&str, u32)]) {
    let text = driver.metrics();
    for (result, fences) in results {
        let line = format!(
            r#"aws_ebs_csi_safe_detach_fences_total{{mode="stop",result="{result}"}} {fences}"#
        );
        assert!(text.contains(&line), "{line}\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fence_needs_permission_and_respects_limit() {
    use fence_request::Mode::{Stop, Terminate};
    for permission in [FencePermission::Off, FencePermission::Stop] {
        let driver = Driver::with(fencing(permission), two_nodes()).await;
        let refused = fence(&driver, NODE_1, Terminate, false).await.unwrap_err();
        let flag = format!("--safe-detach-fence={permission}");
        assert_status(&refused, Code::FailedPrecondition, &[&flag]);
        assert_eq!(driver.world.calls("TerminateInstances"), 0);
    }
    let driver = Driver::with(fencing(FencePermission::Stop), two_nodes()).await;
    let id = attached(&driver).await;
    refused(driver.unpublish(&id, NODE_1).await, "no-report");
    // A dry run does not count against the limit.
    assert_eq!(fence(&driver, NODE_2, Stop, true).await.unwrap(), "");
    assert_eq!(fence(&driver, NODE_1, Stop, false).await.unwrap(), "stopping");
    let calls = driver.world.calls("StopInstances");
    assert_eq!(calls, 3, "two dry runs and one stop");
    let braked = fence(&driver, NODE_2, Stop, false).await.unwrap_err();
    assert_status(&braked, Code::ResourceExhausted, &["--safe-detach-fence-limit"]);
    driver.unpublish(&id, NODE_1).await.unwrap();
    // The instance is already stopped: nothing is sent.
    let calls = driver.world.calls("StopInstances");
    assert_eq!(fence(&driver, NODE_1, Stop, false).await.unwrap(), "stopped");
    assert_eq!(driver.world.calls("StopInstances"), calls);
    let line = r#"aws_ebs_csi_safe_detach_decisions_total{verdict="safe",evidence="fenced"} 1"#;
    assert!(driver.metrics().contains(line), "{}", driver.metrics());
    assert_fences(&driver, &[("accepted", 1), ("allowed", 1), ("brake", 1), ("not-needed", 1)]);
}

/// A person can set `DeleteOnTermination` of an attached volume; EC2 would delete the data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn termination_that_deletes_a_claims_volume_is_refused() {
    use fence_request::Mode::{Stop, Terminate};
    let node = json!({ "instances": [
        { "id": NODE_1, "type": "m5.large", "zone": "us-east-1a", "launch_disks": ["/dev/xvdb"] },
    ] });
    for (tag, is_refused) in [
        ("ebs.csi.aws.com/cluster", true),
        ("CSIVolumeName", true),
        ("kubernetes.io/created-for/pvc/name", true),
        ("kubernetes.io/cluster/test", false),
    ] {
        let driver = Driver::with(fencing(FencePermission::Terminate), node.clone()).await;
        let state = driver.world.get("/v1/state");
        let volumes = state["realms"][0]["volumes"].as_array().unwrap().iter();
        let is_launch_disk = |volume: &&Value| volume["attachments"][0]["device"] == "/dev/xvdb";
        let id = volumes.clone().find(is_launch_disk).unwrap()["id"].as_str().unwrap().to_owned();
        let tagged = json!({ "ResourceId.1": id, "Tag.1.Key": tag, "Tag.1.Value": "true" });
        driver.world.as_foreign("CreateTags", &tagged);
        let answer = fence(&driver, NODE_1, Terminate, false).await;
        if is_refused {
            let words = [id.as_str(), "DeleteOnTermination"];
            assert_refused(answer, Code::FailedPrecondition, &words);
            assert_eq!(driver.world.calls("TerminateInstances"), 0, "{tag}");
            assert_eq!(fence(&driver, NODE_1, Stop, false).await.unwrap(), "stopping", "{tag}");
        } else {
            assert_eq!(answer.unwrap(), "shutting-down", "{tag}");
        }
    }
}

/// Sets the results of EC2's status checks of an instance from now on.
fn checks(driver: &Driver, node: &str, found: &Value) {
    let path = format!("/v1/instances/{node}/checks");
    driver.world.command(|control| control.put(&path, found));
}

/// Returns the answers about these instances, with the status checks of those in `checked`.
async fn query(
    driver: &Driver,
    ids: &[&str],
    checked: &[&str],
) -> Vec<query_instances_response::Answer> {
    let strings = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
    let request =
        QueryInstancesRequest { instance_ids: strings(ids), status_checks_of: strings(checked) };
    let mut client = driver.safe_detach.clone();
    let answer = client.query_instances(within(request, 30)).await.unwrap();
    answer.into_inner().answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_checks_cover_only_requested_running_instances() {
    let driver = Driver::under(Mode::Enforce, two_nodes()).await;
    let calls = || driver.world.calls("DescribeInstanceStatus");
    let one = async |checked: &[&str]| {
        let [answer] = <[_; 1]>::try_from(query(&driver, &[NODE_1], checked).await).unwrap();
        (answer.status_checks(), answer.status_checks_text)
    };
    // Nobody requested the checks, so no call is made.
    assert_eq!(one(&[]).await, (StatusChecks::Unspecified, String::new()));
    assert_eq!(one(&[NODE_2]).await.0, StatusChecks::Unspecified);
    assert_eq!(calls(), 0);
    let rows = [
        (json!({}), StatusChecks::Passed, "system ok, instance ok"),
        (json!({"system": "impaired"}), StatusChecks::Failed, "system impaired, instance ok"),
        (
            json!({"system": "ok", "instance": "impaired"}),
            StatusChecks::Failed,
            "system ok, instance impaired",
        ),
        (
            json!({"instance": "insufficient-data"}),
            StatusChecks::Unspecified,
            "instance insufficient-data",
        ),
        (json!({"instance": "initializing"}), StatusChecks::Unspecified, "instance initializing"),
        // An impaired volume is no reason to stop an instance.
        (
            json!({"instance": "ok", "attached_ebs": "impaired"}),
            StatusChecks::Passed,
            "attached EBS impaired",
        ),
    ];
    for (found, want, words) in rows {
        checks(&driver, NODE_1, &found);
        let (result, text) = one(&[NODE_1]).await;
        assert_eq!(result, want, "{found}: {text}");
        assert!(text.contains(words) && text.contains(NODE_1), "{found}: {text}");
    }
    // EC2 refuses the call: the result is unspecified, and the text says why.
    driver.world.deny("DescribeInstanceStatus");
    checks(&driver, NODE_1, &json!({"system": "impaired"}));
    let (result, text) = one(&[NODE_1]).await;
    assert_eq!(result, StatusChecks::Unspecified);
    assert!(text.contains("ec2:DescribeInstanceStatus"), "{text}");
    driver.world.clear_faults();
    // EC2 does not check an instance that is not running, so it is not called.
    let before = calls();
    driver.world.power(NODE_1, "stop");
    assert_eq!(one(&[NODE_1]).await, (StatusChecks::Unspecified, String::new()));
    assert_eq!(calls(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_checks_of_100_instances_use_1_call() {
    let ids: Vec<_> = (0..150).map(|n| format!("i-0aaaaaaaaaaaaa{n:03}")).collect();
    let driver = Driver::under(Mode::Enforce, instances(&ids)).await;
    let ids: Vec<_> = ids.iter().map(String::as_str).collect();
    checks(&driver, ids[149], &json!({"instance": "impaired"}));
    let calls = || driver.world.calls("DescribeInstanceStatus");
    for (checked, want) in [(&ids[..100], 1), (&ids[50..], 1), (&ids[..], 2)] {
        let before = calls();
        let answers = query(&driver, &ids, checked).await;
        let count = |wanted| answers.iter().filter(|a| a.status_checks() == wanted).count();
        assert_eq!(calls() - before, want);
        let impaired = usize::from(checked.contains(&ids[149]));
        assert_eq!(count(StatusChecks::Failed), impaired);
        assert_eq!(count(StatusChecks::Passed), checked.len() - impaired);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_impaired_fence_reads_status_checks_each_time() {
    let driver = Driver::with(fencing(FencePermission::Stop), two_nodes()).await;
    let impaired_only = async |dry_run| {
        let request = FenceRequest {
            dry_run,
            only_impaired: true,
            ..request(NODE_1, fence_request::Mode::Stop)
        };
        send(&driver, request).await
    };
    let left_alone = [
        (json!({}), "system ok, instance ok"),
        (json!({"system": "insufficient-data"}), "insufficient-data"),
        (json!({"system": "ok", "attached_ebs": "impaired"}), "attached EBS impaired"),
    ];
    for (found, words) in left_alone {
        checks(&driver, NODE_1, &found);
        for dry_run in [true, false] {
            let refused = impaired_only(dry_run).await.unwrap_err();
            assert_status(&refused, Code::FailedPrecondition, &[words, "left alone"]);
        }
    }
    // The instance was impaired and was reported so, but is not impaired any more.
    checks(&driver, NODE_1, &json!({"instance": "impaired"}));
    let seen = query(&driver, &[NODE_1], &[NODE_1]).await;
    assert_eq!(seen[0].status_checks(), StatusChecks::Failed);
    checks(&driver, NODE_1, &json!({"instance": "ok"}));
    assert_refused(impaired_only(false).await, Code::FailedPrecondition, &[]);
    // EC2 refuses to show the checks.
    checks(&driver, NODE_1, &json!({"instance": "impaired"}));
    driver.world.deny("DescribeInstanceStatus");
    let refused = impaired_only(false).await.unwrap_err();
    assert_status(&refused, Code::PermissionDenied, &["ec2:DescribeInstanceStatus"]);
    // Not even a dry run was sent, and the refusals did not count against the limit.
    assert_eq!(driver.world.calls("StopInstances"), 0);
    driver.world.clear_faults();
    assert_eq!(impaired_only(false).await.unwrap(), "stopping");
    assert_fences(&driver, &[("not-impaired", 7), ("failed", 1), ("accepted", 1)]);
    // A request without `only_impaired` does not read the status checks.
    let driver = Driver::with(fencing(FencePermission::Stop), two_nodes()).await;
    fence(&driver, NODE_1, fence_request::Mode::Stop, false).await.unwrap();
    assert_eq!(driver.world.calls("DescribeInstanceStatus"), 0);
}
