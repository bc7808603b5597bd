//! A client of the mount-helper: typed requests over a few connections.
//!
//! Each running request has its own connection; idle connections are kept for later requests. A
//! request that the helper has not finished in time is answered with [`HelperError::Pending`]: the
//! helper continues the work, and a repeated request joins it. No work is lost when a caller gives
//! up or this process ends.

use std::borrow::Cow;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebs_csi_proto::lock;
use ebs_csi_wire as wire;
use ebs_csi_wire::{Failed, HelperRequest, Operation, Outcome, Refusal, Refused, Slots};
use tokio::sync::Semaphore;

use crate::deadline::Deadline;
use crate::metrics::Metrics;

pub(crate) mod call_failure;
mod connection;
#[cfg(any(test, fuzzing))]
#[path = "../fuzz/answers.rs"]
pub mod fuzz_answers;
mod target;

use connection::Connection;
pub use target::{Address, Target};

/// Simultaneous requests that may take minutes, each on its own connection: more than a node has
/// volumes.
const MOST_SLOW: usize = 160;
/// Simultaneous other requests: none of them waits for a slow one. The sum of both limits is below
/// the connections that the helper keeps.
const MOST_QUICK: usize = 40;
/// Most pages of an inventory. A page has some 100 places, and at most [`wire::frame::MAX_FRAME`]
/// bytes.
const MOST_PAGES: usize = 256;
/// Most idle connections that are kept.
const MOST_IDLE: usize = 4;
/// How long the helper's answer may take in transit, beyond the wait in the request.
const TRANSIT_TIME: Duration = Duration::from_millis(500);
/// Pause between two attempts while the helper is busy with the volume.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// No process listens.
    #[error("the mount-helper does not listen at {address}")]
    Down {
        /// The helper's address.
        address: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The connection ended before an answer: the helper was restarted or died.
    #[error("the mount-helper ended before it answered")]
    Lost(#[source] io::Error),
    /// The helper neither answered nor reported that the work continues.
    #[error("the mount-helper does not answer")]
    Silent,
    /// An answer that no helper of this protocol sends.
    #[error("the mount-helper answered with {0}")]
    Foreign(Cow<'static, str>),
    /// The program at the address does not have this process's key.
    #[error("the program at the mount-helper's address does not have the key")]
    Unproved,
    /// All connections were in use until the deadline.
    #[error("too many requests wait for the mount-helper")]
    Crowded,
    /// The policy or the facts forbid the request.
    #[error("refused")]
    Refused(Refused),
    /// A step failed.
    #[error("failed")]
    Failed(Failed),
    /// The work continues; a repeated request joins it.
    #[error("still running")]
    Pending,
}

impl HelperError {
    /// Returns a label for metrics.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Down { .. } => "down",
            Self::Lost(_) => "lost",
            Self::Silent => "silent",
            Self::Foreign(_) => "foreign",
            Self::Unproved => "unproved",
            Self::Crowded => "crowded",
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
            Self::Pending => "pending",
        }
    }
}

/// A client of the mount-helper.
#[derive(Debug)]
pub struct Helper {
    target: Target,
    idle: Mutex<Vec<Connection>>,
    slow: Semaphore,
    quick: Semaphore,
    next: AtomicU64,
    known: Mutex<Option<wire::Welcome>>,
    metrics: Arc<Metrics>,
}

impl Helper {
    /// Creates a client that connects at its first request.
    pub fn new(target: Target, metrics: Arc<Metrics>) -> Self {
        Self {
            target,
            idle: Mutex::default(),
            slow: Semaphore::new(MOST_SLOW),
            quick: Semaphore::new(MOST_QUICK),
            next: AtomicU64::new(1),
            known: Mutex::default(),
            metrics,
        }
    }

    /// Sends a request and returns its answer.
    pub async fn send<R: HelperRequest>(
        &self,
        request: R,
        deadline: Deadline,
    ) -> Result<R::Answer, HelperError> {
        self.send_operation(request.into(), deadline).await
    }

    /// Sends an operation whose answer is of this type, and repeats it while the helper reports
    /// another operation on the volume.
    pub(crate) async fn send_operation<A: TryFrom<Outcome>>(
        &self,
        operation: Operation,
        deadline: Deadline,
    ) -> Result<A, HelperError> {
        let name = operation.properties().name;
        let result = loop {
            match self.send_once(&operation, deadline).await {
                Err(HelperError::Refused(refused))
                    if refused.reason == Refusal::Busy && deadline.left() > BUSY_PAUSE =>
                {
                    tokio::time::sleep(BUSY_PAUSE).await;
                }
                result => break result,
            }
        };
        let outcome = match &result {
            Ok(_) => "ok",
            Err(error) => error.label(),
        };
        self.metrics.helper_answered(name, outcome);
        A::try_from(result?)
            .map_err(|_| HelperError::Foreign(format!("another answer than to {name}").into()))
    }

    /// Returns every place where the helper holds a volume.
    pub async fn held(&self, deadline: Deadline) -> Result<Vec<wire::HeldVolume>, HelperError> {
        let mut held = Vec::new();
        for _ in 0..MOST_PAGES {
            let first = u32::try_from(held.len()).unwrap_or(u32::MAX);
            let page = self.send(wire::Inspect { first }, deadline).await?;
            let stuck = page.volumes.is_empty();
            held.extend(page.volumes);
            if !page.more {
                self.metrics.disks_by_name(&held);
                return Ok(held);
            }
            if stuck {
                break;
            }
        }
        Err(HelperError::Foreign("an inventory that does not end".into()))
    }

    /// Checks that the helper answers, and returns its greeting.
    pub async fn greet(&self, deadline: Deadline) -> Result<wire::Welcome, HelperError> {
        let connection = self.connect(deadline).await?;
        let welcome = connection.welcome.clone();
        self.keep_idle(connection);
        Ok(welcome)
    }

    async fn send_once(
        &self,
        operation: &Operation,
        deadline: Deadline,
    ) -> Result<Outcome, HelperError> {
        let slots = match operation.properties().slots {
            Slots::Slow => &self.slow,
            Slots::Quick => &self.quick,
        };
        let slot = tokio::time::timeout_at(deadline.instant(), slots.acquire()).await;
        let Ok(Ok(_slot)) = slot else {
            return Err(HelperError::Crowded);
        };
        loop {
            let idle = lock(&self.idle).pop();
            let (mut connection, reused) = match idle {
                Some(connection) => (connection, true),
                None => (self.connect(deadline).await?, false),
            };
            let request = wire::Request {
                id: self.next.fetch_add(1, Ordering::Relaxed),
                wait: deadline.left(),
                operation: operation.clone(),
            };
            match connection.exchange(&request, TRANSIT_TIME).await {
                Ok(outcome) => {
                    self.keep_idle(connection);
                    return result_of(outcome);
                }
                // The helper was restarted since the last use of the connection; every request may
                // be repeated.
                Err(HelperError::Lost(_)) if reused => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn connect(&self, deadline: Deadline) -> Result<Connection, HelperError> {
        let connection = Connection::open(&self.target, deadline).await?;
        let (welcome, mut known) = (&connection.welcome, lock(&self.known));
        if known.as_ref() != Some(welcome) {
            tracing::info!(
                release = %welcome.release,
                version = welcome.version,
                policy = %welcome.policy_digest,
                sandbox = welcome.sandbox,
                landlock = ?welcome.landlock,
                wider = %welcome.wider.join(" "),
                "the mount-helper answers"
            );
            self.metrics.helper_answers(welcome.landlock, welcome.wider.len());
            *known = Some(welcome.clone());
        }
        Ok(connection)
    }

    fn keep_idle(&self, connection: Connection) {
        let mut idle = lock(&self.idle);
        if idle.len() < MOST_IDLE {
            idle.push(connection);
        }
    }
}

/// Converts answers that are not results to errors.
fn result_of(outcome: Outcome) -> Result<Outcome, HelperError> {
    match outcome {
        Outcome::Refused(refused) => Err(HelperError::Refused(refused)),
        Outcome::Failed(failed) => Err(HelperError::Failed(failed)),
        Outcome::Pending => Err(HelperError::Pending),
        result => Ok(result),
    }
}
