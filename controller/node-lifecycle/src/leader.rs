//! Which replica acts: the holder of one Lease.
//!
//! How long another holder has not renewed the Lease is measured by this process's own clock since
//! the last change that it saw, never by comparing the clocks of two machines. The holder stops
//! acting well before another replica may take over.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as SyncMutex};
use std::time::{Duration, Instant};

use ebs_csi_proto::lock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use tokio::sync::Mutex;

/// The name of the Lease.
pub const LEASE_NAME: &str = "ebs-csi-node-lifecycle";

/// This process as a candidate.
#[derive(Debug)]
pub struct Leader {
    api: Api<Lease>,
    identity: String,
    duration: Duration,
    observed: Mutex<ObservedLease>,
    /// The end of the leadership, unless a renewal follows.
    until: SyncMutex<Option<Instant>>,
}

/// The Lease as last seen, and the time of its last change.
#[derive(Debug, Default)]
struct ObservedLease {
    lease: Option<Lease>,
    changed: Option<Instant>,
}

/// The time between two acquisitions of the Lease by any replica: a decision of one term is not
/// valid in another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Term(i32);

/// Why the journal could not be written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Another replica leads, or may soon.
    #[error("this process is not the leader")]
    NotLeader,
    /// The API server refused, or did not answer.
    #[error("the lease {LEASE_NAME} could not be written: {0}")]
    Write(#[from] kube::Error),
}

impl Leader {
    /// Creates a candidate with this identity.
    pub fn new(client: Client, namespace: &str, identity: String, duration: Duration) -> Arc<Self> {
        Arc::new(Self {
            api: Api::namespaced(client, namespace),
            identity,
            duration,
            observed: Mutex::default(),
            until: SyncMutex::default(),
        })
    }

    /// Returns whether this process may act now.
    pub fn is_leader(&self) -> bool {
        let until = *lock(&self.until);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Acquires the Lease and renews it, until the future is dropped.
    pub async fn run(self: Arc<Self>) {
        let pause = self.duration / 5;
        loop {
            let led = self.is_leader();
            // A longer wait would only delay the next attempt.
            let limit = pause.max(Duration::from_secs(2));
            match tokio::time::timeout(limit, self.acquire_or_renew()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "leader election"),
                Err(_) => tracing::warn!("leader election: the API server does not answer"),
            }
            if led != self.is_leader() {
                tracing::info!(leads = !led, identity = self.identity, "leader election");
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Releases the Lease, so that another replica need not wait for its end.
    pub async fn resign(&self) {
        if !self.is_leader() {
            return;
        }
        self.set_last_renewal(None);
        let mut observed = self.observed.lock().await;
        let Some(mut lease) = observed.lease.clone() else {
            return;
        };
        lease.spec.get_or_insert_default().holder_identity = None;
        if let Err(error) = self.write_lease(&mut observed, lease).await {
            tracing::info!(%error, "the lease could not be released; it expires by itself");
        }
    }

    /// Returns the nodes that any leader acted on recently, and the term in which the journal was
    /// read.
    pub async fn journal(&self) -> (Journal, Term) {
        let observed = self.observed.lock().await;
        let journal = observed.lease.as_ref().map(Journal::read).unwrap_or_default();
        (journal, term(observed.lease.as_ref()))
    }

    /// Records that nodes are about to be acted on. The acts are permitted only after the write:
    /// another leader then counts these nodes as well, and a process that has lost the Lease finds
    /// out here. A process that has lost the Lease and acquired it again since `decided_in`, the
    /// term of the journal that the brake counted, lacks what another leader recorded meanwhile.
    ///
    /// # Errors
    /// [`RecordError`]: no act is permitted.
    pub async fn record(&self, nodes: &[&str], decided_in: Term) -> Result<(), RecordError> {
        let mut observed = self.observed.lock().await;
        let is_same_term = term(observed.lease.as_ref()) == decided_in;
        let lease = observed.lease.clone().filter(|_| self.is_leader() && is_same_term);
        let mut lease = lease.ok_or(RecordError::NotLeader)?;
        let now = Timestamp::now();
        let mut journal = Journal::read(&lease);
        for node in nodes {
            journal.add(node, now);
        }
        journal.write(&mut lease, now);
        let sent = Instant::now();
        renew(&mut lease, now);
        let written = self.write_lease(&mut observed, lease).await;
        self.set_last_renewal(written.is_ok().then_some(sent));
        Ok(written?)
    }

    async fn acquire_or_renew(&self) -> Result<(), kube::Error> {
        let mut observed = self.observed.lock().await;
        let sent = Instant::now();
        let Some(mut lease) = self.api.get_opt(LEASE_NAME).await? else {
            let mut lease = Lease::default();
            lease.metadata.name = Some(LEASE_NAME.to_owned());
            self.acquire(&mut lease);
            let created = self.api.create(&PostParams::default(), &lease).await?;
            observed.observe(created);
            self.set_last_renewal(Some(sent));
            return Ok(());
        };
        observed.observe(lease.clone());
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        if holder == self.identity {
            renew(&mut lease, Timestamp::now());
        } else {
            self.set_last_renewal(None);
            let lease_duration = spec.lease_duration_seconds.unwrap_or(0).max(1);
            let lease_duration =
                Duration::from_secs(lease_duration.unsigned_abs().into()).max(self.duration);
            let is_silent = observed.changed.is_some_and(|at| at.elapsed() > lease_duration);
            if !holder.is_empty() && !is_silent {
                return Ok(());
            }
            self.acquire(&mut lease);
        }
        let sent = Instant::now();
        self.write_lease(&mut observed, lease).await?;
        self.set_last_renewal(Some(sent));
        Ok(())
    }

    async fn write_lease(
        &self,
        observed: &mut ObservedLease,
        lease: Lease,
    ) -> Result<(), kube::Error> {
        let written = self.api.replace(LEASE_NAME, &PostParams::default(), &lease).await?;
        observed.observe(written);
        Ok(())
    }

    fn acquire(&self, lease: &mut Lease) {
        let now = Timestamp::now();
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(self.identity.clone());
        spec.acquire_time = Some(MicroTime(now));
        spec.lease_duration_seconds = i32::try_from(self.duration.as_secs()).ok();
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0) + 1);
        renew(lease, now);
    }

    /// Holds the leadership for two thirds of the Lease's duration since the renewal was sent: the
    /// rest is for acts in progress.
    fn set_last_renewal(&self, since: Option<Instant>) {
        let until = since.map(|since| since + self.duration * 2 / 3);
        *lock(&self.until) = until;
    }
}

impl ObservedLease {
    fn observe(&mut self, lease: Lease) {
        let former = self.lease.as_ref().and_then(Lease::resource_version);
        if former != lease.resource_version() {
            self.changed = Some(Instant::now());
        }
        self.lease = Some(lease);
    }
}

fn term(lease: Option<&Lease>) -> Term {
    let spec = lease.and_then(|lease| lease.spec.as_ref());
    Term(spec.and_then(|spec| spec.lease_transitions).unwrap_or(0))
}

fn renew(lease: &mut Lease, now: Timestamp) {
    let spec: &mut LeaseSpec = lease.spec.get_or_insert_default();
    spec.renew_time = Some(MicroTime(now));
}

/// The annotation of the Lease with the nodes that were acted on, so that the next leader
/// continues the brake's count.
const JOURNAL: &str = "ebs.csi.aws.com/acted-on";
/// How long a node counts in the journal.
const WINDOW: SignedDuration = SignedDuration::from_mins(10);

/// The nodes that were acted on recently, each with the time when it was first acted on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journal {
    at: BTreeMap<String, Timestamp>,
}

impl Journal {
    /// Reads the journal of a Lease. An annotation that cannot be read counts as empty: the other
    /// half of the brake, for an outage, still applies.
    pub fn read(lease: &Lease) -> Self {
        let text = lease.annotations().get(JOURNAL);
        let at: BTreeMap<String, String> =
            text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let at = at.into_iter().filter_map(|(node, time)| Some((node, time.parse().ok()?)));
        Self { at: at.collect() }
    }

    /// Returns whether the node was acted on within the window. A time in the future counts: the
    /// clock was set back.
    pub fn was_acted_on(&self, node: &str, now: Timestamp) -> bool {
        self.at.get(node).is_some_and(|at| now.duration_since(*at) < WINDOW)
    }

    /// Returns the nodes that count.
    pub fn nodes(&self, now: Timestamp) -> impl Iterator<Item = &str> {
        let counts = move |at: &Timestamp| now.duration_since(*at) < WINDOW;
        self.at.iter().filter(move |(_, at)| counts(at)).map(|(node, _)| node.as_str())
    }

    /// Records that the node is about to be acted on.
    pub fn add(&mut self, node: &str, now: Timestamp) {
        if !self.was_acted_on(node, now) {
            self.at.insert(node.to_owned(), now);
        }
    }

    /// Writes the journal to the Lease, without entries that no longer count.
    pub fn write(&self, lease: &mut Lease, now: Timestamp) {
        let at: BTreeMap<_, _> =
            self.nodes(now).map(|node| (node, self.at[node].to_string())).collect();
        // The serialization of a map of strings cannot fail.
        let text = serde_json::to_string(&at).unwrap_or_default();
        lease.annotations_mut().insert(JOURNAL.to_owned(), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_leader_counts_journal_entries_for_10_minutes() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut journal = Journal::default();
        journal.add("a", start);
        let mut lease = Lease::default();
        journal.write(&mut lease, start);
        let read = Journal::read(&lease);
        assert_eq!(read, journal);
        assert!(read.was_acted_on("a", start + SignedDuration::from_secs(599)));
        assert!(!read.was_acted_on("a", start + SignedDuration::from_secs(600)));
        assert!(!read.was_acted_on("b", start));
        // The clock was set back.
        assert!(read.was_acted_on("a", start - SignedDuration::from_hours(5)));
        read.write(&mut lease, start + SignedDuration::from_mins(11));
        assert_eq!(Journal::read(&lease), Journal::default());
    }
}
