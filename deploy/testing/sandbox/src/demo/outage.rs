//! Another zone fails: the life cycles of volumes in the healthy zone continue unchanged.

use std::time::Duration;

use ebs_csi_proto::csi;
use serde_json::json;
use tokio::time::timeout;

use super::{Result, Scene, ensure};
use crate::co::{Claim, Co};

const ZONE: &str = "us-east-1b";
/// The instance in that zone; it runs no driver.
const INSTANCE: &str = "i-0bbbbbbbbbbbbbbb1";
/// The number of volumes before the outage, and again during it.
const VOLUMES: usize = 5;
const CALLS_OF_A_LIFE: [&str; 4] =
    ["CreateVolume", "ControllerPublishVolume", "ControllerUnpublishVolume", "DeleteVolume"];
/// The time for which a detach in the failed zone is attempted.
const DETACH_TIMEOUT: Duration = Duration::from_secs(2);

impl Scene<'_> {
    /// Makes calls that concern zone us-east-1b or name no id fail, or makes them work again.
    pub(super) async fn zone_fails(&mut self, fails: bool) -> Result<()> {
        let (state, proof) = match fails {
            true => ("unavailable", "EC2 refuses listings, and all calls about that zone"),
            false => ("available", "EC2 answers all calls"),
        };
        let path = format!("/v1/zones/{ZONE}");
        self.world.simulator.put(&path, &json!({ "state": state })).await?;
        self.narrator.done(&format!("zone {ZONE} is {state}"), proof);
        Ok(())
    }
}

pub(super) async fn show(scene: &mut Scene<'_>) -> Result<()> {
    scene.narrator.chapter("another zone fails; this one goes on");
    // With volumes in both zones, the driver may ask EC2 about both in one call.
    let there = Co::new(scene.world.controller_socket(), ZONE)?;
    let claim = Claim::filesystem("pvc-cut-off", "ext4", 1);
    let cut_off = there.create(&claim).await?;
    there.attach(&cut_off, INSTANCE).await?;
    scene.narrator.done(&format!("create, attach pvc-cut-off in {ZONE}"), &cut_off.id);
    run_life_cycles(scene, "before").await?;
    scene.zone_fails(true).await?;
    run_life_cycles(scene, "during").await?;
    // The driver must not report success for a detach in the failed zone, whose state it cannot
    // know.
    let request = csi::ControllerUnpublishVolumeRequest {
        volume_id: cut_off.id.clone(),
        node_id: INSTANCE.to_owned(),
        ..Default::default()
    };
    let mut controller = there.controller();
    let asked = controller.controller_unpublish_volume(request);
    let answer = timeout(DETACH_TIMEOUT, asked).await;
    ensure(!matches!(answer, Ok(Ok(_))), || format!("the detach in {ZONE} ended with {answer:?}"))?;
    scene.narrator.done(&format!("detach in {ZONE}"), "is not said to be done");
    scene.zone_fails(false).await?;
    there.detach(&cut_off.id, INSTANCE).await?;
    there.delete(&cut_off.id).await?;
    scene.narrator.done("detach, delete pvc-cut-off", "when the zone is back");
    Ok(())
}

/// Runs the life cycle of volumes of the healthy zone, from create to delete; each call must
/// succeed on the first attempt.
async fn run_life_cycles(scene: &mut Scene<'_>, when: &str) -> Result<()> {
    let (co, instance) = (scene.co.clone(), scene.instance(0));
    for index in 0..VOLUMES {
        let volume =
            co.create(&Claim::filesystem(&format!("pvc-{when}-{index}"), "ext4", 1)).await?;
        co.attach(&volume, &instance).await?;
        co.detach(&volume.id, &instance).await?;
        co.delete(&volume.id).await?;
        for rpc in CALLS_OF_A_LIFE {
            let attempts = co.attempts.attempts_of(rpc);
            ensure(attempts == 1, || format!("{rpc} took {attempts} attempts"))?;
        }
    }
    let proof = "each call succeeds at once";
    scene.narrator.done(&format!("{VOLUMES} volumes {when} the outage"), proof);
    Ok(())
}
