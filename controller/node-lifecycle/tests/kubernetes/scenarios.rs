//! The scenarios, by their numbers.

use std::path::Path;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::cluster::{Outcome, World, must, until};
use crate::control_plane::{self, ControlPlane};
use crate::driver::{self, Driver};
use crate::manifests;
use crate::nodes::Nodes;
use crate::permissions;

/// Nodes beside those of the scenarios, so that the brake lets five nodes through.
const BESIDE: usize = 88;
/// A scenario that does not end has failed.
const PATIENCE: Duration = Duration::from_secs(240);

pub(crate) type Outcomes = Vec<(&'static str, Outcome)>;

fn instance(number: usize) -> String {
    format!("i-{number:017x}")
}

/// Runs those whose name contains one of the filters, or all. `Err`: they cannot run here.
pub(crate) async fn all(filter: &[String]) -> Result<Outcomes, String> {
    control_plane::programs()?;
    driver::programs()?;
    let outcomes = begin(filter).await;
    Ok(outcomes.unwrap_or_else(|why| vec![("kubernetes_begins", Err(why))]))
}

async fn begin(filter: &[String]) -> Result<Outcomes, String> {
    use std::os::unix::fs::PermissionsExt;
    let scratch = tempfile::tempdir().map_err(|e| e.to_string())?;
    // node-lifecycle is another user, and finds its kubeconfig and its socket there.
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(scratch.path(), open).map_err(|e| e.to_string())?;
    let mut plane = ControlPlane::start(scratch.path()).await?;
    let admin = plane.client("admin").await?;
    let instances: Vec<String> = (1..=16).map(instance).collect();
    let mut driver = Driver::start(scratch.path(), &instances).await?;
    manifests::apply(
        &admin,
        &[
            "csidriver.yaml",
            "node-lifecycle-rbac.yaml",
            "node-lifecycle-policy.yaml",
        ],
    )
    .await?;
    let nodes = Nodes::new(admin.clone());
    let renewing = tokio::spawn(nodes.clone().run());
    for number in 0..BESIDE {
        let zone = ["us-east-1a", "us-east-1b", "us-east-1c"][number % 3];
        let name = format!("beside-{number:02}");
        nodes.create(&name, &instance(1000 + number), zone).await?;
    }
    for number in 1..=15 {
        let name = format!("node-{number}");
        nodes.create(&name, &instance(number), "us-east-1a").await?;
    }
    plane.start_controllers(&driver.csi)?;
    let kubeconfig = plane.kubeconfig("lifecycle");
    driver.start_lifecycle(&kubeconfig)?;

    let world = World {
        admin,
        nodes,
        driver: &driver,
    };
    let wanted = |name: &str| filter.is_empty() || filter.iter().any(|f| name.contains(f.as_str()));
    let run =
        async |name: &'static str,
               scenario: std::pin::Pin<Box<dyn Future<Output = Outcome> + '_>>| {
            if !wanted(name) {
                return None;
            }
            let outcome = tokio::time::timeout(PATIENCE, scenario).await;
            Some((
                name,
                outcome.unwrap_or_else(|_| Err(format!("not within {PATIENCE:?}"))),
            ))
        };
    let beside = tokio::join!(
        run(
            "F1_powered_off_pods_move_and_the_taint_is_lifted_by_the_return",
            Box::pin(powered_off(&world))
        ),
        run(
            "F2_terminated_and_the_node_object_deleted",
            Box::pin(terminated(&world))
        ),
        run("F3_stopped", Box::pin(stopped(&world))),
        run(
            "F9_cut_off_while_the_instance_runs_and_healed",
            Box::pin(cut_off(&world))
        ),
        run(
            "F31_node_object_deleted_while_the_instance_runs",
            Box::pin(object_deleted(&world))
        ),
        run(
            "F34_a_persons_taint_on_a_running_instance",
            Box::pin(persons_taint(&world))
        ),
        run(
            "F36_one_of_two_volumes_cannot_be_proved",
            Box::pin(half_proved(&world))
        ),
        run(
            "F37_a_pod_with_another_drivers_volume_stays",
            Box::pin(not_eligible(&world))
        ),
        run(
            "F33_attachment_deleted_by_hand_under_a_running_pod",
            Box::pin(deleted_by_hand(&world))
        ),
        run(
            "volumes_proved_one_by_one_free_the_pod_then_the_attachment",
            Box::pin(one_by_one(&world))
        ),
        run(
            "fenced_by_opt_in_the_instance_is_stopped_and_the_pod_moves",
            Box::pin(fenced(&world))
        ),
        run(
            "broken_glass_lets_go_what_it_names_and_nothing_else",
            Box::pin(broken_glass(&world))
        ),
        run(
            "a_node_that_is_opted_out_is_left_alone",
            Box::pin(opted_out(&world))
        ),
        run(
            "F14_F15_the_leader_is_killed_while_all_this_goes_on",
            Box::pin(leader_killed(&world, &kubeconfig))
        ),
    );
    let (a, b, c, d, e, f, g, h, i, j, k, l, m, n) = beside;
    let mut outcomes: Outcomes = [a, b, c, d, e, f, g, h, i, j, k, l, m, n]
        .into_iter()
        .flatten()
        .collect();
    // The brake's own, when no other node is silent any more.
    let last = run("F40_F41_too_many_nodes_at_once", Box::pin(too_many(&world))).await;
    outcomes.extend(last);
    let last = run(
        "each_permission_is_needed",
        Box::pin(permissions::each_is_needed(&plane)),
    )
    .await;
    outcomes.extend(last);
    let client = plane.client("lifecycle").await?;
    let last = run(
        "the_policy_allows_our_taint_only",
        Box::pin(permissions::only_our_taint(&world, client)),
    )
    .await;
    outcomes.extend(last);

    renewing.abort();
    let failed = outcomes.iter().any(|(_, outcome)| outcome.is_err());
    let alive = plane.check().and_then(|()| driver.check());
    if failed {
        println!("node-lifecycle:\n{}", driver.lifecycle_log());
        // The questions about suspects come every second.
        let log = driver.controller.log();
        let told = log
            .lines()
            .filter(|line| !line.contains("SafeDetach/Query"));
        println!("controller:\n{}", told.collect::<Vec<_>>().join("\n"));
    }
    if let Err(end) = alive {
        outcomes.push(("every_process_lives_on", Err(end)));
    }
    Ok(outcomes)
}

/// The instance is powered off: the taint, the pod elsewhere, the return.
async fn powered_off(world: &World<'_>) -> Outcome {
    let handle = world.volume("f1").await?;
    world.run_pod("f1-0", "node-1", &["f1"]).await?;
    let before = world.uid("f1-0").await?;
    world.driver.power(&instance(1), "stop")?;
    world.nodes.silence("node-1");
    until("our taint is on node-1", 60, || async {
        Ok(world.taints("node-1").await? == ["ebs-safe-detach"])
    })
    .await?;
    world.is_told("node-1", "NodeProvenDown").await?;
    world.pod_is_gone("f1-0").await?;
    world
        .is_detached("f1", "node-1", &handle, &instance(1))
        .await?;
    // What a StatefulSet and the scheduler would do.
    world.run_pod("f1-0", "node-2", &["f1"]).await?;
    must(world.uid("f1-0").await? != before, "the pod is another one")?;
    must(
        world.driver.is_attached(&handle, &instance(2))?,
        "the volume is at the other instance",
    )?;

    world.nodes.in_use("node-1", &[]).await?;
    world.driver.power(&instance(1), "start")?;
    // The former boot is heard of again: that proves nothing.
    world.nodes.boot("node-1", "boot-1").await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    must(
        world.taints("node-1").await? == ["ebs-safe-detach"],
        "the taint stays until another boot is Ready",
    )?;
    world.nodes.boot("node-1", "boot-2").await?;
    until("the taint is lifted", 30, || async {
        Ok(world.taints("node-1").await?.is_empty())
    })
    .await
}

/// The instance is terminated and the cloud controller deletes the Node object: no six minutes.
async fn terminated(world: &World<'_>) -> Outcome {
    let handle = world.volume("f2").await?;
    world.run_pod("f2-0", "node-3", &["f2"]).await?;
    world.driver.power(&instance(3), "terminate")?;
    world.nodes.delete("node-3").await?;
    world.pod_is_gone("f2-0").await?;
    world
        .is_detached("f2", "node-3", &handle, &instance(3))
        .await?;
    world.run_pod("f2-0", "node-2", &["f2"]).await
}

/// As F1, with the instance stopped before its node falls silent.
async fn stopped(world: &World<'_>) -> Outcome {
    let handle = world.volume("f3").await?;
    world.run_pod("f3-0", "node-4", &["f3"]).await?;
    world.nodes.silence("node-4");
    world.is_lost("node-4").await?;
    world.is_told("node-4", "SafeDetachUnproven").await?;
    must(
        world.taints("node-4").await?.is_empty(),
        "no taint without proof",
    )?;
    world.driver.power(&instance(4), "stop")?;
    until("our taint is on node-4", 30, || async {
        Ok(world.taints("node-4").await? == ["ebs-safe-detach"])
    })
    .await?;
    world.pod_is_gone("f3-0").await?;
    world
        .is_detached("f3", "node-4", &handle, &instance(4))
        .await?;
    // It comes back, so that it does not count as suspect.
    world.nodes.in_use("node-4", &[]).await?;
    world.driver.power(&instance(4), "start")?;
    world.nodes.boot("node-4", "boot-2").await?;
    until("the taint is lifted", 30, || async {
        Ok(world.taints("node-4").await?.is_empty())
    })
    .await
}

/// Only the API server does not hear of the node: nothing is done, and it heals by itself.
async fn cut_off(world: &World<'_>) -> Outcome {
    let handle = world.volume("f9").await?;
    world.run_pod("f9-0", "node-5", &["f9"]).await?;
    world.nodes.silence("node-5");
    world.is_lost("node-5").await?;
    world.is_told("node-5", "SafeDetachUnproven").await?;
    until("Kubernetes asks the pod to end", 60, || async {
        let pod = world.pods().get("f9-0").await.map_err(|e| e.to_string())?;
        Ok(pod.metadata.deletion_timestamp.is_some())
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    must(world.taints("node-5").await?.is_empty(), "no taint")?;
    must(
        world.pods().get("f9-0").await.is_ok(),
        "the pod's object stays",
    )?;
    must(world.is_kept("f9", "node-5").await?, "its attachment stays")?;
    must(
        world.driver.is_attached(&handle, &instance(5))?,
        "its volume stays",
    )?;
    world.nodes.boot("node-5", "boot-1").await?;
    until("node-5 is Ready again", 30, || world.is_ready("node-5")).await
}

/// Somebody deletes the Node object of a running instance: its volumes stay until the instance is off.
async fn object_deleted(world: &World<'_>) -> Outcome {
    let handle = world.volume("f31").await?;
    world.run_pod("f31-0", "node-6", &["f31"]).await?;
    world.nodes.delete("node-6").await?;
    world.is_told("node-6", "SafeDetachUnproven").await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    must(
        world.is_kept("f31", "node-6").await?,
        "its attachment stays",
    )?;
    must(
        world.driver.is_attached(&handle, &instance(6))?,
        "its volume stays",
    )?;
    // Its kubelet registers again.
    world
        .nodes
        .create("node-6", &instance(6), "us-east-1a")
        .await?;
    must(world.taints("node-6").await?.is_empty(), "no taint")
}

/// Kubernetes takes a person's word and deletes everything; the controller does not, until EC2 proves it. The taint is the person's.
async fn persons_taint(world: &World<'_>) -> Outcome {
    let handle = world.volume("f34").await?;
    world.run_pod("f34-0", "node-7", &["f34"]).await?;
    world.nodes.silence("node-7");
    world.is_lost("node-7").await?;
    let taints = json!({"spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}]}});
    let how = PatchParams::default();
    let patched = world
        .all_nodes()
        .patch("node-7", &how, &Patch::Strategic(taints))
        .await;
    patched.map_err(|e| e.to_string())?;
    until("the detach is refused", 90, || async {
        let attachment = world.attachment("f34", "node-7").await?;
        let error = attachment
            .and_then(|a| a.status)
            .and_then(|s| s.detach_error);
        Ok(error.is_some_and(|error| error.message.is_some()))
    })
    .await?;
    must(
        world.driver.is_attached(&handle, &instance(7))?,
        "the volume stays at the running instance",
    )?;
    must(
        world.taints("node-7").await? == ["nodeshutdown"],
        "the taint is the person's",
    )?;
    world.driver.power(&instance(7), "stop")?;
    // external-attacher would try again after a minute: the nudge has it try at once.
    world
        .is_detached("f34", "node-7", &handle, &instance(7))
        .await?;
    must(
        world.taints("node-7").await? == ["nodeshutdown"],
        "nobody touches the person's taint",
    )?;
    world.driver.power(&instance(7), "start")?;
    world.nodes.in_use("node-7", &[]).await?;
    world.nodes.boot("node-7", "boot-2").await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    must(
        world.taints("node-7").await? == ["nodeshutdown"],
        "nobody lifts the person's taint",
    )
}

/// One of the pod's volumes was detached in EC2; the other is at a running instance.
async fn half_proved(world: &World<'_>) -> Outcome {
    let gone = world.volume("f36-a").await?;
    let held = world.volume("f36-b").await?;
    world
        .run_pod("f36-0", "node-8", &["f36-a", "f36-b"])
        .await?;
    world.nodes.silence("node-8");
    world.detach_in_ec2(&gone)?;
    world.is_lost("node-8").await?;
    world.is_told("node-8", "SafeDetachUnproven").await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    must(world.pods().get("f36-0").await.is_ok(), "the pod stays")?;
    for claim in ["f36-a", "f36-b"] {
        must(
            world.is_kept(claim, "node-8").await?,
            "the attachments that the pod needs stay",
        )?;
    }
    must(
        world.driver.is_attached(&held, &instance(8))?,
        "the other volume stays",
    )?;
    world.nodes.boot("node-8", "boot-1").await
}

/// The pod's volume of this driver was detached in EC2; of the other driver's nothing is known.
async fn not_eligible(world: &World<'_>) -> Outcome {
    let handle = world.volume("f37").await?;
    world.foreign_volume("f37-foreign").await?;
    world.run_pod("f37-0", "node-10", &["f37"]).await?;
    world
        .add_pod("f37-1", "node-10", &["f37", "f37-foreign"])
        .await?;
    world.end_pod("f37-0").await?;
    world.nodes.silence("node-10");
    world.detach_in_ec2(&handle)?;
    world.is_lost("node-10").await?;
    world.is_told("node-10", "SafeDetachUnproven").await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    must(world.pods().get("f37-1").await.is_ok(), "the pod stays")?;
    must(
        world.is_kept("f37", "node-10").await?,
        "the attachment that the pod needs stays",
    )?;
    world.nodes.boot("node-10", "boot-1").await
}

/// A person deletes the VolumeAttachment of a pod that runs: kubelet's word keeps the volume there, and lets it go when it is unmounted.
async fn deleted_by_hand(world: &World<'_>) -> Outcome {
    let handle = world.volume("f33").await?;
    world.run_pod("f33-0", "node-11", &["f33"]).await?;
    world.delete_attachment("f33", "node-11").await?;
    // A replica that has just begun has seen no renewal of the lease yet, and has no word to give: then it is asked again.
    until("the detach is refused for the pod's sake", 60, || async {
        world.touch_attachment("f33", "node-11").await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.is_refused("f33", "node-11", "in-use").await
    })
    .await?;
    must(
        world.driver.is_attached(&handle, &instance(11))?,
        "the volume stays under the pod",
    )?;
    world.end_pod("f33-0").await?;
    world.nodes.in_use("node-11", &[]).await?;
    // external-attacher tries again at once when the object changes.
    let begun = std::time::Instant::now();
    while world.attachment("f33", "node-11").await?.is_some() {
        must(begun.elapsed() < Duration::from_secs(60), "it is let go")?;
        world.touch_attachment("f33", "node-11").await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    must(
        !world.driver.is_attached(&handle, &instance(11))?,
        "the volume is free",
    )
}

/// Its instance runs, and each of the pod's volumes was detached in EC2: the pod, then the attachments, and no taint.
async fn one_by_one(world: &World<'_>) -> Outcome {
    let handles = [
        world.volume("single-a").await?,
        world.volume("single-b").await?,
    ];
    world
        .run_pod("single-0", "node-12", &["single-a", "single-b"])
        .await?;
    world.nodes.silence("node-12");
    world.is_lost("node-12").await?;
    for handle in &handles {
        world.detach_in_ec2(handle)?;
    }
    world.pod_is_gone("single-0").await?;
    for (claim, handle) in ["single-a", "single-b"].into_iter().zip(&handles) {
        world
            .is_detached(claim, "node-12", handle, &instance(12))
            .await?;
    }
    must(
        world.taints("node-12").await?.is_empty(),
        "nothing is known of the instance",
    )?;
    world.nodes.in_use("node-12", &[]).await?;
    world.nodes.boot("node-12", "boot-1").await
}

/// As F9 on a node whose instance may be fenced.
async fn fenced(world: &World<'_>) -> Outcome {
    let handle = world.volume("fence").await?;
    world.run_pod("fence-0", "node-13", &["fence"]).await?;
    let label = json!({"metadata": {"labels": {"ebs.csi.aws.com/fence": "true"}}});
    let how = PatchParams::default();
    let patched = world
        .all_nodes()
        .patch("node-13", &how, &Patch::Merge(label))
        .await;
    patched.map_err(|e| e.to_string())?;
    world.nodes.silence("node-13");
    world.is_lost("node-13").await?;
    world.is_told("node-13", "FenceRequested").await?;
    until("our taint is on node-13", 60, || async {
        Ok(world.taints("node-13").await? == ["ebs-safe-detach"])
    })
    .await?;
    world.pod_is_gone("fence-0").await?;
    world
        .is_detached("fence", "node-13", &handle, &instance(13))
        .await?;
    world.nodes.in_use("node-13", &[]).await?;
    world.driver.power(&instance(13), "start")?;
    world.nodes.boot("node-13", "boot-2").await
}

/// The pod goes on using the volume; a person orders its detach nevertheless: first of another attachment, then of this one.
async fn broken_glass(world: &World<'_>) -> Outcome {
    let handle = world.volume("glass").await?;
    world.run_pod("glass-0", "node-14", &["glass"]).await?;
    world.delete_attachment("glass", "node-14").await?;
    let of_another = format!("{} 2026-01-01T00:00:00Z", instance(14));
    world.break_glass("glass", "node-14", &of_another).await?;
    until("the detach is refused for the pod's sake", 60, || async {
        world.touch_attachment("glass", "node-14").await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.is_refused("glass", "node-14", "in-use").await
    })
    .await?;
    must(
        world.driver.is_attached(&handle, &instance(14))?,
        "an order about another attachment changes nothing",
    )?;
    let since = world.driver.attached_since(&handle)?;
    let order = format!("{} {since}", instance(14));
    world.break_glass("glass", "node-14", &order).await?;
    // The pod still wants the volume: Kubernetes may have it attached again before the next look, as another attachment.
    until("the attachment is let go", 60, || async {
        world.touch_attachment("glass", "node-14").await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(world.driver.attached_since(&handle).ok().as_ref() != Some(&since))
    })
    .await?;
    world.end_pod("glass-0").await?;
    world.nodes.in_use("node-14", &[]).await
}

/// As F1 on a node that a person wants to be left alone.
async fn opted_out(world: &World<'_>) -> Outcome {
    let handle = world.volume("opt-out").await?;
    world.run_pod("opt-out-0", "node-15", &["opt-out"]).await?;
    let label = json!({"metadata": {"labels": {"ebs.csi.aws.com/failover": "off"}}});
    let how = PatchParams::default();
    let patched = world
        .all_nodes()
        .patch("node-15", &how, &Patch::Merge(label))
        .await;
    patched.map_err(|e| e.to_string())?;
    world.driver.power(&instance(15), "stop")?;
    world.nodes.silence("node-15");
    world.is_lost("node-15").await?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    must(world.taints("node-15").await?.is_empty(), "no taint")?;
    must(
        world.is_kept("opt-out", "node-15").await?,
        "the attachment stays",
    )?;
    must(
        world.driver.is_attached(&handle, &instance(15))?,
        "the volume stays",
    )?;
    world.driver.power(&instance(15), "start")?;
    world.nodes.boot("node-15", "boot-2").await
}

/// kill -9 of whoever leads: another goes on, and every scenario beside this one ends as it should.
async fn leader_killed(world: &World<'_>, kubeconfig: &Path) -> Outcome {
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(9)).await;
        let mut first = None;
        until("somebody leads", 30, || async {
            Ok(world.leader().await?.is_some())
        })
        .await?;
        let leader = world.leader().await?;
        for number in 0..driver::REPLICAS {
            if leader.as_deref() == Some(&format!("replica-{number}")) {
                world.driver.kill_replica(number, kubeconfig)?;
                first = leader.clone();
            }
        }
        must(first.is_some(), "the leader is one of the replicas")?;
    }
    until("somebody leads again", 30, || async {
        Ok(world
            .driver
            .metric("aws_ebs_csi_safe_detach_failover_leader")
            >= 1.0)
    })
    .await
}

/// More than half of every zone is silent, and an instance that is off among them; then fewer, and the brake's share is used up; then the kill switch; then nothing.
async fn too_many(world: &World<'_>) -> Outcome {
    world.volume("f40").await?;
    world.run_pod("f40-0", "node-9", &["f40"]).await?;
    for number in 0..BESIDE {
        world.nodes.silence(&format!("beside-{number:02}"));
    }
    for number in [10, 11, 12] {
        world.nodes.silence(&format!("node-{number}"));
    }
    world.is_lost("beside-87").await?;
    world.driver.power(&instance(9), "stop")?;
    world.nodes.silence("node-9");
    world.is_lost("node-9").await?;
    let held = |why: &'static str| {
        let line = format!("aws_ebs_csi_safe_detach_failover_held{{reason=\"{why}\"}}");
        until_owned(world, why, line)
    };
    held("outage").await?;
    must(
        world.taints("node-9").await?.is_empty(),
        "no taint in an outage",
    )?;
    // Five of a hundred nodes within ten minutes are the share.
    let now = jiff::Timestamp::now();
    let journal =
        json!({"node-1": now, "node-2": now, "node-4": now, "node-5": now, "node-6": now});
    set_journal(world, &journal.to_string()).await?;
    for number in 0..BESIDE {
        let name = format!("beside-{number:02}");
        world.nodes.boot(&name, "boot-1").await?;
    }
    held("cluster-share").await?;
    must(
        world.taints("node-9").await?.is_empty(),
        "no taint beyond the share",
    )?;
    world.kill_switch(true).await?;
    set_journal(world, "{}").await?;
    held("kill-switch").await?;
    must(
        world.taints("node-9").await?.is_empty(),
        "no taint while it is stopped",
    )?;
    world.kill_switch(false).await?;
    until("our taint is on node-9", 60, || async {
        Ok(world.taints("node-9").await? == ["ebs-safe-detach"])
    })
    .await
}

async fn until_owned(world: &World<'_>, why: &str, line: String) -> Outcome {
    until(&format!("a node is held: {why}"), 60, || async {
        Ok(world.driver.metric(&line) >= 1.0)
    })
    .await
}

async fn set_journal(world: &World<'_>, text: &str) -> Outcome {
    use k8s_openapi::api::coordination::v1::Lease;
    let leases: kube::Api<Lease> = kube::Api::namespaced(world.admin.clone(), "kube-system");
    let patch = json!({"metadata": {"annotations": {"ebs.csi.aws.com/acted-on": text}}});
    let how = PatchParams::default();
    let patched = leases
        .patch("ebs-csi-node-lifecycle", &how, &Patch::Merge(patch))
        .await;
    patched.map(drop).map_err(|e| e.to_string())
}
