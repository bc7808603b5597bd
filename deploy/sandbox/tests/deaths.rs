//! Kills each process of the driver with SIGKILL between any two steps of a volume's life cycle;
//! the next step converges.

use ebs_csi_policy::profile::{self, Profile};
use ebs_csi_sandbox::audit::{ALWAYS_RUNNING, survey};
use ebs_csi_sandbox::binaries::{OF_WORLD, for_test};
use ebs_csi_sandbox::co::{Claim, Volume};
use ebs_csi_sandbox::demo::Ec2;
use ebs_csi_sandbox::{World, WorldOptions};
use rustix::process::{Pid, Signal, kill_process};

/// Short transitions: the test is about order, not time.
const SCENARIO: &str = "profile = \"fast\"\n[limits]\nenabled = false\n";

/// Kills the process of `profile` on node 0 and restarts everything that ended with it.
async fn kill(world: &mut World, profile: &Profile) {
    let seen = survey(world).unwrap();
    let node = world.nodes[0].name.clone();
    let target = seen
        .iter()
        .find(|process| {
            let is_of_node = profile.name == profile::CONTROLLER.name || process.place == node;
            process.profile.name == profile.name && is_of_node
        })
        .unwrap_or_else(|| panic!("no {} in {seen:?}", profile.name));
    let pid = i32::try_from(target.process.pid).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    // When one process of the helper ends, the others end, too; the container runtime then restarts
    // the helper.
    for _ in 0..2_000 {
        if !world.ended_processes().unwrap().is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let restarted = world.restart_ended().await.unwrap();
    assert_eq!(restarted.len(), 1, "{}: {restarted:?}", profile.name);
}

async fn run_life_cycle(world: &mut World, claim: &Claim, profile: &Profile) -> Volume {
    let co = world.co().unwrap();
    let kubelet = world.kubelet(0).unwrap();
    let instance = world.nodes[0].instance.clone();
    let volume = co.create(claim).await.unwrap();
    kill(world, profile).await;
    let attachment = co.attach(&volume, &instance).await.unwrap();
    kill(world, profile).await;
    kubelet.stage(&volume, &attachment).await.unwrap();
    kill(world, profile).await;
    let published = kubelet.publish(&volume, &attachment, "pod", false).await.unwrap();
    let file = published.path.join("file");
    if !volume.is_block() {
        std::fs::write(&file, profile.name).unwrap();
    }
    kill(world, profile).await;
    // The next call finds the result of the calls before the kill.
    assert_eq!(co.create(claim).await.unwrap().id, volume.id);
    kubelet.stage(&volume, &attachment).await.unwrap();
    kubelet.publish(&volume, &attachment, "pod", false).await.unwrap();
    if !volume.is_block() {
        assert_eq!(std::fs::read_to_string(&file).unwrap(), profile.name);
    }
    kubelet.unpublish(&volume, "pod").await.unwrap();
    kill(world, profile).await;
    kubelet.unstage(&volume).await.unwrap();
    kill(world, profile).await;
    co.detach(&volume.id, &instance).await.unwrap();
    kill(world, profile).await;
    co.delete(&volume.id).await.unwrap();
    volume
}

#[tokio::test]
async fn volume_lifecycle_survives_sigkill_between_any_two_steps() {
    let Some(binaries) = for_test(&OF_WORLD) else { return };
    let mut options = WorldOptions::new(binaries);
    options.scenario = SCENARIO.to_owned();
    let mut world = World::start(options).await.unwrap();
    let claims = [
        Claim::filesystem("pvc-ext4", "ext4", 1),
        Claim::filesystem("pvc-xfs", "xfs", 1),
        Claim::block("pvc-raw", 1),
    ];
    for profile in ALWAYS_RUNNING {
        for claim in &claims {
            let volume = run_life_cycle(&mut world, claim, profile).await;
            let ec2 = Ec2::new(&world.simulator);
            let left = ec2.volumes("tag:CSIVolumeName", &claim.name).await.unwrap();
            let gone = left.iter().all(|shown| shown.status == "deleting");
            assert!(gone, "{} after {}: {left:?}", volume.id, profile.name);
        }
    }
    let found = world.simulator.get("/v1/invariants").await.unwrap();
    assert_eq!(found["ok"], true, "{found}");
    let ended = world.shutdown().await.unwrap();
    assert_eq!(ended.leftovers, Vec::<String>::new());
}
