//! Removes all volumes and snapshots, and shows the driver's calls.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Result, Scene, ensure};
use crate::audit;

pub(super) async fn show(scene: &mut Scene<'_>) -> Result<()> {
    scene.narrator.chapter("delete all");
    for (volume, in_use) in scene.volumes.clone() {
        if let Some(in_use) = in_use {
            scene.take_from(&volume, &in_use).await?;
        }
        scene.co.delete(&volume.id).await?;
        scene.co.delete(&volume.id).await?;
        scene.narrator.done(&format!("delete {}, twice", volume.name), &volume.id);
    }
    scene.volumes.clear();
    for snapshot in std::mem::take(&mut scene.snapshots) {
        scene.co.delete_snapshot(&snapshot).await?;
        scene.narrator.done("delete the snapshot", &snapshot);
    }
    processes(scene)?;
    calls(scene).await?;
    invariants(scene).await
}

fn processes(scene: &mut Scene<'_>) -> Result<()> {
    scene.narrator.chapter("the processes, as the kernel shows them");
    let mut seen = audit::survey(scene.world)?;
    seen.extend(std::mem::take(&mut scene.tools));
    println!("{}", audit::table(&seen));
    let lacking = audit::missing_for_broker(audit::bounding_of_this_process()?);
    if !lacking.is_empty() {
        println!("This machine itself lacks {lacking}.");
    }
    let odd = seen.iter().filter(|process| !process.deviations.is_empty()).count();
    ensure(odd == 0, || format!("{odd} processes have other rights than are documented"))?;
    scene.narrator.done(
        "each process has the rights that are documented",
        &format!("{} looked at", seen.len()),
    );
    Ok(())
}

async fn calls(scene: &mut Scene<'_>) -> Result<()> {
    scene.narrator.chapter("the driver's calls to EC2 and STS");
    // The number of each action's calls, by EC2's answer.
    let mut actions: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
    let records = scene.ec2().journal(0).await?;
    ensure(!records.is_empty(), || "the simulator saw no call".to_owned())?;
    for record in &records {
        let answers = actions.entry(record["action"].as_str().unwrap_or("(none)")).or_default();
        *answers.entry(record["code"].as_str().unwrap_or("ok")).or_default() += 1;
    }
    for (action, answers) in actions {
        let answers: Vec<_> =
            answers.iter().map(|(code, calls)| format!("{calls} {code}")).collect();
        println!("{action:<30} {}", answers.join(", "));
    }
    let statistics = scene.world.simulator.get("/v1/statistics").await?;
    ensure(statistics["imds"]["credential_reads"] == 0, || {
        "a node asked the metadata service for credentials".to_owned()
    })?;
    scene.narrator.done(&format!("{} calls", records.len()), "no node asked for a credential");
    Ok(())
}

async fn invariants(scene: &mut Scene<'_>) -> Result<()> {
    scene.narrator.chapter("nothing leaked, nothing doubled");
    let mut leaked = scene.world.leaked().await?;
    // EC2 shows a deleted volume for a moment.
    for _ in 0..100 {
        if leaked.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        leaked = scene.world.leaked().await?;
    }
    ensure(leaked.is_empty(), || leaked.join("; "))?;
    scene
        .narrator
        .done("EC2: no volume, snapshot, attachment left", "no rule broken, no name twice");
    scene.narrator.done("nodes: no mount, no loop device left", "");
    let (steps, time) = scene.narrator.summary();
    println!("\n{steps} steps verified in {:.0} s", time.as_secs_f64());
    Ok(())
}
