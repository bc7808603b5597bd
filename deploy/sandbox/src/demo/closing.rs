//! Everything is given back, and what it took is shown.

use std::time::Duration;

use serde_json::Value;

use super::data;
use super::{DemoError, Scene, prove};
use crate::audit;
use crate::clean;

pub(super) async fn show(scene: &mut Scene<'_>) -> Result<(), DemoError> {
    scene.told.chapter("delete all");
    for (volume, in_use) in scene.volumes.clone() {
        if let Some(in_use) = in_use {
            scene.take_from(&volume, &in_use).await?;
        }
        scene.co.delete(&volume.id).await?;
        scene.co.delete(&volume.id).await?;
        scene
            .told
            .done(&format!("delete {}, twice", volume.name), &volume.id);
    }
    scene.volumes.clear();
    for snapshot in std::mem::take(&mut scene.snapshots) {
        scene.co.delete_snapshot(&snapshot).await?;
        scene.told.done("delete the snapshot", &snapshot);
    }
    processes(scene)?;
    calls(scene).await?;
    scene.told.chapter("figures of this machine, now");
    println!("{}", scene.figures.table());
    println!("The targets are those of a release build on an idle machine.");
    invariants(scene).await
}

fn processes(scene: &mut Scene<'_>) -> Result<(), DemoError> {
    scene
        .told
        .chapter("the processes, as the kernel shows them");
    let mut seen = audit::survey(scene.world)?;
    seen.extend(std::mem::take(&mut scene.tools));
    println!("{}", audit::table(&seen));
    let host = audit::bounding_of_this_process()?;
    let lacking = audit::names(audit::BROKER & !host);
    if !lacking.is_empty() {
        println!("This machine itself lacks {lacking}.");
    }
    let odd = seen
        .iter()
        .filter(|process| !process.deviations.is_empty())
        .count();
    prove(odd == 0, || format!("{odd} processes are not as designed"))?;
    scene.told.done(
        "each process is as the design says",
        &format!("{} looked at", seen.len()),
    );
    Ok(())
}

async fn calls(scene: &mut Scene<'_>) -> Result<(), DemoError> {
    scene.told.chapter("calls to EC2");
    let statistics = scene.world.simulator.get("/v1/statistics").await?;
    println!(
        "{:<34} {:>7} {:>7} {:>10} {:>8} {:>10}  errors",
        "action", "calls", "ok", "throttled", "faulted", "p50 ms"
    );
    let actions = statistics["actions"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    prove(!actions.is_empty(), || {
        "the simulator counted no call".to_owned()
    })?;
    for (action, count) in &actions {
        let number = |name: &str| count[name].as_u64().unwrap_or(0);
        let errors = count["errors"].as_object().map(|errors| {
            errors
                .iter()
                .map(|(code, times)| format!("{code} {times}"))
                .collect::<Vec<_>>()
                .join(", ")
        });
        println!(
            "{action:<34} {:>7} {:>7} {:>10} {:>8} {:>10}  {}",
            number("calls"),
            number("ok"),
            number("throttled"),
            number("faulted"),
            count["server_ms"]["p50"],
            errors.unwrap_or_default(),
        );
    }
    Ok(())
}

async fn invariants(scene: &mut Scene<'_>) -> Result<(), DemoError> {
    scene.told.chapter("nothing leaked, nothing doubled");
    let mut found = Value::Null;
    // EC2 shows a deleted volume for a moment.
    for _ in 0..100 {
        found = scene.world.simulator.get("/v1/invariants").await?;
        let gone = ["volumes", "snapshots", "attachments"]
            .iter()
            .all(|name| empty(&found["live"][*name]));
        if gone && empty(&found["loops"]) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for name in ["volumes", "snapshots", "attachments"] {
        prove(empty(&found["live"][name]), || {
            format!("EC2 still has {name}: {}", found["live"][name])
        })?;
    }
    prove(found["ok"] == true, || {
        format!("violations: {}", found["violations"])
    })?;
    prove(empty(&found["duplicates"]), || {
        format!("duplicates: {}", found["duplicates"])
    })?;
    scene.told.done(
        "EC2: no volume, snapshot, attachment left",
        "no rule broken, no name twice",
    );
    for kubelet in &scene.kubelets {
        data::nothing_mounted(kubelet.root())?;
    }
    let loops = clean::loops_of(scene.world.state_dir());
    prove(loops.is_empty(), || format!("loop devices left: {loops:?}"))?;
    scene.told.done("nodes: no mount, no loop device left", "");
    let (steps, time) = scene.told.summary();
    println!("\n{steps} steps verified in {:.0} s", time.as_secs_f64());
    Ok(())
}

/// Zero, nothing, or an empty list.
fn empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Number(number) => number.as_u64() == Some(0),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}
