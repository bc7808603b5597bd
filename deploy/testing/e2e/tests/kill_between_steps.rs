//! Kills each process with SIGKILL before each step of a volume's life cycle, and in the middle of
//! steps: the orchestrator's retries converge.

use std::time::Duration;

use ebs_csi_e2e::{Fixture, Lifecycle, LifecycleStep};
use ebs_csi_policy::profile::{self, Profile};
use ebs_csi_sandbox::co::Claim;
use ebs_csi_sandbox::{CoError, Process, World, audit, pod_view};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

/// The time within which a controller ends after SIGTERM.
const GRACE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy)]
enum Target {
    Controller,
    Agent,
    Helper,
    /// One process of the helpers of both nodes, after whose end the others end, too.
    HelperPart(&'static Profile),
    /// EC2: not killed, but unreachable for a while.
    Ec2,
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Agent => "agent",
            Self::Helper => "helper",
            Self::HelperPart(profile) => profile.name,
            Self::Ec2 => "ec2",
        }
    }
}

/// Kills the target and restarts it a moment later, while the orchestrator already makes its call.
async fn kill(fixture: &mut Fixture, target: Target) {
    if let Target::Ec2 = target {
        return fixture.ec2().outage(150).await.unwrap();
    }
    let killed: Vec<String> =
        processes(&fixture.world, target).map(|process| process.name().to_owned()).collect();
    let before = pids(&fixture.world, target);
    for pid in &before {
        // A process of the helper may have ended with another one.
        let _ = kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL);
    }
    let world = &mut fixture.world;
    for _ in 0..2_000 {
        if world.ended_processes().unwrap().len() == killed.len() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(30)).await;
    let mut restarted = world.restart_ended().await.unwrap();
    restarted.sort();
    assert_eq!(restarted, killed, "{}", target.name());
    let after: Vec<i32> = processes(world, target).flat_map(Process::process_tree).collect();
    let is_left = before.iter().any(|pid| after.contains(pid));
    assert!(!is_left, "{} was not killed: {before:?}, then {after:?}", target.name());
}

fn processes(world: &World, target: Target) -> impl Iterator<Item = &Process> {
    let controller = matches!(target, Target::Controller).then_some(&world.controller);
    let nodes = if controller.is_some() { &[] } else { &world.nodes[..] };
    let is_agent = matches!(target, Target::Agent);
    let of_nodes = nodes.iter().map(move |node| if is_agent { &node.agent } else { &node.helper });
    controller.into_iter().chain(of_nodes)
}

fn pids(world: &World, target: Target) -> Vec<i32> {
    match target {
        Target::Helper => processes(world, target).flat_map(Process::process_tree).collect(),
        Target::HelperPart(profile) => {
            let seen = audit::survey(world).unwrap().into_iter();
            let of_profile = seen.filter(|seen| seen.profile.name == profile.name);
            let pids: Vec<_> = of_profile.map(|seen| seen.process.pid.cast_signed()).collect();
            assert_eq!(pids.len(), world.nodes.len(), "{}", profile.name);
            pids
        }
        _ => processes(world, target).filter_map(Process::pid).collect(),
    }
}

/// Checks how often each action had an effect on EC2 after `mark`.
async fn assert_effective(fixture: &Fixture, mark: u64, what: &str) {
    let effective = fixture.ec2().effective(mark).await.unwrap();
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

/// Runs life cycles with a kill before each step: of a file system of this type and of a raw block
/// volume.
async fn killed_before_every_step(target: Target, kind: &str) {
    let Some(mut fixture) = Fixture::start().await else { return };
    let name = target.name();
    for claim in [
        Claim::filesystem(&format!("pvc-{name}-{kind}"), kind, 10),
        Claim::block(&format!("pvc-{name}-block"), 10),
    ] {
        let mark = fixture.ec2().last().await.unwrap();
        let what = format!("{name} killed before each step of {}", claim.name);
        let mut volume = Lifecycle::new(&fixture, claim);
        for &step in LifecycleStep::ALL {
            let ((), outcome) = tokio::join!(kill(&mut fixture, target), async {
                // The process is dead when the first attempt is made.
                tokio::time::sleep(Duration::from_millis(5)).await;
                volume.step(step).await
            });
            fixture.must(&format!("{what}, {step:?}"), async { outcome }).await;
            if step == LifecycleStep::Publish {
                // The next calls find the results of the calls before the kill.
                kill(&mut fixture, target).await;
                fixture.must(&format!("{what}, repeated"), volume.repeat()).await;
            }
        }
        println!("{what}: converged");
        assert_effective(&fixture, mark, &what).await;
    }
    fixture.finish().await;
}

#[tokio::test]
async fn the_controller_may_die_before_any_step() {
    killed_before_every_step(Target::Controller, "ext4").await;
}

#[tokio::test]
async fn the_node_agent_may_die_before_any_step() {
    killed_before_every_step(Target::Agent, "ext4").await;
}

#[tokio::test]
async fn the_mount_helper_may_die_before_any_step() {
    killed_before_every_step(Target::Helper, "ext4").await;
}

#[tokio::test]
async fn mount_helper_supervisor_may_die_before_any_step() {
    killed_before_every_step(Target::HelperPart(profile::SUPERVISOR), "xfs").await;
}

#[tokio::test]
async fn mount_helper_broker_may_die_before_any_step() {
    killed_before_every_step(Target::HelperPart(profile::BROKER), "xfs").await;
}

#[tokio::test]
async fn mount_helper_directories_may_die_before_any_step() {
    killed_before_every_step(Target::HelperPart(profile::DIRECTORIES), "ext4").await;
}

#[tokio::test]
async fn mount_helper_opener_may_die_before_any_step() {
    killed_before_every_step(Target::HelperPart(profile::OPENER), "ext4").await;
}

#[tokio::test]
async fn ec2_may_be_unreachable_before_any_step() {
    killed_before_every_step(Target::Ec2, "ext4").await;
}

/// Ends the controller after EC2 has accepted each request and before EC2 replies: by SIGKILL, or
/// by SIGTERM, which must end it.
async fn ended_during_each_ec2_call(signal: Signal) {
    let Some(mut fixture) = Fixture::start().await else { return };
    let mut volume = Lifecycle::new(&fixture, Claim::filesystem("pvc-mid", "ext4", 10));
    let mark = fixture.ec2().last().await.unwrap();
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
        let before = fixture.ec2().last().await.unwrap();
        if action.is_some() {
            fixture.latency(json!({ "api_write": { "fixed_ms": 400 } })).await;
        }
        let ((), outcome) = tokio::join!(
            async {
                let Some(action) = action else { return };
                fixture.ec2().request(before, action).await.unwrap();
                let controller = &mut fixture.world.controller;
                match signal {
                    Signal::TERM => assert!(controller.stop(GRACE).await.unwrap(), "{step:?}"),
                    _ => controller.kill().await.unwrap(),
                }
                fixture.latency(json!({ "api_write": { "fixed_ms": 2 } })).await;
                fixture.world.start_controller().await.unwrap();
                println!("controller got {signal:?} while EC2 worked on {action} ({step:?})");
            },
            volume.step(step)
        );
        fixture.must(&format!("{step:?}"), async { outcome }).await;
    }
    assert_effective(&fixture, mark, "controller ended during each call").await;
    fixture.finish().await;
}

#[tokio::test]
async fn controller_killed_during_ec2_call_duplicates_nothing() {
    ended_during_each_ec2_call(Signal::KILL).await;
}

#[tokio::test]
async fn controller_drained_during_ec2_call_duplicates_nothing() {
    ended_during_each_ec2_call(Signal::TERM).await;
}

#[tokio::test]
async fn kill_during_format_strands_no_volume() {
    let Some(mut fixture) = Fixture::start().await else { return };
    for target in [Target::Agent, Target::Helper, Target::HelperPart(profile::SUPERVISOR)] {
        for kind in ["ext4", "xfs"] {
            let name = format!("pvc-format-{kind}-{}", target.name());
            let claim = Claim::filesystem(&name, kind, 10);
            let (volume, attachment) = fixture.attached(&claim).await;
            let (kubelet, on) = (fixture.kubelets[0].clone(), (volume.clone(), attachment.clone()));
            let staging = tokio::spawn(async move { kubelet.stage(&on.0, &on.1).await });
            let tool = fixture.catch_tool().await;
            kill(&mut fixture, target).await;
            // The tool outlives the agent and nobody else.
            assert_eq!(tool.alive(), matches!(target, Target::Agent), "{}", target.name());
            drop(tool);
            let staged = staging.await.unwrap();
            fixture.must(&format!("{} {kind}", target.name()), async { staged }).await;
            let kubelet = &fixture.kubelets[0];
            let published = kubelet.publish(&volume, &attachment, "pod-1", false);
            let published = fixture.must("publish", published).await;
            pod_view::write(&published, &volume.name).unwrap();
            pod_view::find(&published, &volume.name).unwrap();
            fixture.discard(&volume, &["pod-1"]).await;
            println!("{} killed while {kind} was made: converged", target.name());
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

#[tokio::test]
async fn node_process_kill_mid_call_loses_no_data() {
    let Some(mut fixture) = Fixture::start().await else { return };
    for kind in ["ext4", "xfs"] {
        let claim = Claim::filesystem(&format!("pvc-moments-{kind}"), kind, 2);
        let (volume, attachment) = fixture.attached(&claim).await;
        let kubelet = fixture.kubelets[0].clone();
        let published = fixture.published(&volume, &attachment, "pod-1").await;
        pod_view::write(&published, &volume.name).unwrap();
        fixture.must("unpublish", kubelet.unpublish(&volume, "pod-1")).await;
        fixture.must("unstage", kubelet.unstage(&volume)).await;
        for target in [Target::Agent, Target::Helper] {
            for moment in [0, 1, 2, 4, 8, 16, 32] {
                let moment = Duration::from_millis(moment);
                let kubelet = kubelet.clone();
                let work = async {
                    kubelet.stage(&volume, &attachment).await?;
                    let published = kubelet.publish(&volume, &attachment, "pod-1", false).await?;
                    pod_view::find(&published, &volume.name).unwrap();
                    Ok(())
                };
                let what = format!("{} {moment:?} into stage", target.name());
                kill_during(&mut fixture, target, moment, &what, work).await;
                let work = async {
                    kubelet.unpublish(&volume, "pod-1").await?;
                    kubelet.unstage(&volume).await
                };
                let what = format!("{} {moment:?} into unpublish", target.name());
                kill_during(&mut fixture, target, moment, &what, work).await;
            }
        }
        fixture.discard(&volume, &[]).await;
    }
    fixture.finish().await;
}
