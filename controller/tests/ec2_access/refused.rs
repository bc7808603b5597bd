//! Refusals by EC2, and connections that fail on the way to EC2.

use std::time::Duration;

use ebs_csi_ec2::{Call, Ec2ErrorKind, Ec2Settings, LookResult, Sent, StartError, Surroundings};
use serde_json::json;

use crate::world::{World, access, small};
use crate::{nobody, snapshot_of};

#[tokio::test]
async fn unreachable_ec2_is_reported_and_nothing_is_sent() {
    let settings =
        Ec2Settings { connect_timeout: Duration::from_millis(300), ..Ec2Settings::default() };
    // Nothing listens on a port that was just released.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let ec2 = access(&format!("http://127.0.0.1:{port}"), settings).await;
    let check = ec2.check_access().await.unwrap_err();
    assert_eq!((check.kind, check.sent), (Ec2ErrorKind::Unreachable, Sent::Not));
    let text = check.to_string();
    assert!(text.contains("refused") && text.contains("AWS_EC2_ENDPOINT"), "{text}");
    let create = ec2.create_volume(&Call::default(), &small("a")).await.unwrap_err();
    assert!(!create.may_have_happened(), "{create:?}");
    assert!(matches!(ec2.look_volume(&Call::default(), &nobody()).await, LookResult::Unknown(_)));
}

#[tokio::test]
async fn missing_permission_names_action_and_is_not_retried() {
    let world = World::new().await;
    world.fault(json!({
        "match": { "action": "CreateVolume" },
        "fault": { "kind": "error", "code": "UnauthorizedOperation", "status": 403,
                   "message": "You are not authorized to perform this operation. Encoded authorization failure message: abc" },
    }));
    let error = world.ec2.create_volume(&Call::default(), &small("a")).await.unwrap_err();
    assert_eq!((error.kind, error.sent), (Ec2ErrorKind::Unauthorized, Sent::Answered));
    let text = error.to_string();
    assert!(
        text.contains("ec2:CreateVolume") && text.contains("IAM") && !text.contains("abc"),
        "{text}"
    );
    assert_eq!(world.calls("CreateVolume"), 1);
}

/// EC2 answers 200 and lists the failed zones in the body.
#[tokio::test]
async fn fast_restore_failure_inside_success_is_error() {
    let world = World::new().await;
    let volume = world.volume("a").await;
    let snapshot =
        world.ec2.create_snapshot(&Call::default(), &snapshot_of(&volume.id, "s")).await.unwrap();
    world.fault(json!({
        "match": { "action": "EnableFastSnapshotRestores" },
        "fault": { "kind": "unsuccessful", "code": "SnapshotLimitExceeded", "message": "no more" },
    }));
    let zones = ["us-east-1a".to_owned()];
    let error = world
        .ec2
        .enable_fast_snapshot_restores(&Call::default(), &snapshot.id, &zones)
        .await
        .unwrap_err();
    assert_eq!(error.kind, Ec2ErrorKind::SnapshotQuota);
    assert!(error.message.contains("us-east-1a"), "{error}");
}

#[tokio::test]
async fn non_url_endpoint_is_refused_by_name() {
    let settings = Ec2Settings {
        region: Some("us-east-1".to_owned()),
        ec2_endpoint: Some("ec2.example".to_owned()),
        profile_files: false,
        ..Ec2Settings::default()
    };
    let error = ebs_csi_ec2::Ec2::connect(settings, Surroundings::default()).await.unwrap_err();
    assert!(matches!(&error, StartError::Endpoint(given) if given == "ec2.example"));
    assert!(error.to_string().contains("AWS_EC2_ENDPOINT"));
}
