//! The source and renewal of the controller's credentials, the endpoint and names of its requests,
//! and its messages when AWS does not accept its identity.

mod program;
mod scripted;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ebs_csi_proto::csi;
use ebs_csi_proto::csi::controller_client::ControllerClient;
use program::{Controller, KEYS, probe};
use scripted::{RecordedRequest, ScriptedResponse, Server, aws, certificate, keys};
use tonic::transport::Channel;

/// Makes an RPC that is one call to EC2.
async fn list(channel: &Channel) -> Result<(), tonic::Status> {
    let mut client = ControllerClient::new(channel.clone());
    client.list_snapshots(csi::ListSnapshotsRequest::default()).await.map(drop)
}

const ROLE: &str = "arn:aws:iam::444455556666:role/ebs";

/// Starts a controller that assumes the role with the first version of a web identity token.
/// Returns also the directory of the token.
fn with_token(server: &Server, flags: &[&str]) -> (Controller, tempfile::TempDir) {
    let volume = tempfile::tempdir().expect("a directory");
    rotate(volume.path(), "..1", "one1");
    let file = volume.path().join("token");
    let file = file.to_str().expect("text");
    let environment = [("AWS_WEB_IDENTITY_TOKEN_FILE", file), ("AWS_ROLE_ARN", ROLE)];
    (Controller::with(server.address(), false, flags, &environment), volume)
}

/// Repeats the RPC until a request signed with this key reaches EC2.
async fn wait_until_signed_with(server: &Server, channel: &Channel, key: &str) {
    let signed_with_key = |request: &RecordedRequest| request.key().as_deref() == Some(key);
    let start = Instant::now();
    while !server.requests_of("DescribeSnapshots").iter().any(signed_with_key) {
        assert!(start.elapsed() < Duration::from_secs(20), "EC2 was never called with {key}");
        tokio::time::sleep(Duration::from_millis(50)).await;
        list(channel).await.expect("EC2 answers");
    }
}

/// Rotates the token as kubelet does: the file is a symbolic link through `..data`, which a rename
/// replaces.
fn rotate(volume: &Path, version: &str, token: &str) {
    let data = volume.join(version);
    std::fs::create_dir(&data).expect("a directory");
    std::fs::write(data.join("token"), token).expect("a token");
    let link = volume.join("..tmp");
    std::os::unix::fs::symlink(version, &link).expect("a link");
    std::fs::rename(&link, volume.join("..data")).expect("in its place");
    let file = volume.join("token");
    if !file.exists() {
        std::os::unix::fs::symlink("..data/token", &file).expect("a link");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotated_web_identity_token_is_read_again() {
    // Sessions of 61 seconds are renewed after one second.
    let server = Server::start(|request| aws(request, 61)).await;
    let (controller, volume) = with_token(&server, &["--v=5"]);
    let channel = controller.channel().await;
    assert!(probe(&channel).await.expect("ready"));
    wait_until_signed_with(&server, &channel, "ASIAone1").await;
    rotate(volume.path(), "..2", "two2");
    wait_until_signed_with(&server, &channel, "ASIAtwo2").await;
    let sessions = server.requests_of("AssumeRoleWithWebIdentity");
    assert!(sessions.iter().all(|request| request.parameter("RoleArn").as_deref() == Some(ROLE)));
    let (_, log) = controller.stop();
    for word in ["444455556666", "assumed-role/ebs", "web identity token"] {
        assert!(log.contains(word), "{word}\n{log}");
    }
    for secret in ["do-not-print-me", "one1", "two2"] {
        assert!(!log.contains(secret), "{secret}\n{log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_session_is_renewed_within_call() {
    let refused = Arc::new(AtomicU32::new(0));
    let script = {
        let refused = Arc::clone(&refused);
        move |request: &RecordedRequest| {
            let first = request.key().as_deref() == Some("ASIAone1");
            if request.is_of("DescribeSnapshots") && first {
                refused.fetch_add(1, Ordering::Relaxed);
                return ScriptedResponse::ec2_error(400, "RequestExpired");
            }
            aws(request, 3600)
        }
    };
    let server = Server::start(script).await;
    let (controller, volume) = with_token(&server, &[]);
    let channel = controller.channel().await;
    assert!(probe(&channel).await.expect("ready"));
    rotate(volume.path(), "..2", "two2");
    // The current credentials are new; after a second the controller may request others.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    list(&channel).await.expect("renewed and made again");
    assert_eq!(refused.load(Ordering::Relaxed), 1);
    assert_eq!(server.requests_of("AssumeRoleWithWebIdentity").len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn container_credentials_use_token_from_file() {
    let server = Server::start(|request| match request.uri.as_str() {
        "/v1/credentials" if request.header("authorization") == Some("pod-token") => {
            keys("pod", 3600)
        }
        "/v1/credentials" => ScriptedResponse::ec2_error(401, "no"),
        _ => aws(request, 3600),
    })
    .await;
    let volume = tempfile::tempdir().expect("a directory");
    let file = volume.path().join("token");
    std::fs::write(&file, "pod-token").expect("a token");
    let uri = format!("{}/v1/credentials", server.address());
    let environment = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", uri.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file.to_str().expect("text")),
    ];
    let controller = Controller::with(server.address(), false, &[], &environment);
    let channel = controller.channel().await;
    assert!(probe(&channel).await.expect("ready"));
    wait_until_signed_with(&server, &channel, "ASIApod").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instance_metadata_credentials_are_last_resort() {
    let metadata = || {
        Server::start(|request| match request.uri.as_str() {
            "/latest/api/token" => ScriptedResponse {
                headers: vec![("x-aws-ec2-metadata-token-ttl-seconds", "21600".to_owned())],
                ..ScriptedResponse::ok("session")
            },
            uri if uri.ends_with("/node-role") => keys("node", 3600),
            uri if uri.contains("security-credentials") => ScriptedResponse::ok("node-role"),
            _ => ScriptedResponse::ec2_error(404, "no"),
        })
    };
    let server = Server::start(|request| aws(request, 3600)).await;
    let (used, unused) = (metadata().await, metadata().await);
    let environment = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", used.address())];
    let controller = Controller::with(server.address(), false, &[], &environment);
    wait_until_signed_with(&server, &controller.channel().await, "ASIAnode").await;
    let environment = [KEYS[0], KEYS[1], ("AWS_EC2_METADATA_SERVICE_ENDPOINT", unused.address())];
    let controller = Controller::with(server.address(), false, &[], &environment);
    wait_until_signed_with(&server, &controller.channel().await, "AKIATEST").await;
    assert!(unused.requests().is_empty(), "{:?}", unused.requests());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn profile_assumes_role_of_another_account() {
    let server = Server::start(|request| aws(request, 3600)).await;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("config");
    std::fs::write(
        &file,
        "[profile other]\nrole_arn = arn:aws:iam::444455556666:role/ebs\nexternal_id = x1\nsource_profile = base\n[profile base]\naws_access_key_id = AKIABASE\naws_secret_access_key = do-not-print-me\n",
    )
    .expect("a file");
    let environment = [("AWS_CONFIG_FILE", file.to_str().expect("text")), ("AWS_PROFILE", "other")];
    let controller = Controller::with(server.address(), false, &[], &environment);
    wait_until_signed_with(&server, &controller.channel().await, "ASIAassumed").await;
    let assumed = &server.requests_of("AssumeRole")[0];
    assert_eq!(assumed.key().as_deref(), Some("AKIABASE"));
    assert_eq!(assumed.parameter("ExternalId").as_deref(), Some("x1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_request_user_agent_names_driver_version() {
    let server = Server::start(|request| aws(request, 3600)).await;
    let controller = Controller::start(server.address(), false, &["--user-agent-extra=helm"]);
    assert!(probe(&controller.channel().await).await.expect("ready"));
    let name = format!("exec-env/aws-ebs-csi-driver-v{}-helm", env!("CARGO_PKG_VERSION"));
    let start = Instant::now();
    while server.requests_of("GetCallerIdentity").is_empty() {
        assert!(start.elapsed() < Duration::from_secs(20), "STS was not called");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for request in server.requests() {
        let agent = request.header("user-agent").expect("a user agent");
        assert!(agent.split(' ').any(|word| word == name), "{agent}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_follow_region_and_fips_setting() {
    for (region, fips, host) in [
        ("us-east-1", "false", "ec2.us-east-1.amazonaws.com:443"),
        ("us-east-1", "true", "ec2-fips.us-east-1.amazonaws.com:443"),
        // The node's label applies where nothing else names a Region.
        ("", "false", "ec2.eu-west-1.amazonaws.com:443"),
    ] {
        let proxy = Server::start(|_| ScriptedResponse::ec2_error(502, "no")).await;
        let environment = [
            KEYS[0],
            KEYS[1],
            ("AWS_REGION", region),
            ("NODE_REGION", "eu-west-1"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
            ("AWS_USE_FIPS_ENDPOINT", fips),
            ("HTTPS_PROXY", proxy.address()),
        ];
        let controller = Controller::with("", false, &[], &environment);
        let refused = probe(&controller.channel().await).await.expect_err("no AWS here");
        let requests = proxy.requests();
        assert!(
            requests.iter().any(|request| request.method == "CONNECT" && request.uri == host),
            "{region} {fips}: {requests:?}"
        );
        // The message names the host to which the request was sent.
        assert!(refused.message().contains(host.trim_end_matches(":443")), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_outside_aws_ca_bundle_is_not_trusted() {
    for (bundle, trusted) in [("one.crt", true), ("two.crt", false)] {
        let server = Server::behind_a_proxy("one", |request| aws(request, 3600)).await;
        // The controller's user may have no access to the checkout.
        let directory = tempfile::tempdir().expect("a directory");
        let copy = directory.path().join(bundle);
        std::fs::copy(certificate(bundle), &copy).expect("a copy");
        let bundle = copy.to_str().expect("text");
        let environment = [
            KEYS[0],
            KEYS[1],
            ("AWS_ENDPOINT_URL", "https://one.test"),
            ("HTTPS_PROXY", server.address()),
            ("AWS_CA_BUNDLE", bundle),
        ];
        let controller = Controller::with("", false, &[], &environment);
        let answer = probe(&controller.channel().await).await;
        assert_eq!(answer.is_ok_and(|ready| ready), trusted, "{bundle}");
        assert_eq!(!server.requests().is_empty(), trusted, "{bundle}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_refusal_names_cause_and_next_step() {
    for (status, code, words) in [
        (400, "RequestExpired", &["minutes ahead of AWS's", "NTP"][..]),
        (401, "AuthFailure", &["access key"]),
        (403, "SignatureDoesNotMatch", &["secret access key belongs"]),
        (403, "UnauthorizedOperation", &["ec2:DescribeAvailabilityZones", "IAM"]),
    ] {
        let script = move |request: &RecordedRequest| match code {
            _ if !request.is_of("DescribeAvailabilityZones") => aws(request, 3600),
            "RequestExpired" => ScriptedResponse {
                headers: vec![("date", "Sun, 09 Sep 2001 01:46:40 GMT".to_owned())],
                ..ScriptedResponse::ec2_error(status, code)
            },
            _ => ScriptedResponse::ec2_error(status, code),
        };
        let server = Server::start(script).await;
        let controller = Controller::start(server.address(), false, &[]);
        let refused = probe(&controller.channel().await).await.expect_err(code);
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition, "{refused}");
        for word in [code, "request-2"].iter().chain(words) {
            assert!(refused.message().contains(word), "{code}: {word}: {refused}");
        }
        assert!(!refused.message().contains("do-not-print-me"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn untrusted_role_is_named_with_sts_reason() {
    let server = Server::start(|request| match request.is_of("AssumeRoleWithWebIdentity") {
        true => ScriptedResponse {
            status: 403,
            headers: Vec::new(),
            body: "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>Not authorized to perform sts:AssumeRoleWithWebIdentity</Message></Error><RequestId>request-3</RequestId></ErrorResponse>".to_owned(),
        },
        false => aws(request, 3600),
    })
    .await;
    let (controller, _volume) = with_token(&server, &[]);
    let refused = probe(&controller.channel().await).await.expect_err("not trusted");
    for word in ["web identity token", "role/ebs", "AccessDenied", "Not authorized to perform"] {
        assert!(refused.message().contains(word), "{word}: {refused}");
    }
}
