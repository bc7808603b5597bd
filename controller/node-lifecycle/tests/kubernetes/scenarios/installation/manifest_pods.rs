//! Checks that the API server accepts the pods of the manifests, and that the programs know the
//! flags in them.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::environment::driver::program;
use crate::environment::manifests;
use crate::environment::world::{Outcome, World, must};
use crate::scenarios::Scenario;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("the_manifests_are_taken_whole", taken(world)),
        Scenario::new("the_charts_objects_are_taken_whole", rendered(world)),
        Scenario::new("the_flags_of_the_manifests_are_known", known()),
    ]
}

async fn taken(world: &World<'_>) -> Outcome {
    for file in ["controller.yaml", "node.yaml", "sidecars-rbac.yaml"] {
        for object in manifests::read(file) {
            manifests::would_create(&world.admin, &object).await?;
        }
    }
    // Shows that the API server reports an unknown field.
    let mut odd = manifests::read("controller.yaml").remove(0);
    odd["dta"] = Value::Null;
    let taken = manifests::would_create(&world.admin, &odd).await;
    must(taken.is_err(), "a field that does not exist is refused")
}

/// Checks what the chart renders with its own values and with each set of values in
/// `deploy/chart/ci`.
async fn rendered(world: &World<'_>) -> Outcome {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or(home);
    let helm = cache.unwrap_or_default().join("ebs-csi/bin/helm");
    if !helm.exists() {
        println!("skipped: no Helm; ./deploy/kubernetes/rig/prepare builds it");
        return Ok(());
    }
    let here = std::env::var("CARGO_MANIFEST_DIR").map_err(|e| e.to_string())?;
    let chart = PathBuf::from(here).join("../../deploy/chart");
    let mut sets = vec![None];
    for entry in std::fs::read_dir(chart.join("ci")).map_err(|e| e.to_string())? {
        sets.push(Some(entry.map_err(|e| e.to_string())?.path()));
    }
    let mut shown = 0;
    for set in sets {
        let mut command = Command::new(&helm);
        command.args(["template", "release"]).arg(&chart);
        command.args(["--namespace", "kube-system", "--kube-version", "1.36.0"]);
        if let Some(set) = &set {
            command.arg("--values").arg(set);
        }
        // On another thread, because the other scenarios continue meanwhile.
        let ended = tokio::task::spawn_blocking(move || command.output()).await;
        let out = ended
            .map_err(|e| e.to_string())?
            .map_err(|e| e.to_string())?;
        let said = String::from_utf8_lossy(&out.stderr);
        must(out.status.success(), &format!("{set:?}: {said}"))?;
        for object in manifests::objects(&String::from_utf8_lossy(&out.stdout)) {
            // The cluster has no definition of this kind.
            if object["kind"] == "ServiceMonitor" {
                continue;
            }
            let taken = manifests::would_apply(&world.admin, &object).await;
            taken.map_err(|why| format!("{set:?}: {why}"))?;
            shown += 1;
        }
    }
    must(shown > 200, &format!("{shown} objects were shown"))
}

/// Checks the flags with safe detach off, as in the manifest, and on.
async fn known() -> Outcome {
    let objects = manifests::read("controller.yaml");
    let deployment = objects
        .iter()
        .find(|object| object["kind"] == "Deployment")
        .ok_or("no Deployment")?;
    let containers = &deployment["spec"]["template"]["spec"]["containers"];
    let programs = [
        ("ebs-plugin", "ebs-csi-controller"),
        ("node-lifecycle", "ebs-csi-node-lifecycle"),
    ];
    for (container, name) in programs {
        let container = containers
            .as_array()
            .into_iter()
            .flatten()
            .find(|it| it["name"] == container)
            .ok_or("no such container")?;
        for values in [("false", "off", "off"), ("true", "enforce", "prove-first")] {
            let (gate, mode, failover) = values;
            let arguments = container["args"].as_array().into_iter().flatten();
            let arguments = arguments.filter_map(Value::as_str).map(|argument| {
                argument
                    .replace("$(SAFE_DETACH_GATE)", gate)
                    .replace("$(SAFE_DETACH_MODE)", mode)
                    .replace("$(FAILOVER)", failover)
            });
            // Arguments are read in order, so `--help` takes effect only when those before it are
            // valid.
            let ended = Command::new(program(name)?)
                .args(arguments)
                .arg("--help")
                .stdout(Stdio::null())
                .output()
                .map_err(|e| e.to_string())?;
            let said = String::from_utf8_lossy(&ended.stderr);
            must(ended.status.success(), &format!("{name}: {said}"))?;
        }
    }
    Ok(())
}
