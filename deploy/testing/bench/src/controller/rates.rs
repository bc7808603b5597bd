//! The throughput in an account whose request rates differ from the documented ones, when the
//! controller has no flag about rates.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ebs_csi_proto::lock;
use ebs_csi_sandbox::World;
use serde_json::json;

use super::burst::{SCENARIO, least};
use super::load::{Sidecars, Workers, claim, create_and_attach, throttled_share};
use crate::contestant::{Contestant, PER_INSTANCE, in_world};
use crate::error::Result;
use crate::extent::Extent;
use crate::report::figure::{Figure, Role, Statistic};
use crate::world::{UNLIMITED, actions, float};

/// CreateVolume's documented refill per second, and the part of it that the other client takes.
const REFILL: f64 = 5.0;
const OTHER: f64 = 2.5;

pub(super) async fn measure(contestants: &[Contestant], extent: Extent) -> Result<Vec<Figure>> {
    let mut figures = tenfold(contestants, extent).await?;
    figures.push(without_limit(contestants, extent).await?);
    figures.extend(share_with_other_client(contestants, extent).await?);
    Ok(figures)
}

async fn tenfold(contestants: &[Contestant], extent: Extent) -> Result<Vec<Figure>> {
    let volumes = extent.of(10, 2_000, 2_000);
    let titled = |what: &str| format!("{what}, {volumes} volumes at ten times EC2's default rates");
    let mut makespan = Figure::new("rates-tenfold-makespan", &titled("time to create and attach all"), "s")
        .at_most_times_bound(Statistic::Median, 1.3)
        .note("As the burst at default rates, with 1,000 + 1,000 workers and without a flag about rates. The bound follows from the token buckets: AttachVolume holds 500 and gains 50 a second.");
    let refused = titled("share of EC2's mutating requests that were throttled");
    let mut throttled =
        Figure::new("rates-tenfold-throttled", &refused, "%").at_most(Statistic::Greatest, 1.0);
    for contestant in contestants {
        let scenario = format!("{SCENARIO}[limits]\nscale = 10.0\n");
        let world = contestant.world(volumes.div_ceil(PER_INSTANCE), &scenario).await?;
        let (seconds, actions) = in_world(world, async |world| {
            let (_, seconds) = create_and_attach(world, 1_000, volumes).await?;
            Ok((seconds, actions(world).await?))
        })
        .await?;
        let shares =
            ["CreateVolume", "AttachVolume"].map(|action| throttled_share(&actions, action));
        makespan = makespan.row(contestant.role, &contestant.name, vec![seconds]);
        let label = format!("{}: create, attach", contestant.name);
        throttled = throttled.row(contestant.role, &label, shares.to_vec());
    }
    let bound = least(float(volumes), 10.0);
    makespan = makespan.row(Role::Bound, "token buckets", vec![bound]);
    Ok(vec![makespan, throttled])
}

async fn without_limit(contestants: &[Contestant], extent: Extent) -> Result<Figure> {
    let volumes = extent.of(10, 2_000, 2_000);
    let title =
        format!("time to create and attach {volumes} volumes, EC2 without a limit of requests");
    let mut figure = Figure::new("rates-none", &title, "s")
        .at_most(Statistic::Greatest, 5.0)
        .note("100 and 1,000 workers of each kind, EC2 at 0 ms, and no flag about rates.");
    for contestant in contestants {
        for workers in [100, 1_000] {
            let world = contestant.world(volumes.div_ceil(PER_INSTANCE), UNLIMITED).await?;
            let burst = async |world: &World| create_and_attach(world, workers, volumes).await;
            let (_, seconds) = in_world(world, burst).await?;
            let label = format!("{}: {workers} workers", contestant.name);
            figure = figure.row(contestant.role, &label, vec![seconds]);
        }
    }
    Ok(figure)
}

async fn share_with_other_client(
    contestants: &[Contestant],
    extent: Extent,
) -> Result<Vec<Figure>> {
    let phase = Duration::from_secs(extent.of(2, 90, 90) as u64);
    let how = format!(
        "100 workers create volumes all the time. After {phase:?} another client takes half of CreateVolume's refill, and leaves after as long again; a third of each phase is not counted, for the driver to find its share."
    );
    let mut shares = Figure::new(
        "rates-share",
        "how far from its share of CreateVolume's refill: beside another client, and after that client has left",
        "%",
    )
    .at_most(Statistic::Greatest, 10.0)
    .note(how);
    let refused = "share of CreateVolume that was throttled in that time";
    let mut throttled =
        Figure::new("rates-share-throttled", refused, "%").at_most(Statistic::Greatest, 3.0);
    for contestant in contestants {
        let world = contestant.world(1, SCENARIO).await?;
        let measure = async |world: &World| Ok((share(world, phase).await?, actions(world).await?));
        let (measured, actions) = in_world(world, measure).await?;
        shares = shares.row(contestant.role, &contestant.name, measured);
        let refused = throttled_share(&actions, "CreateVolume");
        throttled = throttled.row(contestant.role, &contestant.name, vec![refused]);
    }
    Ok(vec![shares, throttled])
}

/// Creates volumes for three phases. Returns by how many percent the rates of the second and the
/// third phase differed from the available refill.
async fn share(world: &World, phase: Duration) -> Result<Vec<f64>> {
    let sidecars = Sidecars::new(world, 100)?;
    let creators = Workers::new(100);
    let ended: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let began = Instant::now();
    let number = 100 + (phase.as_secs_f64() * 3.0 * REFILL).ceil() as usize + 200;
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..number {
        let (co, creators, ended) =
            (sidecars.of(index).clone(), creators.clone(), Arc::clone(&ended));
        tasks.spawn(async move {
            let claim = claim(index);
            if let Ok((_, done)) = creators.run(|| co.create(&claim)).await {
                let mut ended = lock(&ended);
                ended.push(done.ended);
            }
        });
    }
    for others in [OTHER, 0.0] {
        tokio::time::sleep(phase).await;
        let body = json!({ "foreign": { "CreateVolume": others } });
        world.simulator.put("/v1/limits", &body).await?;
    }
    tokio::time::sleep(phase).await;
    tasks.shutdown().await;
    let ended = lock(&ended);
    let off = |phases: u32, share: f64| {
        let from = began + phase * phases + phase / 3;
        let to = began + phase * (phases + 1);
        let within = ended.iter().filter(|at| (from..to).contains(at)).count();
        let rate = float(within) / (to - from).as_secs_f64();
        100.0 * (rate - share).abs() / share
    };
    Ok(vec![off(1, REFILL - OTHER), off(2, REFILL)])
}
