//! The leader is killed while it acts.

use std::time::Duration;

use crate::environment::driver;
use crate::environment::world::{TestResult, World, wait_until};
use crate::scenarios::Scenario;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![Scenario::new("F14_F15_leader_killed_during_failover", leader_killed(world))]
}

/// Kills the leader with SIGKILL: another replica takes over, and every scenario that runs beside
/// this one ends as it should.
async fn leader_killed(world: &World<'_>) -> TestResult {
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(9)).await;
        wait_until("somebody leads", || async { Ok(world.leader().await?.is_some()) }).await?;
        let leader = world.leader().await?;
        let mut replicas = 0..driver::REPLICAS;
        let leads = |number: &usize| leader.as_deref() == Some(&format!("replica-{number}"));
        let number = replicas.find(leads).ok_or("the leader is none of the replicas")?;
        world.driver.kill_replica(number)?;
    }
    world.wait_for_metric("aws_ebs_csi_safe_detach_failover_leader").await
}
