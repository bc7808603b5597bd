//! A world for one test: started where possible, and verified to be clean after the test.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use ebs_csi_sandbox::binaries::{OF_WORLD, for_test};
use ebs_csi_sandbox::co::{Attachment, Claim, RetryPolicy, Volume};
use ebs_csi_sandbox::tool_at_work::{self, ToolAtWork};
use ebs_csi_sandbox::{Co, Kubelet, Simulator, World, WorldOptions};
use serde_json::Value;

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

    /// Runs the launcher in mode `all`, with further `flags`, in place of the controller and of the
    /// first node's processes.
    pub async fn start_all(&mut self, flags: &[&str]) {
        let started = self.world.start_all(0, flags).await;
        self.must("mode all", async { started }).await;
        self.co = self.world.co().expect("the launcher's socket");
        self.kubelets[0] = self.world.kubelet(0).expect("the launcher's socket");
        // The node-agent and the helper may become ready later than the controller.
        self.must("NodeGetInfo", self.kubelets[0].info()).await;
    }

    /// Returns EC2's own view, and the driver's requests to it.
    pub fn ec2(&self) -> &Simulator {
        &self.world.simulator
    }

    /// Stops the tool that works on a disk of the first node.
    pub async fn catch_tool(&self) -> ToolAtWork {
        let caught = tool_at_work::catch(&self.world.nodes[0]).await;
        caught.unwrap_or_else(|| panic!("no tool was seen in 20 s\n{}", self.logs()))
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

    /// Stages a volume on the first node and publishes it to a pod. Returns the target path.
    pub async fn published(&self, volume: &Volume, on: &Attachment, pod: &str) -> PathBuf {
        let kubelet = &self.kubelets[0];
        self.must("stage", kubelet.stage(volume, on)).await;
        self.must("publish", kubelet.publish(volume, on, pod, false)).await
    }

    /// Unpublishes a volume from these pods on the first node, unstages, detaches and deletes it.
    pub async fn discard(&self, volume: &Volume, pods: &[&str]) {
        for pod in pods {
            self.must("unpublish", self.kubelets[0].unpublish(volume, pod)).await;
        }
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

    /// Verifies that no rule of EC2 was broken, that no object is left in EC2, and that nothing is
    /// mounted. Then ends the world.
    pub async fn finish(self) {
        let leaked = self.world.leaked().await.expect("the simulator answers");
        assert!(leaked.is_empty(), "{}\n{}", leaked.join("\n"), self.logs());
        self.end().await;
    }

    /// Ends the world and verifies that it left nothing on the machine.
    pub async fn end(self) {
        let ended = self.world.shutdown().await.expect("the world ends");
        assert!(ended.leftovers.is_empty(), "left behind: {:?}", ended.leftovers);
        assert!(ended.killed.is_empty(), "did not end by SIGTERM: {:?}", ended.killed);
    }
}
