//! The leader is killed while it acts.

use std::time::Duration;

use crate::environment::driver;
use crate::environment::world::{Outcome, World, ensure, wait_until};
use crate::scenarios::Scenario;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![Scenario::new("F14_F15_leader_killed_during_failover", leader_killed(world))]
}

/// Kills the leader with SIGKILL: another replica takes over, and every scenario that runs beside
/// this one ends as it should.
async fn leader_killed(world: &World<'_>) -> Outcome {
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(9)).await;
        let mut first = None;
        wait_until("somebody leads", || async { Ok(world.leader().await?.is_some()) }).await?;
        let leader = world.leader().await?;
        for number in 0..driver::REPLICAS {
            if leader.as_deref() == Some(&format!("replica-{number}")) {
                world.driver.kill_replica(number, world.kubeconfig)?;
                first = leader.clone();
            }
        }
        ensure(first.is_some(), "the leader is one of the replicas")?;
    }
    wait_until("somebody leads again", || async {
        Ok(world.driver.metric("aws_ebs_csi_safe_detach_failover_leader") >= 1.0)
    })
    .await
}
