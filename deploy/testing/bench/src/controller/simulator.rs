//! The rate of requests about single volumes that the simulator sustains while it holds 100,000
//! volumes: the simulator must not be the bottleneck of a driver.

mod client;

use std::time::Instant;

use ebs_csi_sandbox::World;

use super::contestant::end;
use crate::contestant::Contestant;
use crate::error::BenchError;
use crate::extent::Extent;
use crate::process_usage::cpu_seconds;
use crate::report::figure::{Figure, Role, Statistic, Target};
use crate::world::{float, instance, order};
use client::Client;

/// The number of persistent connections, each with one request at a time and an instance of its
/// own.
const CLIENTS: usize = 16;

/// The kind of request.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The life cycle of a volume, as a driver requests it.
    LifeCycle,
    /// DescribeVolumes by an id.
    ById,
    /// DescribeVolumes by a tag.
    ByName,
    /// CreateVolume and DeleteVolume.
    CreateDelete,
    /// AttachVolume and DetachVolume.
    AttachDetach,
    /// DescribeVolumes by as many ids as a filter allows.
    ByManyIds,
}

const KINDS: [(Kind, &str); 6] = [
    (Kind::LifeCycle, "lives: create, attach, detach, a look after each, delete"),
    (Kind::ById, "DescribeVolumes by id"),
    (Kind::ByName, "DescribeVolumes by name"),
    (Kind::CreateDelete, "CreateVolume, DeleteVolume"),
    (Kind::AttachDetach, "AttachVolume, DetachVolume"),
    (Kind::ByManyIds, "DescribeVolumes of 200 (not one volume: beside the rest)"),
];

/// Requests per second, of one kind.
#[derive(Clone, Default)]
struct Rates {
    wall: Vec<f64>,
    cpu: Vec<f64>,
}

pub(super) async fn measure(
    contestant: &Contestant,
    extent: Extent,
) -> Result<Vec<Figure>, BenchError> {
    let (held, requests) = (extent.of(300, 100_000, 100_000), extent.of(112, 20_000, 20_000));
    let world = contestant.unlimited_world(CLIENTS).await?;
    let began = Instant::now();
    let volumes = fill(&world, held)?;
    let filled = float(held) / began.elapsed().as_secs_f64();
    let mut rates = vec![Rates::default(); KINDS.len()];
    for round in 0..extent.of(1, 4, 4) {
        for which in order(round, KINDS.len()) {
            run(&world, KINDS[which].0, requests, &volumes, &mut rates[which])?;
        }
    }
    let live = world.simulator.get("/v1/invariants").await?;
    end(world).await?;
    if live["ok"] != true || live["live"]["volumes"] != held {
        return Err(format!(
            "the simulator holds something else than the {held} volumes it was given: {live}"
        )
        .into());
    }
    Ok(write(rates, held, filled))
}

/// Creates the volumes that the simulator holds during the run, each with its own name.
fn fill(world: &World, held: usize) -> Result<Vec<String>, BenchError> {
    let made = run_in_parallel(world, &[], |client| {
        let own = (client.number()..held).step_by(CLIENTS);
        own.map(|index| client.create(&held_name(index)))
            .collect::<Result<Vec<String>, BenchError>>()
    })?;
    // Restores the order of the names: the volume at `index` has the name `held_name(index)`.
    (0..held)
        .map(|index| {
            let id = made[index % CLIENTS].get(index / CLIENTS);
            id.cloned().ok_or_else(|| format!("volume {index} was not made").into())
        })
        .collect()
}

/// Returns the name of held volume number `index`.
fn held_name(index: usize) -> String {
    format!("pvc-held-{index}")
}

/// Sends about `requests` requests of this kind from all clients together.
fn run(
    world: &World,
    kind: Kind,
    requests: usize,
    volumes: &[String],
    rates: &mut Rates,
) -> Result<(), BenchError> {
    let pid = world.simulator.process().pid().unwrap_or_default();
    let before = cpu_seconds(pid)?;
    let began = Instant::now();
    let sent = run_in_parallel(world, volumes, |client| {
        let mut sent = 0;
        let share = match kind {
            // One such request does the work of a hundred.
            Kind::ByManyIds => requests / 100,
            _ => requests,
        };
        while sent < share.div_ceil(CLIENTS) {
            sent += client.run_requests(kind)?;
        }
        Ok(sent)
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let cpu = cpu_seconds(pid)? - before;
    let sent = float(sent.iter().sum());
    rates.wall.push(sent / seconds);
    rates.cpu.push(sent / cpu.max(0.01));
    Ok(())
}

/// Runs `work` for each client in a thread of its own and blocks until all have ended, so that
/// nothing else of the bench runs meanwhile.
fn run_in_parallel<T: Send>(
    world: &World,
    volumes: &[String],
    work: impl Fn(&mut Client<'_>) -> Result<T, BenchError> + Sync,
) -> Result<Vec<T>, BenchError> {
    let endpoint = world.simulator.ec2();
    std::thread::scope(|threads| {
        let started: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let work = &work;
                threads.spawn(move || {
                    let mut client = Client::new(endpoint, number, &instance(number), volumes)?;
                    work(&mut client)
                })
            })
            .collect();
        started
            .into_iter()
            .map(|thread| {
                let ended = thread.join();
                ended.map_err(|_| "a client panicked")?
            })
            .collect()
    })
}

fn write(rates: Vec<Rates>, held: usize, filled: f64) -> Vec<Figure> {
    let mut wall = Figure::new(
        "simulator-rate",
        &format!("requests about one volume that the simulator answers per second, {held} volumes held"),
        "1/s",
    )
    .target(Target::at_least(Statistic::Median, 10_000.0))
    .note(format!("{CLIENTS} kept connections, no latency, no limits of rate. The clients share the machine's processors with the simulator, so this is less than it can do."));
    let mut cpu = Figure::new(
        "simulator-cpu",
        &format!("requests about one volume per second of the simulator's processor time, {held} volumes held"),
        "1/s",
    )
    .note("User and system time from /proc/PID/stat over the same runs: HTTP, the decision, and writing it down before the reply leaves.");
    for ((kind, label), of) in KINDS.into_iter().zip(rates) {
        let role = match kind {
            Kind::LifeCycle => Role::Ours,
            _ => Role::Part,
        };
        wall = wall.row(role, label, of.wall);
        cpu = cpu.row(role, label, of.cpu);
    }
    let label = format!("CreateVolume, from none to {held}");
    vec![wall.row(Role::Part, &label, vec![filled]), cpu]
}
