//! Kills each process with SIGKILL before each step of a volume's life cycle, and in the middle of
//! steps: the orchestrator's retries converge.

use std::time::Duration;

use ebs_csi_e2e::{Life, LifecycleStep, Setting, bytes, tool_at_work};
use ebs_csi_sandbox::co::Claim;
use serde_json::json;

/// The process to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
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

/// Kills the victim and restarts it a moment later, while the orchestrator already makes its call.
async fn strike(setting: &mut Setting, victim: Victim) {
    let pause = Duration::from_millis(30);
    let before = pids(setting, victim);
    let nodes = setting.world.nodes.len();
    match victim {
        Victim::Controller => {
            setting.world.controller.kill().await.unwrap();
            tokio::time::sleep(pause).await;
            setting.world.start_controller().await.unwrap();
        }
        Victim::Agent => {
            for node in &mut setting.world.nodes {
                node.agent.kill().await.unwrap();
            }
            tokio::time::sleep(pause).await;
            for index in 0..nodes {
                setting.world.start_agent(index).await.unwrap();
            }
        }
        Victim::Helper | Victim::HelperSupervisor => {
            for node in &mut setting.world.nodes {
                if victim == Victim::Helper {
                    node.helper.kill_family().await.unwrap();
                } else {
                    node.helper.kill().await.unwrap();
                }
            }
            tokio::time::sleep(pause).await;
            for index in 0..nodes {
                setting.world.start_helper(index).await.unwrap();
            }
        }
        Victim::Ec2 => setting.requests().outage(150).await,
    }
    let after = pids(setting, victim);
    assert!(
        before.iter().all(|pid| !after.contains(pid)),
        "{victim:?} was not killed: {before:?}, then {after:?}"
    );
}

/// Returns the processes to kill.
fn pids(setting: &Setting, victim: Victim) -> Vec<i32> {
    let nodes = &setting.world.nodes;
    match victim {
        Victim::Controller => setting.world.controller.pid().into_iter().collect(),
        Victim::Agent => nodes.iter().filter_map(|node| node.agent.pid()).collect(),
        Victim::Helper => nodes.iter().flat_map(|node| node.helper.process_tree()).collect(),
        Victim::HelperSupervisor => nodes.iter().filter_map(|node| node.helper.pid()).collect(),
        Victim::Ec2 => Vec::new(),
    }
}

/// Runs a life cycle with a kill before each of its steps. Returns the steps that failed.
async fn life_with_kills(setting: &mut Setting, victim: Victim, claim: Claim) -> Vec<String> {
    let mut life = Life::of(setting, claim.clone());
    let mut failed = Vec::new();
    for step in LifecycleStep::ALL {
        let ((), outcome) = tokio::join!(strike(setting, victim), async {
            // The process is dead when the first attempt is made.
            tokio::time::sleep(Duration::from_millis(5)).await;
            life.step(step).await
        });
        if let Err(e) = outcome {
            failed.push(format!("{step:?} after kill -9 of {victim:?}: {e}"));
            break;
        }
    }
    failed
}

async fn killed_before_every_step(victim: Victim, claims: [Claim; 2]) {
    let Some(mut setting) = Setting::start().await else { return };
    for claim in claims {
        let mark = setting.requests().mark().await;
        let name = claim.name.clone();
        let failed = life_with_kills(&mut setting, victim, claim).await;
        assert!(failed.is_empty(), "{failed:?}\n{}", setting.logs());
        println!(
            "{victim:?} killed before each of {} steps of {name}: converged",
            LifecycleStep::ALL.len()
        );
        let effective = setting.requests().effective(mark).await;
        for (action, times) in [
            ("CreateVolume", 2),
            ("CopyVolumes", 1),
            ("CreateSnapshot", 1),
            ("ModifyVolume", 1),
            ("DeleteVolume", 3),
        ] {
            assert_eq!(effective.get(action), Some(&times), "{victim:?} {name}: {effective:?}");
        }
    }
    setting.finish().await;
}

fn claims(victim: &str) -> [Claim; 2] {
    [
        Claim::filesystem(&format!("pvc-{victim}-ext4"), "ext4", 10),
        Claim::block(&format!("pvc-{victim}-block"), 10),
    ]
}

#[tokio::test]
async fn the_controller_may_die_before_any_step() {
    killed_before_every_step(Victim::Controller, claims("controller")).await;
}

#[tokio::test]
async fn the_node_agent_may_die_before_any_step() {
    killed_before_every_step(Victim::Agent, claims("agent")).await;
}

#[tokio::test]
async fn the_mount_helper_may_die_before_any_step() {
    killed_before_every_step(Victim::Helper, claims("helper")).await;
}

#[tokio::test]
async fn mount_helper_supervisor_may_die_before_any_step() {
    let [mut first, second] = claims("supervisor");
    first.content = Claim::filesystem("", "xfs", 10).content;
    killed_before_every_step(Victim::HelperSupervisor, [first, second]).await;
}

#[tokio::test]
async fn ec2_may_be_unreachable_before_any_step() {
    killed_before_every_step(Victim::Ec2, claims("ec2")).await;
}

/// The controller is killed after EC2 has accepted the request and before EC2 replies.
#[tokio::test]
async fn controller_killed_during_ec2_call_duplicates_nothing() {
    let Some(mut setting) = Setting::start().await else { return };
    let claim = Claim::filesystem("pvc-mid", "ext4", 10);
    let mut life = Life::of(&setting, claim);
    let mark = setting.requests().mark().await;
    for step in LifecycleStep::ALL {
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
        let before = setting.requests().mark().await;
        if action.is_some() {
            setting.latency(json!({ "api_write": { "fixed_ms": 400 } })).await;
        }
        let ((), outcome) = tokio::join!(
            async {
                let Some(action) = action else { return };
                setting.requests().until(before, action).await;
                setting.world.controller.kill().await.unwrap();
                setting.latency(json!({ "api_write": { "fixed_ms": 2 } })).await;
                setting.world.start_controller().await.unwrap();
                println!("controller killed while EC2 worked on {action} ({step:?})");
            },
            life.step(step)
        );
        if let Err(e) = outcome {
            panic!("{step:?}: {e}\n{}", setting.logs());
        }
    }
    let effective = setting.requests().effective(mark).await;
    for (action, times) in
        [("CreateVolume", 2), ("CopyVolumes", 1), ("CreateSnapshot", 1), ("ModifyVolume", 1)]
    {
        assert_eq!(effective.get(action), Some(&times), "{effective:?}");
    }
    setting.finish().await;
}

/// The tool is stopped in the middle of a format, then the victim is killed.
#[tokio::test]
async fn kill_during_format_strands_no_volume() {
    let Some(mut setting) = Setting::start().await else { return };
    for victim in [Victim::Agent, Victim::Helper, Victim::HelperSupervisor] {
        for kind in ["ext4", "xfs"] {
            let claim = Claim::filesystem(
                &format!("pvc-format-{kind}-{victim:?}").to_lowercase(),
                kind,
                10,
            );
            let (volume, attachment) = setting.attached(&claim).await;
            let kubelet = setting.kubelets[0].clone();
            let (volume_asked, attachment_asked) = (volume.clone(), attachment.clone());
            let staging =
                tokio::spawn(async move { kubelet.stage(&volume_asked, &attachment_asked).await });
            let tool = tool_at_work::catch(&setting.world.nodes[0]).await;
            strike(&mut setting, victim).await;
            assert_eq!(
                tool.alive(),
                victim == Victim::Agent,
                "{victim:?}: the tool outlives the agent and nobody else"
            );
            drop(tool);
            if let Err(e) = staging.await.unwrap() {
                panic!("{victim:?} {kind}: {e}\n{}", setting.logs());
            }
            let target = setting
                .must("publish", setting.kubelets[0].publish(&volume, &attachment, "pod-1", false))
                .await;
            bytes::write(&target.path, false, &volume.name);
            bytes::prove(&target.path, false, &volume.name);
            setting.must("unpublish", setting.kubelets[0].unpublish(&volume, "pod-1")).await;
            setting.discard(&volume).await;
            println!("{victim:?} killed while {kind} was made: converged");
        }
    }
    setting.finish().await;
}

/// Each node process is killed some milliseconds after a call began, on a volume with data.
#[tokio::test]
async fn node_process_kill_mid_call_loses_no_data() {
    let Some(mut setting) = Setting::start().await else { return };
    for kind in ["ext4", "xfs"] {
        let claim = Claim::filesystem(&format!("pvc-moments-{kind}"), kind, 2);
        let (volume, attachment) = setting.attached(&claim).await;
        let kubelet = setting.kubelets[0].clone();
        setting.must("stage", kubelet.stage(&volume, &attachment)).await;
        let target =
            setting.must("publish", kubelet.publish(&volume, &attachment, "pod-1", false)).await;
        bytes::write(&target.path, false, &volume.name);
        setting.must("unpublish", kubelet.unpublish(&volume, "pod-1")).await;
        setting.must("unstage", kubelet.unstage(&volume)).await;
        for victim in [Victim::Agent, Victim::Helper] {
            for moment in [0, 1, 2, 4, 8, 16, 32] {
                let moment = Duration::from_millis(moment);
                let kubelet = kubelet.clone();
                let work = async {
                    kubelet.stage(&volume, &attachment).await?;
                    let target = kubelet.publish(&volume, &attachment, "pod-1", false).await?;
                    bytes::prove(&target.path, false, &volume.name);
                    Ok::<_, ebs_csi_sandbox::CoError>(())
                };
                let ((), up) = tokio::join!(
                    async {
                        tokio::time::sleep(moment).await;
                        strike(&mut setting, victim).await;
                    },
                    work
                );
                if let Err(e) = up {
                    panic!("{victim:?} {moment:?} into stage: {e}\n{}", setting.logs());
                }
                let work = async {
                    kubelet.unpublish(&volume, "pod-1").await?;
                    kubelet.unstage(&volume).await
                };
                let ((), down) = tokio::join!(
                    async {
                        tokio::time::sleep(moment).await;
                        strike(&mut setting, victim).await;
                    },
                    work
                );
                if let Err(e) = down {
                    panic!("{victim:?} {moment:?} into unpublish: {e}\n{}", setting.logs());
                }
            }
        }
        setting.discard(&volume).await;
    }
    setting.finish().await;
}
