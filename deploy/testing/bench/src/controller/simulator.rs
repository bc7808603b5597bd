//! The rate of requests about single volumes that the simulator sustains while it holds 100,000
//! volumes: the simulator must not be the bottleneck of a driver.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use ebs_csi_sandbox::{World, ZONE};

use crate::contestant::Contestant;
use crate::error::Result;
use crate::extent::Extent;
use crate::process_usage::cpu_seconds;
use crate::report::figure::{Figure, Role, Statistic};
use crate::world::{float, instance, order, volume_id};

/// The number of persistent connections, each with one request at a time and an instance of its
/// own.
const CLIENTS: usize = 16;

#[derive(Clone, Copy, Debug)]
enum Turn {
    LifeCycle,
    ById,
    ByName,
    CreateDelete,
    AttachDetach,
    /// DescribeVolumes by as many ids as a filter allows.
    ByManyIds,
}

const TURNS: [(Turn, &str); 6] = [
    (Turn::LifeCycle, "lives: create, attach, detach, a look after each, delete"),
    (Turn::ById, "DescribeVolumes by id"),
    (Turn::ByName, "DescribeVolumes by name"),
    (Turn::CreateDelete, "CreateVolume, DeleteVolume"),
    (Turn::AttachDetach, "AttachVolume, DetachVolume"),
    (Turn::ByManyIds, "DescribeVolumes of 200 (not one volume: beside the rest)"),
];

/// Requests per second, of one kind.
#[derive(Clone, Default)]
struct Rates {
    wall: Vec<f64>,
    cpu: Vec<f64>,
}

pub(super) async fn measure(contestant: &Contestant, extent: Extent) -> Result<Vec<Figure>> {
    let (held, requests) = (extent.of(300, 100_000, 100_000), extent.of(112, 20_000, 20_000));
    let world = contestant.unlimited_world(CLIENTS).await?;
    let began = Instant::now();
    let volumes = fill(&world, held)?;
    let filled = float(held) / began.elapsed().as_secs_f64();
    let mut rates = vec![Rates::default(); TURNS.len()];
    for round in 0..extent.of(1, 4, 4) {
        for which in order(round, TURNS.len()) {
            run(&world, TURNS[which].0, requests, &volumes, &mut rates[which])?;
        }
    }
    let live = world.simulator.get("/v1/invariants").await?;
    world.shutdown().await?;
    if live["ok"] != true || live["live"]["volumes"] != held {
        return Err(format!(
            "the simulator holds something else than the {held} volumes it was given: {live}"
        )
        .into());
    }
    Ok(write(rates, held, filled))
}

/// Creates the volumes that the simulator holds during the run, each with its own name.
fn fill(world: &World, held: usize) -> Result<Vec<String>> {
    let made = run_in_parallel(world, &[], |client| {
        let own = (client.number..held).step_by(CLIENTS);
        own.map(|index| client.create(&held_name(index))).collect::<Result<Vec<String>>>()
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
    kind: Turn,
    requests: usize,
    volumes: &[String],
    rates: &mut Rates,
) -> Result<()> {
    let pid = world.simulator.process().pid().unwrap_or_default();
    let before = cpu_seconds(pid)?;
    let began = Instant::now();
    let sent = run_in_parallel(world, volumes, |client| {
        let mut sent = 0;
        let share = match kind {
            // One such request does the work of a hundred.
            Turn::ByManyIds => requests / 100,
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
    work: impl Fn(&mut Client<'_>) -> Result<T> + Sync,
) -> Result<Vec<T>> {
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
    .at_least(Statistic::Median, 10_000.0)
    .note(format!("{CLIENTS} kept connections, no latency, no limits of rate. The clients share the machine's processors with the simulator, so this is less than it can do."));
    let mut cpu = Figure::new(
        "simulator-cpu",
        &format!("requests about one volume per second of the simulator's processor time, {held} volumes held"),
        "1/s",
    )
    .note("User and system time from /proc/PID/stat over the same runs: HTTP, the decision, and writing it down before the reply leaves.");
    for ((kind, label), of) in TURNS.into_iter().zip(rates) {
        let role = match kind {
            Turn::LifeCycle => Role::Ours,
            _ => Role::Part,
        };
        wall = wall.row(role, label, of.wall);
        cpu = cpu.row(role, label, of.cpu);
    }
    let label = format!("CreateVolume, from none to {held}");
    vec![wall.row(Role::Part, &label, vec![filled]), cpu]
}

const NAME_TAG: &str = "CSIVolumeName";
/// EC2's limit of values in one filter.
const FILTER_VALUES: usize = 200;

/// A cheap client of EC2's Query protocol, with its own instance to attach to: one persistent
/// connection, requests assembled by hand.
struct Client<'w> {
    number: usize,
    instance: String,
    /// The volumes that exist during the whole run and that requests ask about.
    held: &'w [String],
    /// The number of turns so far; it selects the next volume.
    turn: usize,
    stream: BufReader<TcpStream>,
    head: String,
}

impl<'w> Client<'w> {
    /// Connects to `endpoint`. The client asks about volumes in `held` and attaches to `instance`.
    fn new(endpoint: &str, number: usize, instance: &str, held: &'w [String]) -> Result<Self> {
        let address = endpoint.trim_start_matches("http://");
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let date = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        // The simulator accepts any signature; its date is valid for minutes, longer than a
        // run.
        let head = format!(
            "POST / HTTP/1.1\r\nhost: ec2\r\ncontent-type: application/x-www-form-urlencoded\r\n\
             authorization: AWS4-HMAC-SHA256 Credential=AKID/{}/us-east-1/ec2/aws4_request, SignedHeaders=host;x-amz-date, Signature={}\r\n\
             x-amz-date: {date}\r\n",
            &date[..8],
            "0".repeat(64)
        );
        Ok(Self {
            number,
            instance: instance.to_owned(),
            held,
            turn: 0,
            stream: BufReader::new(stream),
            head,
        })
    }

    fn run_requests(&mut self, kind: Turn) -> Result<usize> {
        self.turn += 1;
        // A different volume in each turn and for each client.
        let place = self.turn * 7_919 + self.number;
        let (index, held) = (place % self.held.len(), self.held);
        match kind {
            Turn::LifeCycle => {
                let volume = self.create_one()?;
                self.describe(&volume)?;
                self.attach(&volume)?;
                self.describe(&volume)?;
                self.detach(&volume)?;
                self.describe(&volume)?;
                self.delete(&volume)?;
                Ok(7)
            }
            Turn::ById => {
                self.describe(&held[index])?;
                Ok(1)
            }
            Turn::ByName => {
                let name = held_name(index);
                let form = format!("Filter.1.Name=tag:{NAME_TAG}&Filter.1.Value.1={name}");
                self.find(&form, &held[index])?;
                Ok(1)
            }
            Turn::CreateDelete => {
                let volume = self.create_one()?;
                self.delete(&volume)?;
                Ok(2)
            }
            Turn::AttachDetach => {
                // The client's own volume among the held ones, so that no two clients attach the
                // same volume.
                let volume = &held[self.number];
                self.attach(volume)?;
                self.detach(volume)?;
                Ok(2)
            }
            Turn::ByManyIds => {
                let mut form = "Filter.1.Name=volume-id".to_owned();
                for value in 0..FILTER_VALUES {
                    let id = &held[(index + value) % held.len()];
                    form.push_str(&format!("&Filter.1.Value.{}={id}", value + 1));
                }
                self.find(&form, &held[index])?;
                Ok(1)
            }
        }
    }

    fn create(&mut self, name: &str) -> Result<String> {
        let form = format!(
            "AvailabilityZone={ZONE}&Size=1&VolumeType=gp3&ClientToken={name}&TagSpecification.1.ResourceType=volume\
             &TagSpecification.1.Tag.1.Key={NAME_TAG}&TagSpecification.1.Tag.1.Value={name}"
        );
        let reply = self.call("CreateVolume", &form)?;
        let id = volume_id(&reply).map(str::to_owned);
        id.ok_or_else(|| format!("CreateVolume: no id in {reply}").into())
    }

    fn create_one(&mut self) -> Result<String> {
        // Each name is used once, because EC2 remembers the client token after the volume was
        // deleted.
        static NAMES: AtomicUsize = AtomicUsize::new(0);
        let number = NAMES.fetch_add(1, Ordering::Relaxed);
        self.create(&format!("pvc-{number}"))
    }

    fn describe(&mut self, volume: &str) -> Result<()> {
        self.find(&format!("VolumeId.1={volume}"), volume)
    }

    fn find(&mut self, which: &str, volume: &str) -> Result<()> {
        let reply = self.call("DescribeVolumes", which)?;
        if reply.contains(volume) {
            return Ok(());
        }
        Err(format!("DescribeVolumes: no {volume} in {reply}").into())
    }

    fn attach(&mut self, volume: &str) -> Result<()> {
        let form = format!("VolumeId={volume}&InstanceId={}&Device=/dev/xvdba", self.instance);
        self.call("AttachVolume", &form).map(drop)
    }

    fn detach(&mut self, volume: &str) -> Result<()> {
        let form = format!("VolumeId={volume}&InstanceId={}", self.instance);
        self.call("DetachVolume", &form).map(drop)
    }

    fn delete(&mut self, volume: &str) -> Result<()> {
        self.call("DeleteVolume", &format!("VolumeId={volume}")).map(drop)
    }

    /// Sends a request and returns the body of the response. Any status but 200 is an error.
    fn call(&mut self, action: &str, parameters: &str) -> Result<String> {
        let form = format!("Action={action}&Version=2016-11-15&{parameters}");
        let request = format!("{}content-length: {}\r\n\r\n{form}", self.head, form.len());
        self.stream.get_mut().write_all(request.as_bytes())?;
        let (good, body) = self.read()?;
        if good {
            return Ok(body);
        }
        Err(format!("{action}: {body}").into())
    }

    fn read(&mut self) -> io::Result<(bool, String)> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let good = line.starts_with("HTTP/1.1 200");
        let mut length = 0;
        while line != "\r\n" {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(text) = line.strip_prefix("content-length: ") {
                length = text.trim().parse().map_err(io::Error::other)?;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        let body = String::from_utf8(body).map_err(io::Error::other)?;
        Ok((good, body))
    }
}
