//! A simulated EC2 and a controller's access to it.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod in_process;

use ebs_csi_ec2::{
    Call, CreateVolume, DatedLook, Ec2, Ec2Settings, Surroundings, Tags, Volume, VolumeState,
    WatchedChange,
};
use ebs_csi_proto::GiB;
use ec2_sim::{ControlClient, Scenario, Server, ServerOptions};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use tokio::time::Instant;

/// Returns the first object with the members of the second in place of its own.
pub(crate) fn merged(mut object: Value, members: Value) -> Value {
    if let (Value::Object(object), Value::Object(members)) = (&mut object, members) {
        object.extend(members);
    }
    object
}

/// An instance of the built-in scenario, in zone a.
pub(crate) const NODE_A: &str = "i-0aaaaaaaaaaaaaaa1";

/// A running simulator with an access to it; the simulator ends when the value is dropped.
pub(crate) struct World {
    pub(crate) ec2: Ec2,
    pub(crate) server: Server,
    pub(crate) control: ControlClient,
    // The simulator's own threads, so that the test's runtime runs the driver alone.
    runtime: Option<tokio::runtime::Runtime>,
    _dir: tempfile::TempDir,
}

/// Returns a token that no earlier test has used.
pub(crate) fn token() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("token-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn small(name: &str) -> CreateVolume {
    CreateVolume {
        client_token: token(),
        size: GiB(4),
        kind: "gp3".to_owned(),
        zone: Some("us-east-1a".to_owned()),
        encrypted: Some(false),
        tags: Tags::from([("CSIVolumeName".to_owned(), name.to_owned())]),
        ..CreateVolume::default()
    }
}

/// Returns access to EC2 at an endpoint, with arbitrary keys.
pub(crate) async fn access(endpoint: &str, settings: Ec2Settings) -> Ec2 {
    access_within(endpoint, settings, Surroundings::default()).await
}

/// Like [`access`], with other surroundings.
async fn access_within(endpoint: &str, settings: Ec2Settings, surroundings: Surroundings) -> Ec2 {
    let credentials = Credentials::new("AKIATEST", "secret", None, None, "test");
    let settings = Ec2Settings {
        region: Some("us-east-1".to_owned()),
        ec2_endpoint: Some(endpoint.to_owned()),
        sts_endpoint: Some(endpoint.to_owned()),
        profile_files: false,
        ..settings
    };
    let surroundings = Surroundings {
        credentials: Some(SharedCredentialsProvider::new(credentials)),
        ..surroundings
    };
    Ec2::connect(settings, surroundings).await.expect("the client is built without a call")
}

/// Returns the built-in scenario with these members in place of its own.
fn scenario(members: Value) -> Scenario {
    let default = serde_json::to_value(Scenario::default()).expect("a scenario is data");
    serde_json::from_value(merged(default, members)).expect("a scenario")
}

impl World {
    /// Starts the built-in scenario, in which everything is fast.
    pub(crate) async fn new() -> Self {
        Self::with(json!({ "profile": "instant" }), Ec2Settings::default()).await
    }

    pub(crate) async fn with(members: Value, settings: Ec2Settings) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let starting = Server::start(ServerOptions {
            state_dir: dir.path().join("sim"),
            scenario: scenario(members),
            devices: ec2_sim::DeviceMode::None,
            listen: ([127, 0, 0, 1], 0).into(),
        });
        let server =
            runtime.spawn(starting).await.expect("no panic").expect("the simulator starts");
        let control = ControlClient::new(server.control());
        let ec2 = access(&server.ec2(), settings).await;
        Self { ec2, server, control, runtime: Some(runtime), _dir: dir }
    }

    pub(crate) fn fault(&self, rule: Value) {
        self.post("/v1/faults", &rule);
    }

    /// Makes EC2 answer the next request of an action with this fault.
    pub(crate) fn fault_once(&self, action: &str, fault: &Value) {
        self.fault(json!({ "match": { "action": action }, "count": 1, "fault": fault }));
    }

    /// Makes EC2 answer every request of an action with this error.
    pub(crate) fn refuse(&self, action: &str, code: &str, status: u16) {
        let fault = json!({ "kind": "error", "code": code, "status": status });
        self.fault(json!({ "match": { "action": action }, "fault": fault }));
    }

    /// Makes EC2 answer every request of an action as IAM does without the permission.
    pub(crate) fn deny(&self, action: &str) {
        self.refuse(action, "UnauthorizedOperation", 403);
    }

    pub(crate) fn clear_faults(&self) {
        self.command(|control| control.delete("/v1/faults"));
    }

    /// Returns how many requests of an action reached EC2.
    pub(crate) fn calls(&self, action: &str) -> u64 {
        self.get("/v1/statistics")["actions"][action]["calls"].as_u64().unwrap_or(0)
    }

    /// Returns the parameters of each request of an action that reached EC2.
    pub(crate) fn requests(&self, action: &str) -> Vec<Value> {
        let journal = self.get(&format!("/v1/journal?limit=10000&action={action}"));
        let records = journal["records"].as_array().expect("a list").iter();
        records.map(|record| record["parameters"].clone()).collect()
    }

    pub(crate) fn volumes(&self) -> Vec<Value> {
        let state = self.get("/v1/state");
        state["realms"][0]["volumes"].as_array().expect("a list").clone()
    }

    /// Gets a resource of the simulator's control socket; the call blocks.
    pub(crate) fn get(&self, path: &str) -> Value {
        self.command(|control| control.get(path))
    }

    /// Posts to the simulator's control socket; the call blocks.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        self.command(|control| control.post(path, body))
    }

    /// Turns an instance off or on at once: `stop`, `start`, `hibernate` or `terminate`.
    pub(crate) fn power(&self, instance: &str, what: &str) {
        self.post(&format!("/v1/instances/{instance}/{what}"), &json!({ "at_once": true }));
    }

    /// Sets the state of a volume, whatever EC2's rules are.
    pub(crate) fn force(&self, volume: &str, state: &Value) {
        self.post(&format!("/v1/volumes/{volume}/force"), state);
    }

    /// Makes a call to EC2 as another user of the account. Returns the body of the answer.
    pub(crate) fn as_foreign(&self, action: &str, parameters: &Value) -> String {
        let call = json!({ "action": action, "parameters": parameters });
        let answer = self.post("/v1/as-foreign", &call);
        assert_eq!(answer["status"], 200, "{answer}");
        answer["body"].as_str().expect("text").to_owned()
    }

    /// Sends a command to the simulator's control socket; the call blocks.
    pub(crate) fn command(
        &self,
        send: impl FnOnce(&ControlClient) -> std::io::Result<Value>,
    ) -> Value {
        send(&self.control).expect("the simulator answers its control socket")
    }

    /// Creates a volume and waits until it is available.
    pub(crate) async fn volume(&self, name: &str) -> Volume {
        let created =
            self.ec2.create_volume(&Call::default(), &small(name)).await.expect("a volume");
        self.ec2
            .watch_volume(&Call::default(), &created.id, WatchedChange::Creation, soon(), available)
            .await
            .expect("the volume becomes available")
    }
}

/// Returns the volume once it is available.
pub(crate) fn available(look: &DatedLook<Volume>) -> Option<Volume> {
    look.result.present().filter(|volume| volume.state == VolumeState::Available).cloned()
}

impl Drop for World {
    fn drop(&mut self) {
        self.server.shutdown();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Returns a deadline that is long enough for anything here.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}
