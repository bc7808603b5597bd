//! Error messages name what was tried, why it failed, what to do next, and EC2's request id.

use serde_json::json;
use tonic::{Code, Status};

use crate::driver::{Driver, NODE_1, assert_status, volume};

#[derive(Clone, Copy, Debug)]
enum Call {
    Create,
    Publish,
    Unpublish,
    Expand,
    Snapshot,
    Delete,
}

impl Call {
    /// Makes the call for the existing volume `id`; a create is for another volume.
    async fn make(self, driver: &Driver, id: &str) -> Result<(), Status> {
        match self {
            Self::Create => driver.create(volume("pvc-2", 4)).await.map(drop),
            Self::Publish => driver.publish(id, NODE_1).await.map(drop),
            Self::Unpublish => driver.unpublish(id, NODE_1).await,
            Self::Expand => driver.expand(id, 20).await.map(drop),
            Self::Snapshot => driver.snapshot("s", id).await.map(drop),
            Self::Delete => driver.delete(id).await,
        }
    }

    fn action(self) -> &'static str {
        match self {
            Self::Create => "CreateVolume",
            Self::Publish => "AttachVolume",
            Self::Unpublish => "DetachVolume",
            Self::Expand => "ModifyVolume",
            Self::Snapshot => "CreateSnapshot",
            Self::Delete => "DeleteVolume",
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_names_cause_next_step_and_request_id() {
    use Call::{Create, Delete, Expand, Publish, Snapshot, Unpublish};
    use Code::{Aborted, InvalidArgument, PermissionDenied, ResourceExhausted};
    const POLICY: &str = "in the IAM policy of the controller's role";
    const QUOTA: &str = "raise the EBS quota";
    let (driver, id) = Driver::with_volume(10).await;
    driver.publish(&id, NODE_1).await.unwrap();
    let free = driver.created("pvc-3", 4).await;
    // EC2's answer to the call's own action, the gRPC code, and the next step.
    let rows = [
        (Create, "UnauthorizedOperation", 403, Aborted, POLICY),
        (Publish, "UnauthorizedOperation", 403, PermissionDenied, POLICY),
        (Unpublish, "UnauthorizedOperation", 403, PermissionDenied, POLICY),
        (Expand, "UnauthorizedOperation", 403, PermissionDenied, POLICY),
        (Snapshot, "UnauthorizedOperation", 403, PermissionDenied, POLICY),
        (Delete, "UnauthorizedOperation", 403, PermissionDenied, POLICY),
        (Create, "RequestExpired", 400, Aborted, "this node's clock (NTP)"),
        (Publish, "SignatureDoesNotMatch", 403, PermissionDenied, "belongs to the access key id"),
        (Create, "OptInRequired", 403, Aborted, "Region is enabled"),
        (Publish, "AttachmentLimitExceeded", 400, ResourceExhausted, "use another node"),
        (
            Publish,
            "InvalidVolume.ZoneMismatch",
            400,
            InvalidArgument,
            "a node in the volume's zone",
        ),
        (Create, "VolumeLimitExceeded", 400, Aborted, QUOTA),
        (Create, "MaxIOPSLimitExceeded", 400, Aborted, QUOTA),
        (Create, "InsufficientVolumeCapacity", 500, ResourceExhausted, "use another zone"),
        (
            Create,
            "VolumeTypeNotAvailableInZone",
            400,
            ResourceExhausted,
            "type that the zone offers",
        ),
        (Create, "CustomerKeyHasBeenRevoked", 400, InvalidArgument, "the KMS key is enabled"),
        (Create, "TagPolicyViolation", 400, InvalidArgument, "tag policy"),
        (Create, "InternalError", 500, Aborted, "AWS Health Dashboard"),
        (
            Snapshot,
            "SnapshotCreationPerVolumeRateExceeded",
            400,
            Code::Unavailable,
            "one snapshot of a volume in 15 s",
        ),
        (Delete, "NeverHeardOf", 400, Code::Internal, "error codes of the EC2 API"),
    ];
    for (call, cause, status, code, next_step) in rows {
        driver.world.clear_faults();
        driver.world.refuse(call.action(), cause, status);
        let volume = match call {
            Unpublish | Expand => &id,
            _ => &free,
        };
        let failed = call.make(&driver, volume).await.expect_err(cause);
        let what = format!("ec2:{}", call.action());
        assert_status(&failed, code, &[&what, cause, next_step, "(request id "]);
    }
    driver.world.clear_faults();
    assert_eq!(driver.live("volumes"), 2);
    assert_eq!(driver.live("attachments"), 1);

    // Without an answer there is no request id; the message names the endpoint instead.
    driver.world.post("/v1/outage", &json!({ "for_ms": 600_000 }));
    let failed = Create.make(&driver, &free).await.unwrap_err();
    assert_status(&failed, Code::Unavailable, &["ec2:", "127.0.0.1", "AWS_EC2_ENDPOINT"]);
}

/// EC2's message, not its code, tells what the reader can do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice_follows_message_of_ec2() {
    let (driver, id) = Driver::with_volume(1).await;
    let snapshot = driver.ready_snapshot("s", &id).await.snapshot_id;
    let refuse = |action: &str, code: &str, message: &str| {
        driver.world.clear_faults();
        let fault = json!({ "kind": "error", "code": code, "status": 400, "message": message });
        driver.world.fault_once(action, &fault);
    };
    let backup =
        "This snapshot is managed by the AWS Backup service and cannot be deleted via EC2 APIs.";
    refuse("DeleteSnapshot", "InvalidParameterValue", backup);
    let refused = driver.delete_snapshot(&snapshot).await.unwrap_err();
    assert_status(&refused, Code::FailedPrecondition, &["recovery point in AWS Backup"]);
    let denied = "You are not authorized to perform this operation. User: u is not authorized to perform: ec2:AttachVolume with an explicit deny in a service control policy.";
    refuse("AttachVolume", "UnauthorizedOperation", denied);
    let refused = driver.publish(&id, NODE_1).await.unwrap_err();
    assert_status(&refused, Code::PermissionDenied, &["change the policy that denies it"]);
    // The driver chose the name, and tries another.
    let name = "Value (/dev/xvdaa) for parameter device is invalid. /dev/xvdaa is not a valid EBS device name.";
    refuse("AttachVolume", "InvalidParameterValue", name);
    let sent = driver.world.calls("AttachVolume");
    driver.publish(&id, NODE_1).await.unwrap();
    assert_eq!(driver.world.calls("AttachVolume"), sent + 2);
}

/// The work waits for its turn, so that the caller's time ends first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overdue_call_says_that_ec2_throttles() {
    let driver = Driver::new().await;
    let throttled =
        json!({ "match": { "action": "CreateVolume" }, "fault": { "kind": "throttle" } });
    driver.world.fault(throttled);
    let mut request = tonic::Request::new(volume("pvc-1", 1));
    request.set_timeout(std::time::Duration::from_secs(2));
    let overdue = driver.client.clone().create_volume(request).await.unwrap_err();
    assert_status(&overdue, Code::DeadlineExceeded, &["EC2 throttles ec2:CreateVolume"]);
    driver.world.clear_faults();
    driver.created("pvc-1", 1).await;
}
