//! Measures the figures with their bounds during this run.

use std::io;
use std::time::{Duration, SystemTime};

use ebs_csi_policy::profile;
use ebs_csi_wire::FsType;

use super::figures::{median, milliseconds};
use super::{DemoError, Scene};
use crate::audit;
use crate::baseline::LoopDevice;
use crate::co::{Attachment, Attempts, Claim, Volume};

/// Number of measured volumes.
const VOLUMES: usize = 9;
/// Number of measured starts.
const STARTS: usize = 5;

#[derive(Default)]
struct Samples {
    create: Vec<Duration>,
    attach: Vec<Duration>,
    fresh: Vec<Duration>,
    fresh_bare: Vec<Duration>,
    clean: Vec<Duration>,
    clean_bare: Vec<Duration>,
}

pub(super) async fn show(scene: &mut Scene<'_>) -> Result<(), DemoError> {
    scene.narrator.chapter("figures");
    let mut samples = Samples::default();
    let first = scene.ec2().last().await?;
    for index in 0..VOLUMES {
        run_one_volume(scene, index, &mut samples).await?;
    }
    let calls = scene
        .ec2()
        .journal(first)
        .await?
        .iter()
        .filter_map(|record| record["action"].as_str())
        .filter(|action| !action.starts_with("Describe"))
        .count();
    scene.narrator.done(&format!("{VOLUMES} volumes, from create to delete"), "measured");
    let basis = |samples: &[Duration]| format!("median of {}", samples.len());
    let round_trip = round_trip(scene).await?;
    let figures = &mut scene.figures;
    for (name, samples, target) in
        [("create", &samples.create, "80 ms"), ("attach", &samples.attach, "120 ms")]
    {
        figures.add(
            &format!("{name}: latency added over EC2's own"),
            milliseconds(median(samples)),
            format!("{round_trip} (a round trip)"),
            target,
            basis(samples),
        );
    }
    let (fresh, bare) = (median(&samples.fresh), median(&samples.fresh_bare));
    let ratio = fresh.as_secs_f64() / bare.as_secs_f64().max(1e-9);
    figures.add(
        "stage + publish of a fresh ext4",
        format!("{} ({ratio:.2}x)", milliseconds(fresh)),
        format!("{} bare", milliseconds(bare)),
        "1.05x",
        format!("{}; bare: mke2fs, mount(2)", basis(&samples.fresh)),
    );
    figures.add(
        "stage of a clean ext4",
        milliseconds(median(&samples.clean)),
        format!("{} bare", milliseconds(median(&samples.clean_bare))),
        "2 ms",
        format!("{}; bare: mount(2)", basis(&samples.clean)),
    );
    figures.add(
        "mutating EC2 calls per volume life",
        format!("{:.2}", calls as f64 / VOLUMES as f64),
        "4",
        "4",
        format!("{calls} calls, {VOLUMES} volumes"),
    );
    starts(scene, &round_trip).await?;
    memory(scene)
}

/// Creates a volume. Returns also the latency beyond EC2's own, where that is known.
pub(super) async fn create(
    scene: &Scene<'_>,
    claim: &Claim,
) -> Result<(Volume, Option<Duration>), DemoError> {
    let (volume, own) =
        with_own_time(scene, "CreateVolume", &claim.name, scene.co.create(claim)).await?;
    Ok((volume?, added(&scene.co.attempts, "CreateVolume", own)))
}

/// Attaches a volume. Returns also the latency beyond EC2's own, where that is known.
pub(super) async fn attach(
    scene: &Scene<'_>,
    volume: &Volume,
    instance: &str,
) -> Result<(Attachment, Option<Duration>), DemoError> {
    let work = scene.co.attach(volume, instance);
    let (attachment, own) = with_own_time(scene, "AttachVolume", &volume.id, work).await?;
    Ok((attachment?, added(&scene.co.attempts, "ControllerPublishVolume", own)))
}

async fn run_one_volume(
    scene: &mut Scene<'_>,
    index: usize,
    samples: &mut Samples,
) -> Result<(), DemoError> {
    let name = format!("pvc-figure-{index}");
    let claim = Claim::filesystem(&name, "ext4", 1).parameter("type", "gp3");
    let co = scene.co.clone();
    let (volume, added) = create(scene, &claim).await?;
    samples.create.extend(added);
    scene.volumes.push((volume.clone(), None));

    let instance = scene.instance(0);
    let (attachment, added) = attach(scene, &volume, &instance).await?;
    samples.attach.extend(added);

    let kubelet = scene.kubelets[0].clone();
    kubelet.stage(&volume, &attachment).await?;
    kubelet.publish(&volume, &attachment, "pod-figure", false).await?;
    let staged = single(&kubelet.attempts, "NodeStageVolume");
    let published = single(&kubelet.attempts, "NodePublishVolume");
    samples.fresh.extend(staged.zip(published).map(|(staged, published)| staged + published));
    let device = LoopDevice::make(&scene.world.state_dir().join("bare"), &name, 1 << 30)?;
    samples.fresh_bare.push(device.format_and_mount(FsType::Ext4)?);
    device.unmount()?;

    kubelet.unpublish(&volume, "pod-figure").await?;
    kubelet.unstage(&volume).await?;
    kubelet.stage(&volume, &attachment).await?;
    samples.clean.extend(single(&kubelet.attempts, "NodeStageVolume"));
    samples.clean_bare.push(device.mount(FsType::Ext4)?);
    drop(device);
    kubelet.unstage(&volume).await?;
    co.detach(&volume.id, &instance).await?;
    co.delete(&volume.id).await?;
    scene.volumes.retain(|(known, _)| known.id != volume.id);
    Ok(())
}

/// Runs `work`. Returns also EC2's own time: from the arrival of the request that mentions `what`
/// to the end of the transition that the request began, or `None` when the transition ended before
/// it could be seen.
async fn with_own_time<T>(
    scene: &Scene<'_>,
    action: &str,
    what: &str,
    work: impl Future<Output = T>,
) -> Result<(T, Option<Duration>), DemoError> {
    let before = scene.ec2().last().await?;
    let mut own = None;
    let result = tokio::select! {
        result = work => result,
        failed = watch(scene, before, action, what, &mut own) => return Err(failed),
    };
    Ok((result, own))
}

/// Stores EC2's own time in `own` once it is known, then waits forever.
async fn watch(
    scene: &Scene<'_>,
    before: u64,
    action: &str,
    what: &str,
    own: &mut Option<Duration>,
) -> DemoError {
    loop {
        match own_time(scene, before, action, what).await {
            Err(failed) => return failed,
            Ok(None) => tokio::time::sleep(Duration::from_millis(10)).await,
            Ok(found) => {
                *own = found;
                std::future::pending::<()>().await;
            }
        }
    }
}

async fn own_time(
    scene: &Scene<'_>,
    before: u64,
    action: &str,
    what: &str,
) -> Result<Option<Duration>, DemoError> {
    let ec2 = scene.ec2();
    let request = ec2.journal(before).await?.into_iter().find(|record| {
        record["action"] == action && record["parameters"].to_string().contains(what)
    });
    let Some(request) = request else { return Ok(None) };
    let arrived: jiff::Timestamp = request["at"]
        .as_str()
        .unwrap_or_default()
        .parse()
        .map_err(|e| io::Error::other(format!("time of a journal entry: {e}")))?;
    let id = match action {
        "AttachVolume" => what,
        _ => request["effects"][0].as_str().unwrap_or_default(),
    };
    let end = ec2.transition_end(id).await?;
    Ok(end.and_then(|end| end.duration_since(SystemTime::from(arrived)).ok()))
}

/// Returns the time of the last call of `rpc` beyond EC2's own, where both are known.
fn added(attempts: &Attempts, rpc: &str, own: Option<Duration>) -> Option<Duration> {
    Some(single(attempts, rpc)?.saturating_sub(own?))
}

/// Returns the time of the last call of `rpc` if it needed one attempt: the waits between attempts
/// are not the driver's.
pub(super) fn single(attempts: &Attempts, rpc: &str) -> Option<Duration> {
    attempts.last(rpc).filter(|call| call.attempts == 1).map(|call| call.elapsed)
}

async fn round_trip(scene: &Scene<'_>) -> Result<String, DemoError> {
    let statistics = scene.world.simulator.get("/v1/statistics").await?;
    let p50 = statistics["actions"]["DescribeVolumes"]["server_ms"]["p50"].as_f64().unwrap_or(0.0);
    Ok(milliseconds(Duration::from_secs_f64(p50 / 1e3)))
}

async fn starts(scene: &mut Scene<'_>, round_trip: &str) -> Result<(), DemoError> {
    let (mut controller, mut agent) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        scene.world.controller.kill().await?;
        controller.push(scene.world.start_controller().await?);
        scene.world.nodes[0].agent.kill().await?;
        agent.push(scene.world.start_agent(0).await?);
    }
    let basis = format!("median of {STARTS}");
    scene.figures.add(
        "controller: exec to the first good Probe",
        milliseconds(median(&controller)),
        format!("{round_trip} (a round trip)"),
        "15 ms + it",
        &basis,
    );
    scene.figures.add(
        "node-agent: exec to the first good Probe",
        milliseconds(median(&agent)),
        "exec",
        "15 ms",
        basis,
    );
    scene.narrator.done(&format!("{STARTS} starts of controller and node-agent"), "measured");
    Ok(())
}

fn memory(scene: &mut Scene<'_>) -> Result<(), DemoError> {
    let seen = audit::survey(scene.world)?;
    let sum = |wanted: &dyn Fn(&audit::ObservedProcess) -> bool| -> u64 {
        seen.iter().filter(|process| wanted(process)).map(|process| process.pss_kib).sum()
    };
    let controller = sum(&|process| process.profile.name == profile::CONTROLLER.name);
    let node = scene.node_name(0);
    let agent_and_helper = sum(&|process| process.place == node);
    let mib = |kib: u64| format!("{:.1} MiB", kib as f64 / 1024.0);
    scene.figures.add(
        "controller: memory (PSS)",
        mib(controller),
        "-",
        "12 MiB",
        "after all of the above",
    );
    scene.figures.add(
        "node-agent and mount-helper: memory (PSS)",
        mib(agent_and_helper),
        "-",
        "5 MiB",
        format!("all processes of {node}"),
    );
    Ok(())
}
