//! One replica of the controller: a process that can die between any request and its reply, and
//! that restarts with an empty memory.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use aws_smithy_async::time::SharedTimeSource;
use ebs_csi_controller::csi::service::{Controller, ServiceSettings};
use ebs_csi_controller::tags::{TagSettings, Tags};
use ebs_csi_ec2 as ec2;

use super::connection::{Connection, WrongClock};
use super::fault_plan::FaultPlan;
use super::known_bug::KnownBug;
use super::seeded_random::SeededRandom;
use crate::world::in_process::InProcess;
use ebs_csi_controller::ordered_watch::OrderedWatch;

#[derive(Clone, Debug)]
pub(crate) struct ReplicaParts {
    pub(crate) ec2: InProcess,
    pub(crate) faults: Arc<FaultPlan>,
    pub(crate) bug: Option<KnownBug>,
}

#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) controller: Controller,
    pub(crate) dead: Arc<OrderedWatch<bool>>,
}

#[derive(Debug)]
pub(crate) struct Replica {
    parts: ReplicaParts,
    number: usize,
    random: Arc<SeededRandom>,
    ahead_ms: Arc<AtomicI64>,
    generation: AtomicU32,
    process: Mutex<Option<Process>>,
}

impl Replica {
    pub(crate) async fn start(parts: ReplicaParts, seed: u64, number: usize) -> Arc<Self> {
        let replica = Arc::new(Self {
            parts,
            number,
            random: Arc::new(SeededRandom::of(seed, &format!("replica {number}"))),
            ahead_ms: Arc::default(),
            generation: AtomicU32::default(),
            process: Mutex::default(),
        });
        replica.start_process().await;
        replica
    }

    pub(crate) fn process(&self) -> Option<Process> {
        self.process.lock().unwrap().clone()
    }

    /// Starts a new process whenever one has died.
    pub(crate) async fn keep_running(self: Arc<Self>) {
        while let Some(process) = self.process() {
            process.dead.wait_for(|dead| *dead).await;
            self.process.lock().unwrap().take();
            // A container restarts no sooner than this; `LATE_READS_MS` explains why that matters.
            tokio::time::sleep(self.random.millis(2_000, 15_000)).await;
            self.start_process().await;
            self.parts.ec2.note(format!("replica {} is back", self.number));
        }
    }

    pub(crate) async fn disturb_clock(self: Arc<Self>) {
        while !self.parts.faults.is_calm() {
            tokio::time::sleep(self.random.millis(5_000, 60_000)).await;
            let ahead: i64 =
                *self.random.pick(&[-86_400_000, -400_000, -200_000, 290_000, 3_600_000]);
            self.ahead_ms.store(ahead, Ordering::Relaxed);
            self.parts.ec2.note(format!("replica {}: clock {ahead} ms", self.number));
            tokio::time::sleep(self.random.millis(1_000, 20_000)).await;
            self.ahead_ms.store(0, Ordering::Relaxed);
        }
    }

    async fn start_process(&self) {
        let dead = Arc::new(OrderedWatch::new(false));
        let connection = Connection {
            ec2: self.parts.ec2.clone(),
            faults: Arc::clone(&self.parts.faults),
            random: Arc::clone(&self.random),
            is_dead: Arc::clone(&dead),
            bug: self.parts.bug,
        };
        let clock =
            WrongClock { ec2: self.parts.ec2.clone(), ahead_ms: Arc::clone(&self.ahead_ms) };
        let settings = ec2::Ec2Settings { seed: self.random.seed(), ..ec2::Ec2Settings::default() };
        let ec2 =
            self.parts.ec2.access_by(connection, SharedTimeSource::new(clock), settings).await;
        // The restart may come with an upgrade or another command line: the same volume is then
        // requested with other tags, which EC2 refuses.
        if self.parts.faults.reconfigured && self.random.chance(0.5) {
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
        let generation = self.generation.load(Ordering::Relaxed).to_string();
        let settings = ServiceSettings {
            tags: TagSettings {
                extra: Tags::from([("generation".to_owned(), generation)]),
                ..TagSettings::default()
            },
            safe_detach: self.parts.faults.safe_detach,
            ..ServiceSettings::default()
        };
        let controller = Controller::new(ec2, settings, Arc::default());
        *self.process.lock().unwrap() = Some(Process { controller, dead });
    }
}
