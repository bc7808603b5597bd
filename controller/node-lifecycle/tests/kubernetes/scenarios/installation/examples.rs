//! Checks that the API server accepts the objects of `deploy/install/examples` and knows each of
//! their fields.

use serde_json::json;

use crate::environment::manifests;
use crate::environment::world::{TestResult, World, ensure};
use crate::scenarios::Scenario;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![Scenario::new("examples_have_no_unknown_field", taken(world))]
}

async fn taken(world: &World<'_>) -> TestResult {
    let mut shown = 0;
    for example in std::fs::read_dir(manifests::deploy().join("install/examples"))? {
        let example = example?.path();
        if !example.is_dir() {
            continue;
        }
        for file in std::fs::read_dir(&example)? {
            let file = file?.path();
            if file.extension().is_none_or(|ending| ending != "yaml") {
                continue;
            }
            for mut object in manifests::objects(&std::fs::read_to_string(&file)?) {
                // The cluster has no definition of these kinds.
                let version = object["apiVersion"].as_str().unwrap_or_default();
                if version.contains("snapshot.storage.k8s.io/") {
                    continue;
                }
                let classes = ["StorageClass", "VolumeAttributesClass", "PersistentVolume"];
                if !classes.iter().any(|kind| object["kind"] == *kind) {
                    object["metadata"]["namespace"] = json!("default");
                }
                let taken = manifests::would_apply(&world.admin, &object).await;
                taken.map_err(|why| format!("{}: {why}", file.display()))?;
                shown += 1;
                object["spce"] = json!(1);
                let taken = manifests::would_apply(&world.admin, &object).await;
                ensure(taken.is_err(), "a field that does not exist is refused")?;
            }
        }
    }
    ensure(shown > 30, &format!("{shown} objects were shown"))
}
