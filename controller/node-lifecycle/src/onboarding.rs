//! Nodes that have just joined: the startup taint keeps pods away until the driver can serve them;
//! this module then removes the taint. [`agent_annotations`] writes facts about the nodes to the
//! node-agents' pods.
//!
//! The work is level-triggered and never ends: a taint that is set again is removed again. It
//! depends neither on safe detach nor on failover's kill switch.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use http::Request;
use kube::Client;
use serde_json::{Value, json};

use crate::act::ActResult;
use crate::cluster::STARTUP_TAINT;
use crate::context::Context;
use crate::metrics::{Metrics, as_gauge};

pub mod agent_annotations;
mod instance_types;
mod pod_difference;

/// Pause between two rounds. A round without a node to patch sends no request, so the pause can be
/// short: a node that is ready loses its taint within a second.
const ROUND_PAUSE: Duration = Duration::from_millis(500);
/// Pause after a patch, successful or not: the watch may lag, or the API server may refuse.
const PATCH_PAUSE: Duration = Duration::from_secs(5);
/// Limit for the patch of one object, which delays the other objects.
const PATCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Most nodes that one round patches, so that a starting cluster does not flood the API server.
const MAX_PER_ROUND: usize = 25;

/// Removes startup taints, for ever.
pub(crate) async fn run(context: Context) {
    let mut last_patched = HashMap::new();
    loop {
        if wait_for_round(&context).await {
            remove_taints(&context, &mut last_patched).await;
        } else {
            last_patched.clear();
            context.metrics.startup_tainted.set(0);
        }
    }
}

async fn remove_taints(context: &Context, last_patched: &mut HashMap<String, Instant>) {
    let (waiting, mut ready) = context.tables.startup_tainted();
    context.metrics.startup_tainted.set(as_gauge(waiting + ready.len()));
    last_patched.retain(|_, patched_at| patched_at.elapsed() < PATCH_PAUSE);
    ready.retain(|name| !last_patched.contains_key(name));
    for name in ready.into_iter().take(MAX_PER_ROUND) {
        let removal = remove_startup_taint(&context.client, &name);
        let result = match tokio::time::timeout(PATCH_TIMEOUT, removal).await {
            Ok(Ok(ActResult::Done)) => {
                tracing::info!(node = name, "the driver is ready there: the startup taint is gone");
                "done"
            }
            Ok(Ok(ActResult::Conflict)) => "overtaken",
            Err(_) => {
                tracing::warn!(
                    node = name,
                    "the API server does not answer in time: the startup taint stays for now"
                );
                "failed"
            }
            Ok(Err(error)) => {
                tracing::warn!(node = name, %error, "the startup taint could not be taken off");
                "failed"
            }
        };
        Metrics::count(&context.metrics.startup_taints, result);
        last_patched.insert(name, Instant::now());
    }
}

/// Waits until the next round, and returns whether this process may act then.
async fn wait_for_round(context: &Context) -> bool {
    tokio::time::sleep(ROUND_PAUSE).await;
    context.leader.is_leader() && context.tables.identities_are_complete()
}

/// Removes the taint, whatever its effect. The patch requires the list of taints to be unchanged,
/// so that no concurrently set taint is lost.
async fn remove_startup_taint(client: &Client, name: &str) -> Result<ActResult, kube::Error> {
    let path = format!("/api/v1/nodes/{name}");
    let request = Request::get(&path).body(Vec::new());
    let node: Value = match client.request(request.map_err(kube::Error::HttpError)?).await {
        Err(error) => return ActResult::of::<()>(Err(error)),
        Ok(node) => node,
    };
    let Some(patch) = patch(&node) else {
        return Ok(ActResult::Conflict);
    };
    let request = Request::patch(&path)
        .header("content-type", "application/json-patch+json")
        .body(patch.to_string().into_bytes());
    let patched: Result<Value, _> = client.request(request.map_err(kube::Error::HttpError)?).await;
    match patched {
        // A test of the patch failed.
        Err(kube::Error::Api(status)) if status.code == 422 => Ok(ActResult::Conflict),
        patched => ActResult::of(patched),
    }
}

/// Returns the patch; `None` when the taint is no longer there.
fn patch(node: &Value) -> Option<Value> {
    let before = node["spec"]["taints"].as_array()?;
    let after: Vec<&Value> = before.iter().filter(|taint| taint["key"] != STARTUP_TAINT).collect();
    if after.len() == before.len() {
        return None;
    }
    Some(json!([
        {"op": "test", "path": "/metadata/uid", "value": node["metadata"]["uid"]},
        {"op": "test", "path": "/spec/taints", "value": before},
        {"op": "replace", "path": "/spec/taints", "value": after},
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_startup_taint_is_removed() {
        let other = json!({"key": "dedicated", "value": "x", "effect": "NoSchedule", "new": 1});
        let ours = |effect: &str| json!({"key": STARTUP_TAINT, "effect": effect});
        let node = |taints: Value| json!({"metadata": {"uid": "u"}, "spec": {"taints": taints}});
        let before = json!([ours("NoExecute"), other, ours("NoSchedule")]);
        let patch_of = patch(&node(before.clone())).unwrap();
        assert_eq!(patch_of[0]["value"], "u");
        assert_eq!(patch_of[1]["value"], before, "as it was read, every field of it");
        assert_eq!(patch_of[2]["value"], json!([other]));
        assert_eq!(patch(&node(json!([other]))), None);
        assert_eq!(patch(&json!({"metadata": {}, "spec": {}})), None);
    }
}
