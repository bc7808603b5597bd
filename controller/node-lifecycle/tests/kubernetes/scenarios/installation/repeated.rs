//! Applies the chart's output server-side, as Argo CD and Flux do again and again.

use std::collections::BTreeMap;

use kube::Client;
use serde_json::Value;

use crate::environment::manifests;
use crate::environment::world::{TestResult, ensure};
use crate::scenarios::installation::manifest_pods::{REGISTRY, RELEASE};

pub(crate) const NAME: &str = "second_apply_of_chart_changes_nothing";

/// The sets of values: the defaults, and some of `deploy/install/chart/ci` without foreign kinds.
const SETS: [Option<&str>; 3] = [None, Some("switches"), Some("safe-detach")];

/// Applies each set twice and compares all that the API server has: also the resource versions and
/// the times of the managed fields. Takes the objects away at the end.
pub(crate) async fn applied(admin: &Client) -> TestResult {
    let Some(helm) = manifests::helm() else { return Ok(()) };
    let mut all = BTreeMap::new();
    let mut outcome = Ok(());
    for set in SETS {
        let file = |set| manifests::deploy().join(format!("install/chart/ci/{set}.yaml"));
        let values = set.map(file);
        let objects = manifests::render(&helm, RELEASE, values.as_deref(), &REGISTRY).await?;
        // What only an installation or `helm test` makes is not applied again.
        let is_hook = |it: &Value| !it["metadata"]["annotations"]["helm.sh/hook"].is_null();
        let objects: Vec<Value> = objects.into_iter().filter(|it| !is_hook(it)).collect();
        if outcome.is_ok() {
            outcome = twice(admin, &objects).await.map_err(|e| format!("{set:?}: {e}").into());
        }
        for object in objects {
            let of = |key: &str| object["metadata"][key].to_string();
            all.insert((object["kind"].to_string(), of("namespace"), of("name")), object);
        }
    }
    for object in all.values() {
        let deleted = manifests::delete(admin, object).await;
        // What could not be applied is not there.
        outcome = outcome.and(deleted);
    }
    outcome
}

async fn twice(admin: &Client, objects: &[Value]) -> TestResult {
    let mut first = Vec::new();
    for object in objects {
        first.push(manifests::apply(admin, object).await?);
    }
    for (object, before) in objects.iter().zip(first) {
        let after = manifests::apply(admin, object).await?;
        ensure(before == after, &format!("first {before}, then {after}"))?;
    }
    ensure(objects.len() > 20, &format!("{} objects", objects.len()))
}
