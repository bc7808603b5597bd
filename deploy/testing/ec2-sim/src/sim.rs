//! The whole service as one step.

mod control_operations;
mod fault_effects;
mod handle;
pub(crate) mod journal;
mod settle;

pub(crate) use control_operations::Forced;
pub use fault_effects::Delivery;

use crate::devices::LoopDevices;
use crate::faults::Faults;
use crate::iam::Iam;
use crate::limits::{Limits, Quotas};
use crate::random::Random;
use crate::scenario::{Scenario, ScenarioError};
use crate::sim::journal::{Journal, Statistics};
use crate::state::consistency::Consistency;
use crate::state::invariants::Invariants;
use crate::state::{Ids, Realm};
use crate::time::{Latency, Millis};
use std::collections::{BTreeMap, BTreeSet};

/// The relevant parts of a request.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The form body.
    pub form: Vec<u8>,
    /// The `Authorization` header, which names the signer and the Region.
    pub authorization: Option<String>,
    /// `X-Amz-Date`, empty if the request has none; `None`: the time is not checked.
    pub date: Option<String>,
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// `Content-Type`.
    pub content_type: &'static str,
    /// The request id, also sent as `x-amzn-requestid`.
    pub request_id: String,
    /// The header `x-amz-retry-after`, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// The body.
    pub body: Vec<u8>,
    /// How long the client waits for the reply, in simulated milliseconds.
    pub delay_ms: u64,
    /// How the transport delivers the reply.
    pub delivery: Delivery,
}

/// The simulated service. It is not concurrent; each call passes the current time.
#[derive(Debug)]
pub struct Sim {
    pub(crate) realm: Realm,
    pub(crate) ids: Ids,
    request_ids: Random,
    /// The durations of EC2's operations.
    pub latency: Latency,
    /// The limits on request rates.
    pub limits: Limits,
    /// The policies that decide who may do what.
    pub iam: Iam,
    /// The fault rules.
    pub faults: Faults,
    /// The record of every request.
    pub journal: Journal,
    /// Counts and durations.
    pub statistics: Statistics,
    /// The invariants, which must never be violated.
    pub invariants: Invariants,
    /// `None`: volumes have no data.
    pub(crate) devices: Option<LoopDevices>,
    used_instance_ids: BTreeSet<String>,
    pub(crate) consistency: Consistency,
    pub(crate) quotas: Quotas,
    /// The requests that the simulator itself sends later, each with its origin.
    scheduled: BTreeMap<(Millis, u64), (Request, &'static str)>,
    planned: u64,
}

/// The reason why the simulator cannot start.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl Sim {
    /// Starts from a scenario, without devices and files.
    ///
    /// # Errors
    /// Fails if the scenario contradicts itself.
    pub fn new(scenario: &Scenario, now: Millis) -> Result<Self, SimError> {
        Self::with_devices(scenario, None, now)
    }

    pub(crate) fn with_devices(
        scenario: &Scenario,
        devices: Option<LoopDevices>,
        now: Millis,
    ) -> Result<Self, SimError> {
        scenario.check()?;
        let bad_latency = |why: String| ScenarioError(format!("scenario: {why}"));
        let mut latency = Latency::new(&scenario.profile, scenario.seed).map_err(bad_latency)?;
        latency.change(&scenario.latency).map_err(bad_latency)?;
        let mut sim = Self {
            realm: Realm::new(&scenario.account, &scenario.region, scenario.zones.clone()),
            ids: Ids::new(scenario.seed),
            request_ids: Random::new(scenario.seed, "requests"),
            latency,
            limits: scenario.limits.clone(),
            iam: Iam::new(scenario.iam.clone()),
            faults: Faults::new(scenario.seed),
            journal: Journal::default(),
            statistics: Statistics::default(),
            invariants: Invariants::default(),
            devices,
            used_instance_ids: BTreeSet::new(),
            consistency: Consistency::new(scenario.consistency, scenario.seed),
            quotas: scenario.quotas.clone(),
            scheduled: BTreeMap::new(),
            planned: 0,
        };
        if scenario.profile == "real" {
            sim.quotas.snapshot_interval_ms.get_or_insert(15_000);
        }
        for rule in &scenario.faults {
            sim.faults.add(rule.clone(), now);
        }
        for instance in &scenario.instances {
            sim.launch(instance, now)?;
        }
        sim.settle(now);
        Ok(sim)
    }

    /// Checks the invariants of what has changed, and keeps the versions that stale reads show.
    pub(crate) fn commit(&mut self, now: Millis) {
        let keep_ms = self.consistency.keep_ms(self.faults.most_stale());
        let changed = self.realm.take_changes();
        self.realm.note_history(&changed, now, keep_ms);
        self.invariants.check(&self.realm, &changed, now);
    }

    /// Returns the time of the next event that needs no request.
    pub fn next_due(&self) -> Option<Millis> {
        let later = self.scheduled.first_key_value().map(|((at, _), _)| *at);
        self.realm.next_due().into_iter().chain(later).min()
    }

    /// Returns the state of the account.
    pub fn realm(&self) -> &Realm {
        &self.realm
    }
}
