//! A thousand volumes at once at EC2's default request rates, with a controller that was just
//! started.

use serde_json::Value;

use super::load::{EndedCall, Pair, create_and_attach, delays_behind_place, throttled_share};
use crate::contestant::{Contestant, PER_INSTANCE, cpu, in_world};
use crate::error::Result;
use crate::extent::Extent;
use crate::report::figure::{Figure, Role, Statistic};
use crate::world::{actions, calls_by_name, float};

/// The simulated EC2 with which the other driver was measured: replies in 30 ms, 1.5 s to create,
/// 1.2 s to attach.
pub(super) const SCENARIO: &str = "profile = \"instant\"\n[latency]\napi_read = { fixed_ms = 30 }\napi_write = { fixed_ms = 30 }\nvolume_create = { fixed_ms = 1500 }\nattach = { fixed_ms = 1200 }\n";

pub(super) async fn measure(contestants: &[Contestant], extent: Extent) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let sizes: &[usize] = match extent {
        Extent::Quick => &[10],
        Extent::Usual => &[1_000],
        Extent::Full => &[1_000, 5_000],
    };
    for volumes in sizes {
        let mut seen = Vec::new();
        for contestant in contestants {
            seen.push(run(contestant, *volumes).await?);
        }
        figures.extend(write(contestants, &seen, *volumes));
    }
    Ok(figures)
}

struct BurstRun {
    pairs: Vec<Pair>,
    seconds: f64,
    cpu: f64,
    /// EC2's counts, by action.
    actions: Value,
}

async fn run(contestant: &Contestant, volumes: usize) -> Result<BurstRun> {
    let world = contestant.world(volumes.div_ceil(PER_INSTANCE), SCENARIO).await?;
    in_world(world, async |world| {
        let before = cpu(world)?[0];
        let (pairs, seconds) = create_and_attach(world, 100, volumes).await?;
        let cpu = cpu(world)?[0] - before;
        Ok(BurstRun { pairs, seconds, cpu, actions: actions(world).await? })
    })
    .await
}

/// Returns the lower bound of the time in seconds: the last attach waits until the bucket has been
/// refilled often enough, and begins no earlier than the first create ends. The buckets are `times`
/// the documented ones: CreateVolume 100 and 5 per second, AttachVolume 50 and 5 per second.
pub(super) fn least(volumes: f64, times: f64) -> f64 {
    let create = 0.03 + 1.5;
    let creates = create + (volumes - 100.0 * times).max(0.0) / (5.0 * times);
    let attaches = create + (volumes - 50.0 * times).max(0.0) / (5.0 * times);
    creates.max(attaches) + 0.03 + 1.2
}

fn write(contestants: &[Contestant], seen: &[BurstRun], volumes: usize) -> Vec<Figure> {
    let count = float(volumes);
    let figure = |key: &str, what: &str, unit: &str| {
        let title = format!("{what}, {volumes} volumes at EC2's default rates, cold");
        Figure::new(&format!("burst-{key}-{volumes}"), &title, unit)
    };
    let mut makespan = figure("makespan", "time to create and attach all", "s")
        .at_most_times_bound(Statistic::Median, 1.03)
        .note("100 + 100 workers, deadlines of 60 s and 6 min, 20 volumes to an instance; replies in 30 ms, 1.5 s to create, 1.2 s to attach. The bound follows from the token buckets: AttachVolume holds 50 and gains 5 a second.");
    let mut attempts = figure("attempts", "EC2 requests per create and per attach", "")
        .at_most(Statistic::Greatest, 1.01)
        .note("As EC2 counted them. One is the least.");
    let refused = "share of EC2's mutating requests that were throttled";
    let mut throttled = figure("throttled", refused, "%").at_most(Statistic::Greatest, 1.0);
    let mut retried = figure("retried", "calls that the sidecars had to repeat", "")
        .at_most(Statistic::Greatest, 0.0);
    let mut places =
        figure("places", "how much later than its place in the queue a call ended", "s")
            .at_most(Statistic::P99, 1.0)
            .note("The n-th call to begin ought to be the n-th to end. A second counts as kept.");
    let mut describes = figure("describes", "Describe calls for each create and attach", "")
        .at_most(Statistic::Greatest, 0.5)
        .note("Of all Describe actions, for each pair.");
    let mut processor = figure("cpu", "processor time of the controller", "s")
        .at_most(Statistic::Greatest, 2.0 * count / 1_000.0);
    let mut calls = figure("calls", "duration of the calls", "s")
        .note("From the first attempt, with a worker free, to the good answer.");
    for (contestant, of) in contestants.iter().zip(seen) {
        let name = &contestant.name;
        let (create, attach) = ("CreateVolume", "AttachVolume");
        let both = format!("{name}: create, attach");
        makespan = makespan.row(contestant.role, name, vec![of.seconds]);
        let requests = [create, attach].map(|action| of.actions[action]["calls"].as_f64());
        let requests = requests.map(|calls| calls.unwrap_or(0.0) / count);
        attempts = attempts.row(contestant.role, &both, requests.to_vec());
        let reads: f64 = calls_by_name(&of.actions, "Describe").map(|(_, calls)| calls).sum();
        describes = describes.row(contestant.role, name, vec![reads / count]);
        processor = processor.row(contestant.role, name, vec![of.cpu]);
        let shares = [create, attach].map(|action| throttled_share(&of.actions, action));
        throttled = throttled.row(contestant.role, &both, shares.to_vec());
        let pairs = of.pairs.iter().map(|pair| (pair.create, pair.attach));
        let (creates, attaches): (Vec<_>, Vec<_>) = pairs.unzip();
        let seconds = |calls: &[EndedCall]| calls.iter().map(EndedCall::seconds).collect();
        let extra = |calls: &[EndedCall]| -> f64 {
            calls.iter().map(|call| f64::from(call.attempts - 1)).sum()
        };
        let repeated = vec![extra(&creates), extra(&attaches)];
        retried = retried.row(contestant.role, &format!("{name}: creates, attaches"), repeated);
        places = places
            .row(contestant.role, &format!("{name}: creates"), delays_behind_place(&creates))
            .row(Role::Part, &format!("{name}: attaches"), delays_behind_place(&attaches));
        calls = calls.row(contestant.role, &format!("{name}: create"), seconds(&creates)).row(
            Role::Part,
            &format!("{name}: attach"),
            seconds(&attaches),
        );
    }
    makespan = makespan.row(Role::Bound, "token buckets", vec![least(count, 1.0)]);
    attempts = attempts.row(Role::Bound, "one each", vec![1.0]);
    vec![makespan, attempts, throttled, retried, describes, processor, places, calls]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_lower_bound_follows_token_bucket_rates() {
        assert!((least(1_000.0, 1.0) - 192.76).abs() < 1e-9);
        assert!((least(10.0, 1.0) - 2.76).abs() < 1e-9);
    }
}
