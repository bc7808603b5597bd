//! The time that an attach waits while hundreds of detaches are pending.

use std::time::Duration;

use ebs_csi_sandbox::World;
use serde_json::json;

use super::load::{EndedCall, Sidecars, Workers, claim};
use crate::contestant::{Contestant, PER_INSTANCE, in_world};
use crate::error::{BenchError, Result};
use crate::extent::Extent;
use crate::report::figure::{Figure, Role, Statistic};
use crate::world::{create_as_other_client, instance, join_all};

/// The scenario of the burst, with 2 s to detach.
const SCENARIO: &str = "profile = \"instant\"\n[latency]\napi_read = { fixed_ms = 30 }\napi_write = { fixed_ms = 30 }\nvolume_create = { fixed_ms = 1500 }\nattach = { fixed_ms = 1200 }\ndetach = { fixed_ms = 2000 }\n";

/// Waits that are longer than the simulator takes to create and to attach.
const CREATED: Duration = Duration::from_secs(2);
const ATTACHED: Duration = Duration::from_secs(3);

/// The number of calls, and the interval between attaches.
#[derive(Clone, Copy)]
struct Size {
    detaches: usize,
    attaches: usize,
    apart: Duration,
}

pub(super) async fn measure(contestants: &[Contestant], extent: Extent) -> Result<Vec<Figure>> {
    let size = Size {
        detaches: extent.of(6, 500, 500),
        attaches: extent.of(2, 60, 60),
        apart: Duration::from_millis(if extent == Extent::Quick { 10 } else { 1_000 }),
    };
    let how = format!(
        "{} detaches asked for at once (EC2 takes 50, then 5 a second), then {} attaches, one each second; 100 workers. Replies in 30 ms, 1.2 s to attach, 2 s to detach.",
        size.detaches, size.attaches
    );
    let mut own =
        Figure::new("attach-own", "attach while detaches wait, with workers of its own", "s")
            .at_most_times_bound(Statistic::P99, 1.5)
            .note(how.clone())
            .note("The bound: the same attaches with no detach under way.");
    let mut shared = Figure::new("attach-shared", "attach while detaches wait, sharing 100 workers with them: from the queue to the end", "s")
        .note(how)
        .note("external-attacher has one pool. A detach holds a worker until EC2 has it done, so the queue moves with EC2's detach rate: with n detaches before it and 100 workers, an attach waits about (n - 100 - 50) / 5 s for a worker, whatever the driver does, unless the driver gives workers back by failing detaches early.");
    for contestant in contestants {
        let unloaded = run(contestant, Size { detaches: 0, ..size }, false).await?;
        let loaded = run(contestant, size, false).await?;
        let sharing = run(contestant, size, true).await?;
        own = own.row(contestant.role, &contestant.name, loaded).row(
            if contestant.role == Role::Ours { Role::Bound } else { Role::Part },
            &format!("{}: no detaches", contestant.name),
            unloaded,
        );
        shared = shared.row(contestant.role, &contestant.name, sharing);
    }
    shared = shared.row(
        Role::Bound,
        "the first attach, when workers are freed at EC2's detach rate",
        vec![least_wait(size.detaches)],
    );
    Ok(vec![own, shared])
}

/// Returns the bound in seconds for the first attach behind `detaches` detaches in one pool of 100
/// workers: a worker is free for the attach when all but 100 detaches are done.
fn least_wait(detaches: usize) -> f64 {
    let ahead = f64::from(u32::try_from(detaches.saturating_sub(100)).unwrap_or(u32::MAX));
    (ahead + 1.0 - 50.0).max(0.0) / 5.0 + 2.03 + 1.23
}

async fn run(contestant: &Contestant, size: Size, share: bool) -> Result<Vec<f64>> {
    let all = size.detaches + size.attaches;
    let world = contestant.world(all.div_ceil(PER_INSTANCE), SCENARIO).await?;
    in_world(world, async |world| detach_burst(world, size, share).await).await
}

async fn detach_burst(world: &World, size: Size, share: bool) -> Result<Vec<f64>> {
    let all = size.detaches + size.attaches;
    let instances = all.div_ceil(PER_INSTANCE);
    let sidecars = Sidecars::new(world, 100)?;
    // The volumes are not made through the driver, so that all token buckets, EC2's and the
    // driver's own, are full when the detaches begin.
    let limits = |enabled: bool| json!({ "enabled": enabled });
    world.simulator.put("/v1/limits", &limits(false)).await?;
    let mut prepared = Vec::with_capacity(all);
    for index in 0..all {
        prepared.push(claim(index).volume(create_as_other_client(world, "4").await?));
    }
    tokio::time::sleep(CREATED).await;
    for (index, volume) in prepared.iter().take(size.detaches).enumerate() {
        let device = u8::try_from(index / instances).unwrap_or(0);
        let parameters = json!({
            "VolumeId": volume.id, "InstanceId": instance(index % instances),
            "Device": format!("/dev/xvd{}", char::from(b'b' + device)),
        });
        world.simulator.call_as_other_client("AttachVolume", &parameters).await?;
    }
    tokio::time::sleep(ATTACHED).await;
    world.simulator.put("/v1/limits", &limits(true)).await?;
    let waiting = prepared.split_off(size.detaches);
    let detachers = Workers::new(100);
    let attachers = if share { detachers.clone() } else { Workers::new(100) };
    let detaching: Vec<_> = prepared
        .into_iter()
        .enumerate()
        .map(|(index, volume)| {
            let (co, workers) = (sidecars.of(index).clone(), detachers.clone());
            let node = instance(index % instances);
            tokio::spawn(
                async move { workers.run(|| co.detach(&volume.id, &node)).await.map(drop) },
            )
        })
        .collect();
    let mut attaching = Vec::new();
    for (index, volume) in (size.detaches..).zip(waiting) {
        tokio::time::sleep(size.apart).await;
        let (co, workers) = (sidecars.of(index).clone(), attachers.clone());
        let node = instance(index % instances);
        attaching.push(tokio::spawn(async move {
            let (_, done) = workers.run(|| co.attach(&volume, &node)).await?;
            Ok::<EndedCall, BenchError>(done)
        }));
    }
    let attached = join_all(attaching).await?;
    join_all(detaching).await?;
    let seconds = if share { EndedCall::seconds_queued } else { EndedCall::seconds };
    Ok(attached.iter().map(seconds).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_attach_wait_bound_follows_detach_rate() {
        assert!((least_wait(500) - (351.0 / 5.0 + 3.26)).abs() < 1e-9);
        assert!((least_wait(10) - 3.26).abs() < 1e-9);
    }
}
