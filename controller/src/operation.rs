//! Work that outlives the call that began it.
//!
//! A sidecar gives a call a deadline and asks again when it has passed; the work of the first call
//! goes on meanwhile. Each operation is a task of its own under a key. A call with the same key and
//! the same intent joins the operation and gets its result. A call with another intent is refused,
//! or its operation replaces the running one, as the table's [`Conflict`] says.

pub(crate) mod operation_count;
pub mod ordered_watch;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::{Debug, Display};
use std::future::Future;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebs_csi_ec2::Wanted;
use ebs_csi_proto::{Condition, Failure, lock};
use tracing::Instrument;

use operation_count::{Counted, OperationCount};
use ordered_watch::{OrderedWatch, WatchedResult, watched_result};

/// What happens to a call whose key is held by an operation with another intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    Refuse,
    /// The running operation is told to end; the operation of the call begins after that. The
    /// latest intent wins.
    Supersede,
}

#[derive(Debug)]
pub(crate) struct Operations<K, I, T> {
    conflict: Conflict,
    operation_count: OperationCount,
    table: Arc<Mutex<Table<K, I, T>>>,
}

impl<K, I, T> Clone for Operations<K, I, T> {
    fn clone(&self) -> Self {
        Self {
            conflict: self.conflict,
            operation_count: self.operation_count.clone(),
            table: Arc::clone(&self.table),
        }
    }
}

#[derive(Debug)]
struct Table<K, I, T> {
    running: HashMap<K, Running<I, T>>,
    started: u64,
}

#[derive(Debug)]
struct Running<I, T> {
    number: u64,
    intent: I,
    result: WatchedResult<Result<T, Failure>>,
    cancellation: Cancellation,
}

/// The callers that wait for the result of one operation.
///
/// The caller's next request may go to another process and ask for the opposite. An operation that
/// nobody waits for therefore only observes and begins nothing new.
#[derive(Clone, Debug, Default)]
pub(crate) struct Callers(Arc<AtomicUsize>);

/// One caller that waits. It is dropped when the call ends, also when the client goes away.
#[derive(Debug)]
pub(crate) struct Caller(Arc<AtomicUsize>);

impl Callers {
    pub(crate) fn join(&self) -> Caller {
        self.0.fetch_add(1, Ordering::Relaxed);
        Caller(Arc::clone(&self.0))
    }

    /// Succeeds while somebody waits.
    ///
    /// # Errors
    /// [`Condition::OperationPending`] when nobody waits: the result of an operation whose next
    /// step would begin something for nobody.
    pub(crate) fn check_any_waits(&self) -> Result<(), Failure> {
        if self.any_waits() {
            return Ok(());
        }
        Err(Failure::pending("nobody waits for it any more; ask again if it is still wanted"))
    }

    pub(crate) fn any_waits(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Tells an operation whether to stop: whether a caller still waits, and whether a later call took
/// the operation's place.
#[derive(Clone, Debug)]
pub(crate) struct Cancellation {
    superseded: Arc<OrderedWatch<bool>>,
    callers: Callers,
}

impl Cancellation {
    /// Returns whether a later intent has replaced this one; the operation must then begin nothing
    /// more and end.
    pub(crate) fn is_superseded(&self) -> bool {
        self.superseded.get()
    }

    pub(crate) fn check_not_superseded(&self) -> Result<(), Failure> {
        match self.is_superseded() {
            true => Err(Self::superseded_failure()),
            false => Ok(()),
        }
    }

    /// Checks that somebody waits for the result. Call this before anything is begun.
    pub(crate) fn check_wanted(&self) -> Result<(), Failure> {
        self.callers.check_any_waits()
    }

    /// Returns the same check for a call that is still to be sent: whether somebody waits and no
    /// later intent has replaced this one.
    pub(crate) fn wanted(&self) -> Wanted {
        let this = self.clone();
        Arc::new(move || !this.is_superseded() && this.callers.any_waits())
    }

    /// Waits until a later intent replaces this one; never returns when none does.
    pub(crate) async fn superseded(&self) {
        self.superseded.wait_for(|superseded| *superseded).await;
    }

    pub(crate) fn superseded_failure() -> Failure {
        Failure::pending(
            "a later request asked for the opposite and takes its place; ask again if this is still wanted",
        )
    }
}

/// Removes the operation from the table when it is dropped, also after a panic.
struct RemoveOnDrop<K: Eq + Hash, I, T> {
    table: Arc<Mutex<Table<K, I, T>>>,
    key: K,
    number: u64,
    _counted: Counted,
}

impl<K: Eq + Hash, I, T> Drop for RemoveOnDrop<K, I, T> {
    fn drop(&mut self) {
        let mut table = lock(&self.table);
        if table.running.get(&self.key).is_some_and(|running| running.number == self.number) {
            table.running.remove(&self.key);
        }
    }
}

impl<K, I, T> Operations<K, I, T>
where
    K: Clone + Eq + Hash + Display + Send + 'static,
    I: Clone + PartialEq + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    pub(crate) fn new(conflict: Conflict, operation_count: OperationCount) -> Self {
        Self {
            conflict,
            operation_count,
            table: Arc::new(Mutex::new(Table { running: HashMap::new(), started: 0 })),
        }
    }

    /// Joins the operation under `key`, or begins `work`, and waits for the result for at most
    /// `timeout`.
    ///
    /// The work goes on when the caller is dropped or its timeout ends. Must run inside a tokio
    /// runtime.
    ///
    /// # Errors
    /// The failure of the work; [`Condition::OperationPending`] when another intent holds the key
    /// or took it, and when the work panicked, because its effects until then are unknown;
    /// [`Condition::DeadlinePassed`] when `timeout` ends first.
    pub(crate) async fn run<W, F>(
        &self,
        key: K,
        intent: I,
        timeout: Option<Duration>,
        work: W,
    ) -> Result<T, Failure>
    where
        W: FnOnce(Cancellation) -> F + Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let (result, cancellation, _caller) = self.join(key.clone(), intent, work)?;
        let ended = match timeout {
            Some(timeout) => tokio::time::timeout(timeout, result.wait()).await.map_err(|_| {
                Failure::new(
                    Condition::DeadlinePassed,
                    format!("{key}: the time for this call has passed; the work goes on and a repeated call joins it"),
                )
            })?,
            None => result.wait().await,
        };
        // The operation may have succeeded before it noticed; its result is out of date
        // nevertheless.
        cancellation.check_not_superseded()?;
        ended.unwrap_or_else(|| {
            Err(Failure::pending(format!(
                "{key}: the operation ended by a fault of the driver; the log has it, and the call can be repeated"
            )))
        })
    }

    #[allow(clippy::type_complexity)]
    fn join<W, F>(
        &self,
        key: K,
        intent: I,
        work: W,
    ) -> Result<(WatchedResult<Result<T, Failure>>, Cancellation, Caller), Failure>
    where
        W: FnOnce(Cancellation) -> F + Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let mut table = lock(&self.table);
        table.started += 1;
        let number = table.started;
        let (setter, result) = watched_result();
        let cancellation = Cancellation { superseded: Arc::default(), callers: Callers::default() };
        let new = Running {
            number,
            intent: intent.clone(),
            result: result.clone(),
            cancellation: cancellation.clone(),
        };
        let previous = match table.running.entry(key.clone()) {
            Entry::Vacant(free) => {
                free.insert(new);
                None
            }
            Entry::Occupied(taken) if taken.get().intent == intent => {
                let running = taken.get();
                let cancellation = running.cancellation.clone();
                let caller = cancellation.callers.join();
                return Ok((running.result.clone(), cancellation, caller));
            }
            Entry::Occupied(_) if self.conflict == Conflict::Refuse => {
                return Err(Failure::pending(format!(
                    "{key}: another request for it, with other properties, is still being worked on; ask again later"
                )));
            }
            Entry::Occupied(mut taken) => {
                let running = taken.insert(new);
                running.cancellation.superseded.set(true);
                Some(running.result)
            }
        };
        let entry = RemoveOnDrop {
            table: Arc::clone(&self.table),
            key,
            number,
            _counted: self.operation_count.count(),
        };
        let caller = cancellation.callers.join();
        let task_cancellation = cancellation.clone();
        let task = async move {
            let entry = entry;
            if let Some(previous) = previous {
                // A result, or none when the task panicked, both mean that the former operation has
                // ended.
                let _ = previous.wait().await;
            }
            let value = if task_cancellation.is_superseded() {
                Err(Cancellation::superseded_failure())
            } else {
                work(task_cancellation).await
            };
            drop(entry);
            setter.set(value);
        };
        tokio::spawn(task.instrument(tracing::Span::current()));
        Ok((result, cancellation, caller))
    }
}

#[cfg(test)]
mod tests;
