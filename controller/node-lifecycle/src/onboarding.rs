//! Nodes that have just joined: the startup taint keeps pods away until the driver can serve them;
//! this module then removes the taint. [`agent_annotations`] tells the node-agents about their
//! nodes.
//!
//! The work is level-triggered and never ends: a taint that is set again is removed again. It
//! depends neither on safe detach nor on failover's kill switch.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Request;
use kube::Client;
use serde_json::{Value, json};

use crate::act::Done;
use crate::cluster::{STARTUP, Tables};
use crate::leader::Leader;
use crate::metrics::Metrics;

pub mod agent_annotations;
mod pod_difference;

/// Pause between two looks, which ask the API server for nothing: a node that is ready loses its
/// taint within a second.
const EVERY: Duration = Duration::from_millis(500);
/// Pause after a patch, successful or not: the watch may lag, or the API server may refuse.
const AGAIN: Duration = Duration::from_secs(5);
/// Longest time for which one object delays the others.
const WITHIN: Duration = Duration::from_secs(10);
/// Most nodes of one look, so that a starting cluster does not flood the API server.
const AT_ONCE: usize = 25;

/// Removes the startup taint from nodes.
pub(crate) struct Onboarding {
    /// The client for the patches.
    pub(crate) client: Client,
    /// The registrations of the driver.
    pub(crate) tables: Arc<Tables>,
    /// Whether this process may act.
    pub(crate) leader: Arc<Leader>,
    /// The counters.
    pub(crate) metrics: Arc<Metrics>,
    /// When each node was last patched.
    pub(crate) tried: HashMap<String, Instant>,
}

impl Onboarding {
    /// Looks for nodes to patch, for ever.
    pub(crate) async fn run(mut self) {
        loop {
            if turn(&self.leader, &self.tables).await {
                self.look().await;
            } else {
                self.tried.clear();
                self.metrics.starting(0);
            }
        }
    }

    async fn look(&mut self) {
        let (waiting, mut ready) = self.tables.starting();
        self.metrics.starting(waiting + ready.len());
        self.tried.retain(|_, tried| tried.elapsed() < AGAIN);
        ready.retain(|name| !self.tried.contains_key(name));
        for name in ready.into_iter().take(AT_ONCE) {
            let taken = tokio::time::timeout(WITHIN, take_off(&self.client, &name)).await;
            let result = match taken {
                Ok(Ok(Done::Done)) => {
                    tracing::info!(
                        node = name,
                        "the driver is ready there: the startup taint is gone"
                    );
                    "done"
                }
                Ok(Ok(Done::Overtaken)) => "overtaken",
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
            self.metrics.startup_taint(result);
            self.tried.insert(name, Instant::now());
        }
    }
}

/// Waits until the next look, and returns whether this process may act then.
async fn turn(leader: &Leader, tables: &Tables) -> bool {
    tokio::time::sleep(EVERY).await;
    leader.leads() && tables.identities_are_complete()
}

/// Removes the taint, whatever its effect. The patch requires the list of taints to be unchanged,
/// so that no concurrently set taint is lost.
///
/// # Errors
/// The API server's error.
async fn take_off(client: &Client, name: &str) -> Result<Done, kube::Error> {
    let path = format!("/api/v1/nodes/{name}");
    let request = Request::get(&path).body(Vec::new());
    let node: Value = match client.request(request.map_err(kube::Error::HttpError)?).await {
        Err(error) => return overtaken(error),
        Ok(node) => node,
    };
    let Some(patch) = patch(&node) else {
        return Ok(Done::Overtaken);
    };
    let request = Request::patch(&path)
        .header("content-type", "application/json-patch+json")
        .body(patch.to_string().into_bytes());
    let patched: Result<Value, _> = client.request(request.map_err(kube::Error::HttpError)?).await;
    patched.map_or_else(overtaken, |_| Ok(Done::Done))
}

/// Recognises that the Node is gone, or has changed since it was read (422: a test of the patch
/// failed).
fn overtaken(error: kube::Error) -> Result<Done, kube::Error> {
    match error {
        kube::Error::Api(status) if matches!(status.code, 404 | 409 | 422) => Ok(Done::Overtaken),
        error => Err(error),
    }
}

/// Returns the patch; `None` when the taint is no longer there.
fn patch(node: &Value) -> Option<Value> {
    let before = node["spec"]["taints"].as_array()?;
    let after: Vec<&Value> = before.iter().filter(|taint| taint["key"] != STARTUP).collect();
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
    fn only_the_startup_taint_is_taken_off() {
        let other = json!({"key": "dedicated", "value": "x", "effect": "NoSchedule", "new": 1});
        let ours = |effect: &str| json!({"key": STARTUP, "effect": effect});
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
