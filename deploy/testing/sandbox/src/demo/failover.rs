//! A node stops reporting while a writer runs: its volume stays attached until EC2 shows the node
//! stopped, and then moves with every byte.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ebs_csi_proto::DRIVER_NAME;
use ebs_csi_proto::safe_detach::Node;
use serde_json::json;
use tonic::Code;

use super::{Result, Scene, ensure};
use crate::co::{Claim, CoError, Observer, Volume, safe_detach};

const FILE: &str = "sequence";

/// Appends numbers until stopped; each is on the disk before the next one is written.
struct Writer {
    written: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    fn start(directory: &Path) -> Result<Self> {
        let mut file = File::create(directory.join(FILE))?;
        let (written, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, told) = (Arc::clone(&written), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            for number in 1_u64.. {
                let done = told.load(Ordering::SeqCst)
                    || writeln!(file, "{number}").is_err()
                    || file.sync_data().is_err();
                if done {
                    return;
                }
                count.store(number, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        Ok(Self { written, stop, thread: Some(thread) })
    }

    async fn wait_until_writing(&self) -> Result<u64> {
        let before = self.written.load(Ordering::SeqCst);
        for _ in 0..500 {
            let now = self.written.load(Ordering::SeqCst);
            if now > before {
                return Ok(now);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        ensure(false, || format!("the writer stands still at {before}")).map(|()| before)
    }

    /// Stops the writer and returns the last number that reached the disk.
    fn end(&mut self) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // The writer does not panic; if it did, the number that it reached counts.
            let _ = thread.join();
        }
        self.written.load(Ordering::SeqCst)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Verifies that the file holds every number up to `last`, in order.
fn find_all(directory: &Path, last: u64) -> Result<()> {
    let text = std::fs::read_to_string(directory.join(FILE))?;
    let mut numbers = text.lines();
    for number in 1..=last {
        let found = numbers.next().and_then(|line| line.parse::<u64>().ok());
        ensure(found == Some(number), || {
            format!("{found:?} stands where {number} of {last} was written")
        })?;
    }
    Ok(())
}

impl Scene<'_> {
    /// Requests the detach once, and verifies that it is refused for the reason `token` and that
    /// EC2 shows no change.
    async fn is_refused(
        &mut self,
        volume: &Volume,
        node: usize,
        token: &str,
        writer: &Writer,
    ) -> Result<()> {
        let instance = self.instance(node);
        let mut co = self.co.clone();
        co.attacher = co.attacher.once();
        match co.detach(&volume.id, &instance).await {
            Err(CoError::Refused { code, message, .. }) => {
                let as_meant = code == Code::FailedPrecondition
                    && message.starts_with(&format!("SafeDetachRefused/{token}:"));
                ensure(as_meant, || format!("{code:?}: {message}"))?;
            }
            other => ensure(false, || format!("the detach ended with {other:?}"))?,
        }
        self.check_attached(&volume.id, &[&instance]).await?;
        let written = writer.wait_until_writing().await?;
        self.narrator.done(
            &format!("detach refused: {token}"),
            &format!("the volume stays; {written} numbers written and counting"),
        );
        Ok(())
    }
}

pub(super) async fn show(scene: &mut Scene<'_>) -> Result<()> {
    scene
        .narrator
        .chapter("a node falls silent while another zone fails; its volume moves when EC2 shows it off (enforce)");
    let uid = rustix::process::getuid().as_raw();
    let (socket, flags) = safe_detach(scene.world.controller_socket(), "enforce", uid);
    scene.world.restart_controller(&flags).await?;
    let observer = Observer::start(&socket).await?;
    let volume = scene
        .create(&Claim::filesystem("pvc-failover", "ext4", 4).parameter("type", "gp3"))
        .await?;
    let in_use = scene.use_on(&volume, 1, "pod-10").await?;
    let mut writer = Writer::start(&in_use.published)?;
    let instance = scene.instance(1);
    let node = Node {
        name: scene.node_name(1),
        provider_id: format!("aws:///{}/{instance}", crate::ZONE),
        ready: true,
        lease_age_ms: Some(0),
        volumes_in_use: vec![format!("kubernetes.io/csi/{DRIVER_NAME}^{}", volume.id)],
        ..Node::default()
    };
    observer.set_node(&instance, node.clone());
    scene.zone_fails(true).await?;
    scene.is_refused(&volume, 1, "in-use", &writer).await?;

    let silent = Node { ready: false, lease_age_ms: Some(120_000), ..node };
    observer.set_node(&instance, silent);
    scene.is_refused(&volume, 1, "node-not-ready", &writer).await?;

    let last = writer.end();
    scene.world.cut_power(1).await?;
    let power = |what: &str| format!("/v1/instances/{instance}/{what}");
    let at_once = json!({ "at_once": true });
    let simulator = &scene.world.simulator;
    simulator.post(&power("stop"), &at_once).await?;
    let shown = Instant::now();
    scene.narrator.done("node-b is stopped in EC2", &format!("{last} numbers written"));
    scene.co.detach(&volume.id, &instance).await?;
    scene.check_attached(&volume.id, &[]).await?;
    scene.set_use(&volume.id, None);
    scene.narrator.done("detach allowed", "the instance is stopped: that is the proof");
    let moved = scene.use_on(&volume, 0, "pod-11").await?;
    let took = shown.elapsed();
    find_all(&moved.published, last)?;
    scene.narrator.done(
        "every number that was written is on node-a",
        &format!("{:.2} s after EC2 showed node-b stopped", took.as_secs_f64()),
    );

    scene.zone_fails(false).await?;
    let simulator = &scene.world.simulator;
    simulator.post(&power("start"), &at_once).await?;
    scene.world.start_helper(1).await?;
    scene.world.start_agent(1).await?;
    // The clean-up that kubelet does for the pod after its node has booted.
    scene.kubelets[1].unpublish(&volume, &in_use.pod).await?;
    scene.kubelets[1].unstage(&volume).await?;
    drop(observer);
    scene.world.restart_controller(&[]).await?;
    scene.narrator.done("node-b is back", "it cleans up after its pod");
    Ok(())
}
