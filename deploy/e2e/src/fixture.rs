//! A world for one test: started where possible, and verified to be clean after the test.

use std::future::Future;
use std::time::Duration;

use ebs_csi_sandbox::binaries::{OF_WORLD, for_test};
use ebs_csi_sandbox::co::{Attachment, Claim, Published, RetryPolicy, Volume};
use ebs_csi_sandbox::{Co, Kubelet, World, WorldOptions};
use serde_json::{Value, json};

use crate::Requests;

/// EC2's latencies: short, but never zero, so that every intermediate state can be observed.
const SCENARIO: &str = "\
profile = \"fast\"
[latency]
api_read = { fixed_ms = 2 }
api_write = { fixed_ms = 2 }
volume_create = { fixed_ms = 60 }
volume_create_from_snapshot = { fixed_ms = 60 }
volume_copy = { fixed_ms = 60 }
attach = { fixed_ms = 60 }
detach = { fixed_ms = 60 }
modify = { fixed_ms = 60 }
modify_complete = { fixed_ms = 60 }
snapshot = { fixed_ms = 100 }
";

/// A running world with its sidecars and kubelets.
#[derive(Debug)]
pub struct Fixture {
    /// Simulator, controller and nodes.
    pub world: World,
    /// The sidecars.
    pub co: Co,
    /// One kubelet for each node.
    pub kubelets: Vec<Kubelet>,
}

/// Returns a sidecar's retry policy without its long waits.
fn without_long_waits(policy: RetryPolicy) -> RetryPolicy {
    RetryPolicy {
        initial_backoff: Duration::from_millis(50),
        max_backoff: Duration::from_millis(500),
        max_elapsed: Duration::from_secs(60),
        ..policy
    }
}

impl Fixture {
    /// Starts a world. Prints the reason and returns `None` where no world can run.
    pub async fn start() -> Option<Self> {
        Self::with(|_| {}).await
    }

    /// Starts a world with the options that `adjust` has changed.
    pub async fn with(adjust: impl FnOnce(&mut WorldOptions)) -> Option<Self> {
        let mut options = WorldOptions::new(for_test(&OF_WORLD)?);
        options.scenario = SCENARIO.to_owned();
        adjust(&mut options);
        let world = World::start(options).await;
        let world = world.unwrap_or_else(|e| panic!("the world did not start: {e}"));
        let mut co = world.co().expect("the controller's socket");
        co.provisioner = without_long_waits(co.provisioner);
        co.attacher = without_long_waits(co.attacher);
        let kubelets = (0..world.nodes.len())
            .map(|node| {
                let mut kubelet = world.kubelet(node).expect("a node's socket");
                kubelet.retry_policy = without_long_waits(kubelet.retry_policy);
                kubelet
            })
            .collect();
        Some(Self { world, co, kubelets })
    }

    /// Returns the driver's requests to EC2.
    pub fn requests(&self) -> Requests<'_> {
        Requests::new(&self.world.simulator)
    }

    /// Returns the instance of node `index`.
    pub fn instance(&self, index: usize) -> String {
        self.world.nodes[index].instance.clone()
    }

    /// Returns the instances of all nodes.
    pub fn instances(&self) -> Vec<String> {
        self.world.options().nodes.iter().map(|node| node.instance.clone()).collect()
    }

    /// Changes EC2's latencies.
    pub async fn latency(&self, change: Value) {
        let changed = self.world.simulator.put("/v1/latency", &change).await;
        changed.expect("the simulator takes other latencies");
    }

    /// Awaits `work`. Panics with `what`, the failure and the end of every log when `work` fails.
    pub async fn must<T, E: std::fmt::Display>(
        &self,
        what: &str,
        work: impl Future<Output = Result<T, E>>,
    ) -> T {
        match work.await {
            Ok(value) => value,
            Err(e) => panic!("{what}: {e}\n{}", self.logs()),
        }
    }

    /// Creates a volume and attaches it to the first node.
    pub async fn attached(&self, claim: &Claim) -> (Volume, Attachment) {
        let volume = self.must("create", self.co.create(claim)).await;
        let attachment = self.must("attach", self.co.attach(&volume, &self.instance(0))).await;
        (volume, attachment)
    }

    /// Stages a volume on the first node and publishes it to a pod.
    pub async fn published(&self, volume: &Volume, on: &Attachment, pod: &str) -> Published {
        let kubelet = &self.kubelets[0];
        self.must("stage", kubelet.stage(volume, on)).await;
        self.must("publish", kubelet.publish(volume, on, pod, false)).await
    }

    /// Unstages a volume that is no longer used from the first node, detaches and deletes it.
    pub async fn discard(&self, volume: &Volume) {
        self.must("unstage", self.kubelets[0].unstage(volume)).await;
        self.remove(volume).await;
    }

    /// Detaches an unstaged volume from the first node and deletes it.
    pub async fn remove(&self, volume: &Volume) {
        self.must("detach", self.co.detach(&volume.id, &self.instance(0))).await;
        self.must("delete", self.co.delete(&volume.id)).await;
    }

    /// Returns the end of every log.
    pub fn logs(&self) -> String {
        let logs = self.world.logs(25).into_iter();
        logs.map(|(name, text)| format!("--- {name}\n{text}\n")).collect()
    }

    /// Returns the violations that the simulator found, and the objects in EC2 other than root
    /// volumes.
    pub async fn invariants(&self) -> Value {
        self.world.simulator.get("/v1/invariants").await.expect("the simulator answers")
    }

    /// Verifies that no rule of EC2 was broken, that no object is left in EC2, and that nothing is
    /// mounted. Then ends the world.
    pub async fn finish(self) {
        let found = self.invariants().await;
        assert_eq!(found["violations"], json!([]), "{found:#}");
        assert_eq!(found["duplicates"], json!([]), "{found:#}");
        for kind in ["volumes", "snapshots", "attachments"] {
            assert!(empty(&found["live"][kind]), "{kind} were leaked: {found:#}\n{}", self.logs());
        }
        assert!(empty(&found["loops"]), "loop devices were leaked: {found:#}");
        for node in &self.world.nodes {
            let mounted = mounted_beneath(&node.kubelet_root);
            assert!(mounted.is_empty(), "still mounted: {mounted:?}");
        }
        self.end().await;
    }

    /// Ends the world and verifies that it left nothing on the machine.
    pub async fn end(self) {
        let ended = self.world.shutdown().await.expect("the world ends");
        assert!(ended.leftovers.is_empty(), "left behind: {:?}", ended.leftovers);
        assert!(ended.killed.is_empty(), "did not end by SIGTERM: {:?}", ended.killed);
    }
}

fn empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(empty),
        Value::Number(number) => number.as_u64() == Some(0),
        _ => value.is_null(),
    }
}

/// Returns the mount points strictly beneath `directory` in this process's namespace.
pub fn mounted_beneath(directory: &std::path::Path) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    let prefix = format!("{}/", directory.display());
    table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .filter(|point| point.starts_with(&prefix))
        .map(str::to_owned)
        .collect()
}
