//! Error messages name what was tried, why it failed, what to do next, and EC2's request id.

use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::driver::{Driver, NODE_1, volume};

/// A call of a sidecar.
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
    async fn of(self, driver: &Driver, id: &str) -> Result<(), Status> {
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

fn error(code: &str, status: u16) -> Value {
    json!({ "kind": "error", "code": code, "status": status, "message": "In EC2's words." })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_names_cause_next_step_and_request_id() {
    let driver = Driver::new().await;
    let id = driver.create(volume("pvc-1", 10)).await.unwrap().volume_id;
    driver.publish(&id, NODE_1).await.unwrap();
    let free = driver.create(volume("pvc-3", 4)).await.unwrap().volume_id;
    // EC2's answer to the call's own action, the gRPC code, EC2's code, and the next step.
    let rows: [(Call, Value, Code, &str, &str); 20] = [
        (
            Call::Create,
            error("UnauthorizedOperation", 403),
            Code::Aborted,
            "UnauthorizedOperation",
            "in the IAM policy of the controller's role",
        ),
        (
            Call::Publish,
            error("UnauthorizedOperation", 403),
            Code::PermissionDenied,
            "UnauthorizedOperation",
            "in the IAM policy of the controller's role",
        ),
        (
            Call::Unpublish,
            error("UnauthorizedOperation", 403),
            Code::PermissionDenied,
            "UnauthorizedOperation",
            "in the IAM policy of the controller's role",
        ),
        (
            Call::Expand,
            error("UnauthorizedOperation", 403),
            Code::PermissionDenied,
            "UnauthorizedOperation",
            "in the IAM policy of the controller's role",
        ),
        (
            Call::Snapshot,
            error("UnauthorizedOperation", 403),
            Code::PermissionDenied,
            "UnauthorizedOperation",
            "in the IAM policy of the controller's role",
        ),
        (
            Call::Delete,
            error("UnauthorizedOperation", 403),
            Code::PermissionDenied,
            "UnauthorizedOperation",
            "in the IAM policy of the controller's role",
        ),
        (
            Call::Create,
            error("RequestExpired", 400),
            Code::Aborted,
            "RequestExpired",
            "this node's clock (NTP)",
        ),
        (
            Call::Publish,
            error("SignatureDoesNotMatch", 403),
            Code::PermissionDenied,
            "SignatureDoesNotMatch",
            "belongs to the access key id",
        ),
        (
            Call::Create,
            error("OptInRequired", 403),
            Code::Aborted,
            "OptInRequired",
            "Region is enabled",
        ),
        (
            Call::Publish,
            error("AttachmentLimitExceeded", 400),
            Code::ResourceExhausted,
            "AttachmentLimitExceeded",
            "use another node",
        ),
        (
            Call::Publish,
            error("InvalidVolume.ZoneMismatch", 400),
            Code::InvalidArgument,
            "InvalidVolume.ZoneMismatch",
            "a node in the volume's zone",
        ),
        (
            Call::Create,
            error("VolumeLimitExceeded", 400),
            Code::ResourceExhausted,
            "VolumeLimitExceeded",
            "raise the EBS quota",
        ),
        (
            Call::Create,
            error("MaxIOPSLimitExceeded", 400),
            Code::ResourceExhausted,
            "MaxIOPSLimitExceeded",
            "raise the EBS quota",
        ),
        (
            Call::Create,
            error("InsufficientVolumeCapacity", 500),
            Code::ResourceExhausted,
            "InsufficientVolumeCapacity",
            "use another zone",
        ),
        (
            Call::Create,
            error("VolumeTypeNotAvailableInZone", 400),
            Code::ResourceExhausted,
            "VolumeTypeNotAvailableInZone",
            "type that the zone offers",
        ),
        (
            Call::Create,
            error("CustomerKeyHasBeenRevoked", 400),
            Code::InvalidArgument,
            "CustomerKeyHasBeenRevoked",
            "the KMS key is enabled",
        ),
        (
            Call::Create,
            error("TagPolicyViolation", 400),
            Code::InvalidArgument,
            "TagPolicyViolation",
            "tag policy",
        ),
        (
            Call::Create,
            error("InternalError", 500),
            Code::Aborted,
            "InternalError",
            "AWS Health Dashboard",
        ),
        (
            Call::Snapshot,
            error("SnapshotCreationPerVolumeRateExceeded", 400),
            Code::Unavailable,
            "SnapshotCreationPerVolumeRateExceeded",
            "one snapshot of a volume in 15 s",
        ),
        (
            Call::Delete,
            error("NeverHeardOf", 400),
            Code::Internal,
            "NeverHeardOf",
            "error codes of the EC2 API",
        ),
    ];
    for (call, fault, code, cause, next_step) in rows {
        let is = format!("{call:?} with {cause}");
        driver.world.clear_faults();
        driver.world.fault(json!({ "match": { "action": call.action() }, "fault": fault }));
        let of = match call {
            Call::Unpublish | Call::Expand => &id,
            _ => &free,
        };
        let told = call.of(&driver, of).await.expect_err(&is);
        assert_eq!(told.code(), code, "{is}: {told}");
        let what = format!("ec2:{}", call.action());
        for part in [what.as_str(), cause, next_step, "(request id "] {
            assert!(told.message().contains(part), "{is}: {part}: {told}");
        }
    }
    driver.world.clear_faults();
    assert_eq!(driver.live("volumes"), 2);
    assert_eq!(driver.live("attachments"), 1);

    // Without an answer there is no request id; the message names the endpoint instead.
    driver.world.command(|control| control.post("/v1/outage", &json!({ "for_ms": 600_000 })));
    let told = Call::Create.of(&driver, &free).await.unwrap_err();
    assert_eq!(told.code(), Code::Unavailable, "{told}");
    for part in ["ec2:", "127.0.0.1", "AWS_EC2_ENDPOINT"] {
        assert!(told.message().contains(part), "{part}: {told}");
    }
}
