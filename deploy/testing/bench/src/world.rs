//! What the worlds of several measurements share.

use std::time::Duration;

use ebs_csi_sandbox::binaries::Binaries;
use ebs_csi_sandbox::{NodeOptions, World, WorldOptions, ZONE};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::error::Result;

/// An EC2 that has no delays and no quota.
pub(crate) const UNLIMITED: &str = "profile = \"instant\"\n[limits]\nenabled = false\n";

/// The controller's flag for such an EC2. Without it, the driver would limit itself to EC2's
/// documented rates and wait needlessly.
pub(crate) const WITHOUT_QUOTA: &str = "--ec2-request-rates=all=1000000/1000000";

/// Returns the id of instance number `index`.
pub(crate) fn instance(index: usize) -> String {
    format!("i-0a{index:015x}")
}

/// Returns the options of a world without node processes, with `instances` instances of 27
/// attachments.
pub(crate) fn without_nodes(binaries: &Binaries, instances: usize, scenario: &str) -> WorldOptions {
    let mut options = WorldOptions::new(binaries.clone());
    options.nodes = (0..instances)
        .map(|index| NodeOptions::new(&format!("node-{index}"), &instance(index), ZONE))
        .collect();
    options.one_zone = true;
    options.devices = "none".to_owned();
    options.scenario = scenario.to_owned();
    options
}

pub(crate) async fn create_as_other_client(world: &World, gib: &str) -> Result<String> {
    let parameters = json!({ "AvailabilityZone": ZONE, "Size": gib, "VolumeType": "gp3" });
    let body = world.simulator.call_as_other_client("CreateVolume", &parameters).await?;
    volume_id(&body).map(str::to_owned).ok_or_else(|| format!("no volumeId in {body}").into())
}

/// Returns EC2's counts since the simulator started, by action.
pub(crate) async fn actions(world: &World) -> Result<Value> {
    Ok(world.simulator.get("/v1/statistics").await?["actions"].take())
}

/// Returns how many calls of these actions reached EC2.
pub(crate) async fn calls_of(world: &World, names: &[&str]) -> Result<f64> {
    let actions = actions(world).await?;
    Ok(names.iter().filter_map(|name| actions[name]["calls"].as_f64()).sum())
}

/// Returns the calls of each action whose name begins so.
pub(crate) fn calls_by_name<'a>(
    actions: &'a Value,
    begins: &str,
) -> impl Iterator<Item = (&'a String, f64)> {
    let all = actions.as_object().into_iter().flatten();
    let named = all.filter(move |(action, _)| action.starts_with(begins));
    named.map(|(action, of)| (action, of["calls"].as_f64().unwrap_or(0.0)))
}

pub(crate) fn volume_id(body: &str) -> Option<&str> {
    Some(body.split_once("<volumeId>")?.1.split_once("</volumeId>")?.0)
}

/// Waits for all tasks. Returns their results, or the first error.
pub(crate) async fn join_all<T>(tasks: Vec<JoinHandle<Result<T>>>) -> Result<Vec<T>> {
    let mut results = Vec::with_capacity(tasks.len());
    for task in tasks {
        results.push(task.await??);
    }
    Ok(results)
}

/// Returns the order of `contestants` contestants in this round: every other round is reversed, so
/// that none always comes first.
pub(crate) fn order(round: usize, contestants: usize) -> Vec<usize> {
    let order = 0..contestants;
    if round.is_multiple_of(2) { order.collect() } else { order.rev().collect() }
}

pub(crate) fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}

#[expect(clippy::cast_precision_loss, reason = "numbers of calls are far below 2^53")]
pub(crate) fn float(number: usize) -> f64 {
    number as f64
}
