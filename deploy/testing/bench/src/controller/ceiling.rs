//! How many pairs of create and attach a controller completes per second, and at what processor
//! time, when EC2 has no quota and no delays.

use super::load::create_and_attach;
use crate::contestant::{Contestant, PER_INSTANCE, cpu, in_world, with_echo};
use crate::error::Result;
use crate::extent::Extent;
use crate::report::figure::{Figure, Role, Statistic, number};
use crate::report::summary::Summary;
use crate::world::{actions, calls_by_name, float, order};

#[derive(Clone, Default)]
struct Samples {
    per_second: Vec<f64>,
    per_cpu_second: Vec<f64>,
    cpu: Vec<f64>,
    simulator: Vec<f64>,
    client: Vec<f64>,
    requests: Vec<f64>,
    attaches_beyond: f64,
    retried: f64,
}

pub(super) async fn measure(contestants: &[Contestant], extent: Extent) -> Result<Vec<Figure>> {
    let all = with_echo(contestants)?;
    let mut figures = Vec::new();
    for (workers, volumes) in
        [(100, extent.of(10, 2_000, 2_000)), (1_000, extent.of(10, 4_000, 4_000))]
    {
        let mut samples = vec![Samples::default(); all.len()];
        for round in 0..extent.of(1, 4, 4) {
            for which in order(round, all.len()) {
                run(&all[which], workers, volumes, &mut samples[which]).await?;
            }
        }
        figures.extend(write(&all, samples, workers, volumes));
    }
    Ok(figures)
}

async fn run(
    contestant: &Contestant,
    workers: usize,
    volumes: usize,
    samples: &mut Samples,
) -> Result<()> {
    let world = contestant.unlimited_world(volumes.div_ceil(PER_INSTANCE)).await?;
    let (before, (pairs, seconds), after, actions) = in_world(world, async |world| {
        let before = cpu(world)?;
        let done = create_and_attach(world, workers, volumes).await?;
        Ok((before, done, cpu(world)?, actions(world).await?))
    })
    .await?;
    let volumes = float(volumes);
    // A pair is two calls.
    let thousand_calls = 2.0 * volumes / 1e3;
    let used = |which: usize| (after[which] - before[which]) / thousand_calls;
    samples.per_second.push(volumes / seconds);
    samples.per_cpu_second.push(volumes / (after[0] - before[0]).max(0.01));
    samples.cpu.push(used(0));
    samples.simulator.push(used(1));
    samples.client.push(used(2));
    let requests: f64 = calls_by_name(&actions, "").map(|(_, calls)| calls).sum();
    samples.requests.push(requests / (2.0 * volumes));
    let attaches = &actions["AttachVolume"]["calls"];
    samples.attaches_beyond += attaches.as_f64().map_or(0.0, |calls| calls - volumes);
    samples.retried += pairs
        .iter()
        .map(|pair| f64::from(pair.create.attempts + pair.attach.attempts - 2))
        .sum::<f64>();
    Ok(())
}

fn write(all: &[Contestant], samples: Vec<Samples>, workers: usize, volumes: usize) -> Vec<Figure> {
    let how = format!(
        "{volumes} pairs with {workers} + {workers} workers, EC2 without quota at 0 ms, each run with fresh processes. Client, controller and simulator share the machine's processors, so the pairs per second of the wall clock are theirs together."
    );
    let mut rate = Figure::new(
        &format!("pairs-{workers}"),
        &format!("pairs of create and attach per second of the controller's processor time, {workers} workers"),
        "pairs",
    )
    .at_least(Statistic::Median, if workers == 100 { 1_000.0 } else { 2_000.0 })
    .note(how);
    let mut cost = Figure::new(
        &format!("cpu-{workers}"),
        &format!("processor time per 1,000 calls, {workers} workers"),
        "s",
    )
    .at_most(Statistic::Median, 0.2)
    .note("User and system time from /proc/PID/stat over the same runs.");
    for (contestant, samples) in all.iter().zip(samples) {
        let name = &contestant.name;
        rate = rate.row(contestant.role, name, samples.per_cpu_second).row(
            Role::Part,
            &format!("{name}: per second of the wall clock"),
            samples.per_second,
        );
        if samples.retried > 0.0 {
            rate = rate.note(format!("{name}: {} calls had to be repeated.", samples.retried));
        }
        let requests = Summary::of(&samples.requests).median;
        if requests > 0.0 {
            let more = samples.attaches_beyond;
            rate = rate.note(format!(
                "{name}: {more} AttachVolume requests more than attaches: names that EC2 called in use."
            ));
            let requests = number(requests);
            cost = cost
                .note(format!("{name}: {requests} EC2 requests for each call, polls included."));
        }
        cost = cost
            .row(contestant.role, name, samples.cpu)
            .row(Role::Part, &format!("{name}: simulator"), samples.simulator)
            .row(Role::Part, &format!("{name}: client"), samples.client);
    }
    vec![rate, cost]
}
