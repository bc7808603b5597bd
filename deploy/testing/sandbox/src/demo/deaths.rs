//! Processes that die during a call, and the result of the orchestrator's retries.

use std::time::Duration;

use ebs_csi_policy::profile;
use serde_json::json;

use super::{DemoError, InUse, Result, Scene, ensure};
use crate::audit;
use crate::co::{Claim, Volume};
use crate::pod_view;
use crate::tool_at_work::{self, ToolAtWork};

pub(super) async fn show(scene: &mut Scene<'_>) -> Result<()> {
    scene.narrator.chapter("kill -9 in the middle");
    let volume = controller_in_create(scene).await?;
    controller_in_attach(scene, &volume).await?;
    let in_use = helper_in_stage(scene, &volume).await?;
    scene.take_from(&volume, &in_use).await?;
    agent_in_stage(scene).await
}

/// Lets EC2 create the volume, withholds EC2's reply, and kills the controller before it can ask
/// again.
async fn controller_in_create(scene: &mut Scene<'_>) -> Result<Volume> {
    let claim = Claim::filesystem("pvc-death", "ext4", 100).parameter("type", "gp3");
    let before = scene.ec2().last().await?;
    let lost = json!({ "kind": "lose_reply", "how": "hang", "effect": true, "hold_ms": 60_000 });
    let rule = json!({ "match": { "action": "CreateVolume", "contains": claim.name }, "count": 1, "fault": lost });
    scene.ec2().fault(rule).await?;
    let (co, asked) = (scene.co.clone(), claim.clone());
    let creating = tokio::spawn(async move { co.create(&asked).await });
    scene.ec2().request(before, "CreateVolume").await?;
    scene.world.controller.kill().await?;
    scene.ec2().no_faults().await?;
    scene.world.start_controller().await?;
    let volume = creating.await.map_err(std::io::Error::other)??;
    let named = scene.ec2().volumes("tag:CSIVolumeName", &claim.name).await?;
    ensure(named.len() == 1 && named[0].id == volume.id, || format!("EC2 has {named:?}"))?;
    let attempts = scene.co.attempts.attempts_of("CreateVolume");
    scene.volumes.push((volume.clone(), None));
    scene.narrator.done(
        "controller dies while it creates",
        &format!("{attempts} attempts, one volume: {}", volume.id),
    );
    Ok(volume)
}

/// Kills the controller while EC2 attaches the volume.
async fn controller_in_attach(scene: &mut Scene<'_>, volume: &Volume) -> Result<()> {
    let simulator = &scene.world.simulator;
    simulator.put("/v1/latency", &json!({ "attach": { "fixed_ms": 3_000 } })).await?;
    let before = scene.ec2().last().await?;
    let (co, asked, instance) = (scene.co.clone(), volume.clone(), scene.instance(0));
    let node = instance.clone();
    let attaching = tokio::spawn(async move { co.attach(&asked, &node).await });
    scene.ec2().request(before, "AttachVolume").await?;
    scene.world.controller.kill().await?;
    scene.world.start_controller().await?;
    let attachment = attaching.await.map_err(std::io::Error::other)??;
    scene
        .world
        .simulator
        .put("/v1/latency", &json!({ "attach": { "uniform_ms": [300, 900] } }))
        .await?;
    scene.check_attached(&volume.id, &[&instance]).await?;
    let attempts = scene.co.attempts.attempts_of("ControllerPublishVolume");
    scene.narrator.done(
        "controller dies while it attaches",
        &format!("{attempts} attempts, one attachment: {}", attachment["devicePath"]),
    );
    scene.attached = Some(attachment);
    Ok(())
}

/// Stops the tool that works on `node`, and verifies its rights.
async fn catch_tool(scene: &mut Scene<'_>, node: usize) -> Result<ToolAtWork> {
    let late = || {
        let what = "no tool was seen at work; the machine is too busy to show this";
        DemoError::Unverified(what.to_owned())
    };
    let tool = tool_at_work::catch(&scene.world.nodes[node]).await.ok_or_else(late)?;
    let seen = audit::read(profile::TOOL, &scene.node_name(node), tool.pid())?;
    ensure(seen.deviations.is_empty(), || {
        format!("{}: {}", seen.process.program, seen.deviations.join(", "))
    })?;
    scene.tools.push(seen);
    Ok(tool)
}

/// Kills the helper while mke2fs runs.
async fn helper_in_stage(scene: &mut Scene<'_>, volume: &Volume) -> Result<InUse> {
    let attachment = scene
        .attached
        .take()
        .ok_or_else(|| DemoError::Unverified(format!("{} is not attached", volume.name)))?;
    let (kubelet, asked, with) = (scene.kubelets[0].clone(), volume.clone(), attachment.clone());
    let staging = tokio::spawn(async move { kubelet.stage(&asked, &with).await });
    let tool = catch_tool(scene, 0).await?;
    let tree = scene.world.nodes[0].helper.identities();
    scene.world.nodes[0].helper.kill().await?;
    for _ in 0..1_000 {
        if !tree.iter().any(|member| member.alive()) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(tool);
    let alive: Vec<i32> =
        tree.iter().filter(|member| member.alive()).map(|member| member.pid).collect();
    ensure(alive.is_empty(), || {
        format!("processes {alive:?} outlived the helper's first process by 5 s")
    })?;
    scene.narrator.done(
        "helper dies while mke2fs runs",
        &format!("all {} processes of it are gone", tree.len()),
    );
    scene.world.start_helper(0).await?;
    staging.await.map_err(std::io::Error::other)??;
    let attempts = scene.kubelets[0].attempts.attempts_of("NodeStageVolume");
    scene
        .narrator
        .done("helper starts again, kubelet repeats", &format!("staged after {attempts} attempts"));
    let in_use = scene.stage_and_publish(volume, 0, "pod-8", attachment).await?;
    scene.set_use(&volume.id, Some(in_use.clone()));
    pod_view::write(&in_use.published, &volume.name)?;
    pod_view::find(&in_use.published, &volume.name)?;
    scene.narrator.done("write and read a file", "");
    Ok(in_use)
}

/// Kills the agent while mke2fs runs; the helper continues, and the new agent joins the helper's
/// job.
async fn agent_in_stage(scene: &mut Scene<'_>) -> Result<()> {
    let claim = Claim::filesystem("pvc-agent-death", "ext4", 100).parameter("type", "gp3");
    let volume = scene.create(&claim).await?;
    let instance = scene.instance(1);
    let attachment = scene.co.attach(&volume, &instance).await?;
    scene.narrator.done("attach pvc-agent-death to node-b", "");
    let (kubelet, asked, with) = (scene.kubelets[1].clone(), volume.clone(), attachment.clone());
    let staging = tokio::spawn(async move { kubelet.stage(&asked, &with).await });
    let tool = catch_tool(scene, 1).await?;
    scene.world.nodes[1].agent.kill().await?;
    scene.world.start_agent(1).await?;
    ensure(tool.alive(), || "mke2fs did not outlive the agent".to_owned())?;
    drop(tool);
    staging.await.map_err(std::io::Error::other)??;
    let attempts = scene.kubelets[1].attempts.attempts_of("NodeStageVolume");
    scene.narrator.done(
        "agent dies while mke2fs runs",
        &format!("mke2fs went on; staged by the new agent after {attempts} attempts"),
    );
    let in_use = scene.stage_and_publish(&volume, 1, "pod-9", attachment).await?;
    pod_view::write(&in_use.published, &volume.name)?;
    scene.set_use(&volume.id, Some(in_use));
    Ok(())
}
