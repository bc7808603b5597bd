//! A cluster in memory, the controller in mode `enforce`, simulated EC2, and node-lifecycle
//! connected to all three.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ebs_csi_policy::profile::NODE_LIFECYCLE;
use ebs_csi_sandbox::binaries::Binaries;
use ebs_csi_sandbox::co::safe_detach;
use ebs_csi_sandbox::{Process, World};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::api_server::{self, Store, kind};
use crate::error::{BenchError, Result};
use crate::world::{
    UNLIMITED, WITHOUT_QUOTA, calls_of, create_as_other_client, instance, without_nodes,
};

const TIMEOUT: Duration = Duration::from_secs(300);
const CHANGE_TIMEOUT: Duration = Duration::from_secs(120);
pub(super) const NAMESPACE: &str = "default";

#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) nodes: usize,
    pub(super) volumes_per_node: usize,
    pub(super) pods_without_volumes: usize,
    /// node-lifecycle's `--query-interval-seconds`.
    pub(super) query_seconds: usize,
}

pub(super) struct Testbed {
    pub(super) size: Size,
    pub(super) store: Arc<Store>,
    world: World,
    http: u16,
    server: JoinHandle<std::io::Result<()>>,
}

pub(super) fn node_name(index: usize) -> String {
    format!("ip-10-{}-{}-{}.ec2.internal", index >> 16, (index >> 8) & 255, index & 255)
}

/// Returns the handle of a node's volume that EC2 does not know yet.
fn handle(node: usize, volume: usize) -> String {
    format!("vol-0b{:015x}", node << 8 | volume)
}

pub(super) struct Names {
    pub(super) volume: String,
    pub(super) claim: String,
    pub(super) pod: String,
    pub(super) attachment: String,
}

pub(super) fn names(node: usize, volume: usize) -> Names {
    let number = node << 8 | volume;
    Names {
        volume: format!("pvc-00000000-0000-4000-8000-{number:012x}"),
        claim: format!("data-application-{node}-{volume}"),
        pod: format!("application-{node}-{volume}"),
        attachment: format!("csi-{number:064x}"),
    }
}

impl Testbed {
    /// Starts everything and waits until node-lifecycle is the leader and has listed all kinds.
    pub(super) async fn start(binaries: &Binaries, size: Size) -> Result<Self> {
        let store = Arc::new(Store::default());
        fill(&store, size);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let server = tokio::spawn(api_server::serve(listener, Arc::clone(&store)));
        let mut options = without_nodes(binaries, size.nodes, UNLIMITED);
        options.controller_arguments = vec![WITHOUT_QUOTA.to_owned()];
        let mut world = World::start(options).await?;
        let peer = NODE_LIFECYCLE.identity.uid;
        let (socket, flags) = safe_detach(world.controller_socket(), "enforce", peer);
        world.restart_controller(&flags).await?;
        let http = free_port()?;
        let flags = [
            format!("--http-endpoint=127.0.0.1:{http}"),
            format!("--query-interval-seconds={}", size.query_seconds),
            "--identity=bench".to_owned(),
            // This API server's watches ignore namespaces and labels: that of the node-agents' pods
            // would deliver every pod a second time.
            "--node-facts=off".to_owned(),
            "--drain-annotation=off".to_owned(),
        ];
        world.start_node_lifecycle(&socket, &format!("http://127.0.0.1:{port}"), &flags)?;
        let mut testbed = Self { size, store, world, http, server };
        testbed.settle().await?;
        Ok(testbed)
    }

    /// Makes node-lifecycle list everything again, as after an outage of the API server.
    pub(super) async fn relist(&mut self) -> Result<()> {
        self.store.expire();
        self.settle().await
    }

    async fn settle(&mut self) -> Result<()> {
        let begun = Instant::now();
        let kinds = [
            kind::NODES,
            kind::PODS,
            kind::PERSISTENT_VOLUMES,
            kind::VOLUME_ATTACHMENTS,
            kind::CSI_NODES,
        ];
        loop {
            let ended = self.world.ended_processes()?;
            if !ended.is_empty() {
                return Err(self.failure(&format!("{} ended", ended.join(", "))));
            }
            // A client watches a kind only after it has listed the kind completely.
            let watched = self.store.watched();
            let all = kinds.iter().all(|kind| watched.contains(*kind));
            if all && self.metric("aws_ebs_csi_safe_detach_failover_leader ").await? > 0.0 {
                return Ok(());
            }
            if begun.elapsed() > TIMEOUT {
                return Err(self.failure(&format!(
                    "node-lifecycle had not listed everything and taken the lead within {TIMEOUT:?}; it watches {watched:?}"
                )));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Returns the process id of node-lifecycle.
    pub(super) fn pid(&self) -> i32 {
        self.world.node_lifecycle().and_then(Process::pid).unwrap_or_default()
    }

    /// Returns the first sample on node-lifecycle's metrics page that begins with `sample`, or 0
    /// when there is none.
    pub(super) async fn metric(&self, sample: &str) -> Result<f64> {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.http)).await else {
            return Ok(0.0);
        };
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").await?;
        let mut page = String::new();
        stream.read_to_string(&mut page).await?;
        let found = page.lines().find(|line| line.starts_with(sample));
        let value = found.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        Ok(value.unwrap_or(0.0))
    }

    /// Waits until the controller has answered `more` further questions about suspects.
    pub(super) async fn answered(&self, more: f64) -> Result<()> {
        let sample = "aws_ebs_csi_safe_detach_failover_questions_total{result=\"answered\"}";
        let (before, begun) = (self.metric(sample).await?, Instant::now());
        while self.metric(sample).await? < before + more {
            if begun.elapsed() > TIMEOUT {
                return Err(self.failure("the controller did not answer node-lifecycle"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Returns the total number of Describe requests for evidence that reached EC2.
    pub(super) async fn describes(&self) -> Result<f64> {
        calls_of(&self.world, &["DescribeInstances", "DescribeVolumes"]).await
    }

    /// Creates the volumes of that node in EC2 and attaches them; the PersistentVolumes refer to
    /// them from then on.
    pub(super) async fn attach_in_ec2(&self, node: usize) -> Result<()> {
        for volume in 0..self.size.volumes_per_node {
            let id = create_as_other_client(&self.world, "1").await?;
            let device =
                format!("/dev/xvdb{}", char::from(b'a' + u8::try_from(volume % 26).unwrap_or(0)));
            let attach = json!({"VolumeId": id, "InstanceId": instance(node), "Device": device});
            self.world.simulator.call_as_other_client("AttachVolume", &attach).await?;
            self.store.edit(kind::PERSISTENT_VOLUMES, &names(node, volume).volume, |object| {
                object["spec"]["csi"]["volumeHandle"] = json!(id);
            });
        }
        Ok(())
    }

    /// Stops or starts an instance without delay.
    pub(super) async fn power(&self, node: usize, how: &str) -> Result<()> {
        let path = format!("/v1/instances/{}/{how}", instance(node));
        let at_once = json!({"at_once": true});
        self.world.simulator.post(&path, &at_once).await?;
        Ok(())
    }

    /// Sets the node's Ready condition and boot id, as kubelet or Kubernetes would.
    pub(super) fn ready(&self, node: usize, ready: bool, boot: Option<&str>) {
        self.store.edit(kind::NODES, &node_name(node), |object| {
            let conditions = object["status"]["conditions"].as_array_mut();
            for condition in conditions.into_iter().flatten() {
                if condition["type"] == "Ready" {
                    condition["status"] = json!(if ready { "True" } else { "Unknown" });
                }
            }
            if let Some(boot) = boot {
                object["status"]["nodeInfo"]["bootID"] = json!(boot);
            }
        });
    }

    pub(super) async fn end(self) -> Result<()> {
        self.world.shutdown().await?;
        self.server.abort();
        Ok(())
    }

    /// Returns an error of this text that also holds what node-lifecycle has written.
    pub(super) fn failure(&self, what: &str) -> BenchError {
        let log = self.world.node_lifecycle().map(|process| process.log_tail(usize::MAX));
        format!("{what}; node-lifecycle wrote:\n{}", log.unwrap_or_default()).into()
    }

    /// Waits until `done` holds for the Node object of each of these nodes. Returns the seconds
    /// since each node's own instant.
    pub(super) async fn wait_for_each(
        &self,
        mut waiting: Vec<(usize, Instant)>,
        pause: Duration,
        done: impl Fn(&Value) -> bool,
    ) -> Result<Vec<f64>> {
        let begun = Instant::now();
        let mut samples = Vec::new();
        while !waiting.is_empty() {
            let now = Instant::now();
            waiting.retain(|(node, since)| {
                let object = self.store.get(kind::NODES, &node_name(*node));
                let done = object.is_some_and(|object| done(&object));
                samples.extend(done.then(|| now.duration_since(*since).as_secs_f64()));
                !done
            });
            if begun.elapsed() > CHANGE_TIMEOUT {
                let left: Vec<usize> = waiting.iter().map(|(node, _)| *node).collect();
                let what = format!("nodes {left:?} did not change in {CHANGE_TIMEOUT:?}");
                return Err(self.failure(&what));
            }
            tokio::time::sleep(pause).await;
        }
        Ok(samples)
    }

    /// Checks that each of these nodes was patched, as often as it is listed, and that nothing else
    /// was changed since the last check.
    pub(super) fn expect_patches(&self, nodes: impl Iterator<Item = usize>) -> Result<()> {
        let mut changes = self.store.take_changes();
        let patch = |node| format!("PATCH {} {}", kind::NODES, node_name(node));
        let mut expected: Vec<String> = nodes.map(patch).collect();
        changes.sort();
        expected.sort();
        if changes == expected {
            return Ok(());
        }
        Err(self.failure(&format!(
            "these changes were expected: {expected:?}; these were made: {changes:?}"
        )))
    }
}

/// Returns whether a Node object carries node-lifecycle's taint.
pub(super) fn is_tainted(object: &Value) -> bool {
    let taints = object["spec"]["taints"].as_array();
    taints.into_iter().flatten().any(|taint| taint["value"] == "ebs-safe-detach")
}

fn free_port() -> std::io::Result<u16> {
    // The process binds the port a moment later.
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?.port())
}

fn fill(store: &Store, size: Size) {
    store.put(
        kind::CSI_DRIVERS,
        json!({"metadata": {"name": ebs_csi_proto::DRIVER_NAME, "annotations": {"ebs.csi.aws.com/safe-detach": "v1"}}, "spec": {}}),
    );
    let now = jiff::Timestamp::now();
    for node in 0..size.nodes {
        let name = node_name(node);
        store.put(kind::NODES, api_server::node(&name, &instance(node), "boot-1", true));
        store.put(kind::LEASES, api_server::lease(&name, now));
        register(store, node);
        for volume in 0..size.volumes_per_node {
            let names = names(node, volume);
            let handle = handle(node, volume);
            store.put(
                kind::PERSISTENT_VOLUMES,
                api_server::claim_volume(&names.volume, NAMESPACE, &names.claim, &handle),
            );
            place(store, node, &names);
        }
    }
    for number in 0..size.pods_without_volumes {
        let node = node_name(number % size.nodes);
        let name = format!("stateless-{number}");
        store.put(kind::PODS, api_server::pod(NAMESPACE, &name, &node, &[]));
    }
    // No watcher receives the events of the initial objects.
    store.expire();
}

/// Writes the CSINode of a node, as its kubelet does once the driver is registered there.
pub(super) fn register(store: &Store, node: usize) {
    let name = node_name(node);
    let object = store.get(kind::NODES, &name).unwrap_or_default();
    let uid = &object["metadata"]["uid"];
    store.put(kind::CSI_NODES, api_server::csi_node(&name, uid, &instance(node)));
}

/// Puts the pod of a volume on a node, and the volume's VolumeAttachment.
pub(super) fn place(store: &Store, node: usize, names: &Names) {
    let name = node_name(node);
    let claims = [names.claim.clone()];
    store.put(kind::PODS, api_server::pod(NAMESPACE, &names.pod, &name, &claims));
    store.put(
        kind::VOLUME_ATTACHMENTS,
        api_server::attachment(&names.attachment, &names.volume, &name, &instance(node)),
    );
}
