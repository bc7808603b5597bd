//! The EC2 layer and the simulator in one thread, under virtual time: what a seed decides once, it decides again.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_async::time::{SharedTimeSource, TimeSource};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use ebs_csi_controller::ec2::{
    AttachmentState, CreateVolume, Ec2, Ec2Error, Force, Seen, Settings, Surroundings, Tags,
    VolumeState,
};
use ebs_csi_proto::GiB;
use ebs_csi_wire::{DeviceName, InstanceId};
use ec2_sim::delivery::Delivery;
use ec2_sim::devices::NoDevices;
use ec2_sim::time::Millis;
use ec2_sim::{Reply, Request, Scenario, Sim};
use serde_json::json;
use tokio::time::Instant;

/// 2026-01-01T00:00:00Z.
const BEGIN: i64 = 1_767_225_600_000;

/// Virtual time as a wall clock.
#[derive(Clone, Copy, Debug)]
struct Clock(Instant);

impl Clock {
    fn millis(self) -> Millis {
        Millis(BEGIN + i64::try_from(self.0.elapsed().as_millis()).unwrap())
    }
}

impl TimeSource for Clock {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(BEGIN.unsigned_abs()) + self.0.elapsed()
    }
}

/// Carries requests to the simulator without a socket, and writes down what passed.
#[derive(Clone)]
struct InProcess {
    sim: Arc<Mutex<Sim>>,
    clock: Clock,
    passed: Arc<Mutex<Vec<String>>>,
}

impl std::fmt::Debug for InProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InProcess")
    }
}

impl HttpClient for InProcess {
    fn http_connector(
        &self,
        _: &HttpConnectorSettings,
        _: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for InProcess {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let form = request.body().bytes().unwrap_or_default().to_vec();
        let now = self.clock.millis();
        let reply = self.sim.lock().unwrap().handle(
            now,
            &Request {
                form: form.clone(),
                authorization: request.headers().get("authorization").map(str::to_owned),
                ..Request::default()
            },
        );
        let line = format!(
            "{} {} {} {:?}",
            now.0 - BEGIN,
            String::from_utf8_lossy(&form),
            reply.status,
            reply.delivery
        );
        self.passed.lock().unwrap().push(line);
        HttpConnectorFuture::new(deliver(reply))
    }
}

async fn deliver(reply: Reply) -> Result<HttpResponse, ConnectorError> {
    tokio::time::sleep(Duration::from_millis(reply.delay_ms)).await;
    let lost =
        || ConnectorError::io(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into());
    match reply.delivery {
        Delivery::Normal | Delivery::Slow { .. } => {}
        Delivery::Hang(how_long) => {
            tokio::time::sleep(how_long).await;
            return Err(lost());
        }
        Delivery::Close | Delivery::Reset | Delivery::Short => return Err(lost()),
    }
    let response = http::Response::builder()
        .status(reply.status)
        .header("x-amzn-requestid", reply.request_id)
        .body(SdkBody::from(reply.body))
        .expect("a response");
    Ok(HttpResponse::try_from(response).expect("a response"))
}

/// A volume's life, with whatever goes wrong on the way.
async fn life(ec2: Ec2, n: usize) -> Result<(), Ec2Error> {
    let node = InstanceId::parse("i-0aaaaaaaaaaaaaaa1").unwrap();
    let device = DeviceName::parse(&format!(
        "/dev/xvda{}",
        char::from(b'a' + u8::try_from(n % 26).unwrap())
    ))
    .unwrap();
    let volume = ec2
        .create_volume(&CreateVolume {
            client_token: format!("token-{n}"),
            size: GiB(1),
            kind: "gp3".to_owned(),
            zone: Some("us-east-1a".to_owned()),
            zone_id: None,
            outpost_arn: None,
            encrypted: false,
            kms_key_id: None,
            iops: None,
            throughput: None,
            snapshot: None,
            initialization_rate: None,
            multi_attach: false,
            tags: Tags::from([("CSIVolumeName".to_owned(), format!("pvc-{n}"))]),
        })
        .await?;
    let far = Instant::now() + Duration::from_secs(600);
    ec2.watch_volume(&volume.id, far, |seen| match seen {
        Seen::Present(v) if v.state == VolumeState::Available => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
    .await;
    ec2.attach_volume(&volume.id, &node, &device, None).await?;
    ec2.watch_volume(&volume.id, far, |seen| {
        match seen.present().and_then(|v| v.attachment(&node)) {
            Some(a) if a.state == AttachmentState::Attached => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    })
    .await;
    ec2.detach_volume(&volume.id, &node, Force::No).await?;
    ec2.watch_volume(&volume.id, far, |seen| match seen.present() {
        Some(v) if v.attachments.is_empty() => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
    .await;
    ec2.delete_volume(&volume.id).await
}

/// Everything that passed between the driver and EC2, and how each life ended.
fn history(seed: u64) -> (Vec<String>, Vec<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let clock = Clock(Instant::now());
        let scenario: Scenario = {
            let mut whole = serde_json::to_value(Scenario::default()).unwrap();
            whole["seed"] = json!(seed);
            whole["profile"] = json!("real");
            whole["faults"] = json!([
                { "match": { "action": "DescribeVolumes" }, "probability": 0.05,
                  "fault": { "kind": "error", "code": "InternalError", "status": 500 } },
                { "match": { "action": "*" }, "probability": 0.03, "fault": { "kind": "throttle" } },
                { "match": { "action": "*" }, "probability": 0.03,
                  "fault": { "kind": "lose_reply", "how": "close", "effect": true } },
            ]);
            serde_json::from_value(whole).unwrap()
        };
        let devices = Box::new(NoDevices::new(tempfile::tempdir().unwrap().path()).unwrap());
        let sim = Sim::new(&scenario, devices, None, clock.millis()).unwrap();
        let passed = Arc::new(Mutex::new(Vec::new()));
        let connector = InProcess { sim: Arc::new(Mutex::new(sim)), clock, passed: Arc::clone(&passed) };
        let credentials = Credentials::builder()
            .access_key_id("AKIATEST")
            .secret_access_key("secret")
            .provider_name("test")
            .build();
        let settings = Settings {
            region: Some("us-east-1".to_owned()),
            ec2_endpoint: Some("http://ec2.test".to_owned()),
            profile_files: false,
            seed,
            ..Settings::default()
        };
        let surroundings = Surroundings {
            http: Some(SharedHttpClient::new(connector)),
            credentials: Some(SharedCredentialsProvider::new(credentials)),
            clock: SharedTimeSource::new(clock),
            ..Surroundings::default()
        };
        let ec2 = Ec2::connect(settings, surroundings).await.unwrap();
        let lives: Vec<_> = (0..20).map(|n| tokio::spawn(life(ec2.by(Instant::now() + Duration::from_secs(900)), n))).collect();
        let mut ends = Vec::new();
        for life in lives {
            ends.push(match life.await.unwrap() {
                Ok(()) => "ok".to_owned(),
                Err(error) => format!("{:?}", error.kind),
            });
        }
        let passed = passed.lock().unwrap().clone();
        (passed, ends)
    })
}

#[test]
fn a_seed_replays_its_history_exactly() {
    for seed in [1, 2] {
        let (first, second) = (history(seed), history(seed));
        assert!(
            first.0.len() > 80 && first.1.iter().any(|end| end == "ok"),
            "{:?}",
            first.1
        );
        for (n, (a, b)) in first.0.iter().zip(&second.0).enumerate() {
            assert_eq!(a, b, "seed {seed}, request {n}");
        }
        assert_eq!(first, second);
    }
    assert_ne!(history(1).0, history(2).0);
}
