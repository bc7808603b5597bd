//! Kills each process with SIGKILL before each step of a volume's life cycle, and in the middle of
//! steps: the orchestrator's retries converge.

use std::time::Duration;

use ebs_csi_e2e::{Fixture, Lifecycle, LifecycleStep, bytes, tool_at_work};
use ebs_csi_sandbox::CoError;
use ebs_csi_sandbox::co::Claim;
use serde_json::json;

/// The process to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Controller,
    /// The node-agents of both nodes.
    Agent,
    /// All processes of the helpers of both nodes.
    Helper,
    /// The first processes of the helpers of both nodes.
    HelperSupervisor,
    /// EC2: not killed, but unreachable for a while.
    Ec2,
}

/// Kills the target and restarts it a moment later, while the orchestrator already makes its call.
async fn kill(fixture: &mut Fixture, target: Target) {
    let before = pids(fixture, target);
    let world = &mut fixture.world;
    match target {
        Target::Controller => world.controller.kill().await.unwrap(),
        Target::Ec2 => return fixture.requests().outage(150).await,
        _ => {
            for node in &mut world.nodes {
                let killed = match target {
                    Target::Agent => node.agent.kill().await,
                    Target::Helper => node.helper.kill_tree().await,
                    _ => node.helper.kill().await,
                };
                killed.unwrap();
            }
        }
    }
    tokio::time::sleep(Duration::from_millis(30)).await;
    if target == Target::Controller {
        world.start_controller().await.unwrap();
    } else {
        for index in 0..world.nodes.len() {
            let started = match target {
                Target::Agent => world.start_agent(index).await,
                _ => world.start_helper(index).await,
            };
            started.unwrap();
        }
    }
    let after = pids(fixture, target);
    let is_left = before.iter().any(|pid| after.contains(pid));
    assert!(!is_left, "{target:?} was not killed: {before:?}, then {after:?}");
}

/// Returns the processes to kill.
fn pids(fixture: &Fixture, target: Target) -> Vec<i32> {
    let nodes = &fixture.world.nodes;
    match target {
        Target::Controller => fixture.world.controller.pid().into_iter().collect(),
        Target::Agent => nodes.iter().filter_map(|node| node.agent.pid()).collect(),
        Target::Helper => nodes.iter().flat_map(|node| node.helper.process_tree()).collect(),
        Target::HelperSupervisor => nodes.iter().filter_map(|node| node.helper.pid()).collect(),
        Target::Ec2 => Vec::new(),
    }
}

/// Checks how often each action had an effect on EC2 after `mark`.
async fn assert_effective(fixture: &Fixture, mark: u64, what: &str) {
    let effective = fixture.requests().effective(mark).await;
    for (action, times) in [
        ("CreateVolume", 2),
        ("CopyVolumes", 1),
        ("CreateSnapshot", 1),
        ("ModifyVolume", 1),
        ("DeleteVolume", 3),
    ] {
        assert_eq!(effective.get(action), Some(&times), "{what}: {effective:?}");
    }
}

/// Runs life cycles with a kill before each step.
async fn killed_before_every_step(target: Target, claims: [Claim; 2]) {
    let Some(mut fixture) = Fixture::start().await else { return };
    for claim in claims {
        let mark = fixture.requests().mark().await;
        let what = format!("{target:?} killed before each step of {}", claim.name);
        let mut volume = Lifecycle::new(&fixture, claim);
        for &step in LifecycleStep::ALL {
            let ((), outcome) = tokio::join!(kill(&mut fixture, target), async {
                // The process is dead when the first attempt is made.
                tokio::time::sleep(Duration::from_millis(5)).await;
                volume.step(step).await
            });
            fixture.must(&format!("{what}, {step:?}"), async { outcome }).await;
        }
        println!("{what}: converged");
        assert_effective(&fixture, mark, &what).await;
    }
    fixture.finish().await;
}

fn claims(target: &str) -> [Claim; 2] {
    [
        Claim::filesystem(&format!("pvc-{target}-ext4"), "ext4", 10),
        Claim::block(&format!("pvc-{target}-block"), 10),
    ]
}

#[tokio::test]
async fn the_controller_may_die_before_any_step() {
    killed_before_every_step(Target::Controller, claims("controller")).await;
}

#[tokio::test]
async fn the_node_agent_may_die_before_any_step() {
    killed_before_every_step(Target::Agent, claims("agent")).await;
}

#[tokio::test]
async fn the_mount_helper_may_die_before_any_step() {
    killed_before_every_step(Target::Helper, claims("helper")).await;
}

#[tokio::test]
async fn mount_helper_supervisor_may_die_before_any_step() {
    let [mut first, second] = claims("supervisor");
    first.content = Claim::filesystem("", "xfs", 10).content;
    killed_before_every_step(Target::HelperSupervisor, [first, second]).await;
}

#[tokio::test]
async fn ec2_may_be_unreachable_before_any_step() {
    killed_before_every_step(Target::Ec2, claims("ec2")).await;
}

/// The controller is killed after EC2 has accepted the request and before EC2 replies.
#[tokio::test]
async fn controller_killed_during_ec2_call_duplicates_nothing() {
    let Some(mut fixture) = Fixture::start().await else { return };
    let mut volume = Lifecycle::new(&fixture, Claim::filesystem("pvc-mid", "ext4", 10));
    let mark = fixture.requests().mark().await;
    for &step in LifecycleStep::ALL {
        let action = match step {
            LifecycleStep::Create => Some("CreateVolume"),
            LifecycleStep::Attach | LifecycleStep::AttachElsewhere => Some("AttachVolume"),
            LifecycleStep::Detach | LifecycleStep::DetachElsewhere => Some("DetachVolume"),
            LifecycleStep::ExpandAndModify => Some("ModifyVolume"),
            LifecycleStep::Snapshot => Some("CreateSnapshot"),
            LifecycleStep::Restore => Some("CreateVolume"),
            LifecycleStep::Clone => Some("CopyVolumes"),
            LifecycleStep::Delete => Some("DeleteVolume"),
            _ => None,
        };
        let before = fixture.requests().mark().await;
        if action.is_some() {
            fixture.latency(json!({ "api_write": { "fixed_ms": 400 } })).await;
        }
        let ((), outcome) = tokio::join!(
            async {
                let Some(action) = action else { return };
                fixture.requests().until(before, action).await;
                fixture.world.controller.kill().await.unwrap();
                fixture.latency(json!({ "api_write": { "fixed_ms": 2 } })).await;
                fixture.world.start_controller().await.unwrap();
                println!("controller killed while EC2 worked on {action} ({step:?})");
            },
            volume.step(step)
        );
        fixture.must(&format!("{step:?}"), async { outcome }).await;
    }
    assert_effective(&fixture, mark, "controller killed during each call").await;
    fixture.finish().await;
}

/// The tool is stopped in the middle of a format, then the target is killed.
#[tokio::test]
async fn kill_during_format_strands_no_volume() {
    let Some(mut fixture) = Fixture::start().await else { return };
    for target in [Target::Agent, Target::Helper, Target::HelperSupervisor] {
        for kind in ["ext4", "xfs"] {
            let name = format!("pvc-format-{kind}-{target:?}").to_lowercase();
            let claim = Claim::filesystem(&name, kind, 10);
            let (volume, attachment) = fixture.attached(&claim).await;
            let (kubelet, on) = (fixture.kubelets[0].clone(), (volume.clone(), attachment.clone()));
            let staging = tokio::spawn(async move { kubelet.stage(&on.0, &on.1).await });
            let tool = tool_at_work::catch(&fixture.world.nodes[0]).await;
            kill(&mut fixture, target).await;
            // The tool outlives the agent and nobody else.
            assert_eq!(tool.alive(), target == Target::Agent, "{target:?}");
            drop(tool);
            let staged = staging.await.unwrap();
            fixture.must(&format!("{target:?} {kind}"), async { staged }).await;
            let kubelet = &fixture.kubelets[0];
            let published = kubelet.publish(&volume, &attachment, "pod-1", false);
            let published = fixture.must("publish", published).await;
            bytes::write(&published.path, false, &volume.name);
            bytes::verify(&published.path, false, &volume.name);
            fixture.must("unpublish", kubelet.unpublish(&volume, "pod-1")).await;
            fixture.discard(&volume).await;
            println!("{target:?} killed while {kind} was made: converged");
        }
    }
    fixture.finish().await;
}

/// Kills the target some time after the work began, which must succeed nevertheless.
async fn kill_during(
    fixture: &mut Fixture,
    target: Target,
    after: Duration,
    what: &str,
    work: impl Future<Output = Result<(), CoError>>,
) {
    let killing = async {
        tokio::time::sleep(after).await;
        kill(fixture, target).await;
    };
    let ((), outcome) = tokio::join!(killing, work);
    fixture.must(what, async { outcome }).await;
}

/// Each node process is killed some milliseconds after a call began, on a volume with data.
#[tokio::test]
async fn node_process_kill_mid_call_loses_no_data() {
    let Some(mut fixture) = Fixture::start().await else { return };
    for kind in ["ext4", "xfs"] {
        let claim = Claim::filesystem(&format!("pvc-moments-{kind}"), kind, 2);
        let (volume, attachment) = fixture.attached(&claim).await;
        let kubelet = fixture.kubelets[0].clone();
        let published = fixture.published(&volume, &attachment, "pod-1").await;
        bytes::write(&published.path, false, &volume.name);
        fixture.must("unpublish", kubelet.unpublish(&volume, "pod-1")).await;
        fixture.must("unstage", kubelet.unstage(&volume)).await;
        for target in [Target::Agent, Target::Helper] {
            for moment in [0, 1, 2, 4, 8, 16, 32] {
                let moment = Duration::from_millis(moment);
                let kubelet = kubelet.clone();
                let work = async {
                    kubelet.stage(&volume, &attachment).await?;
                    let published = kubelet.publish(&volume, &attachment, "pod-1", false).await?;
                    bytes::verify(&published.path, false, &volume.name);
                    Ok(())
                };
                let what = format!("{target:?} {moment:?} into stage");
                kill_during(&mut fixture, target, moment, &what, work).await;
                let work = async {
                    kubelet.unpublish(&volume, "pod-1").await?;
                    kubelet.unstage(&volume).await
                };
                let what = format!("{target:?} {moment:?} into unpublish");
                kill_during(&mut fixture, target, moment, &what, work).await;
            }
        }
        fixture.discard(&volume).await;
    }
    fixture.finish().await;
}
