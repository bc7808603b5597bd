//! The running operations. An operation belongs to its volume, not to the connection that requested
//! it: it goes on when the connection has closed, and a repeated request joins it.
//!
//! Outcomes are delivered later: they are stored here for the thread that serves the sockets. The
//! number of waiting requests is bounded, for each connection and in total; beyond the bound the
//! answer is Busy.
mod state;
#[cfg(test)]
mod tests;

use crate::lock;
use crate::tool::{PlaceKind, ToolPlaces};
use ebs_csi_wire::{Operation, Outcome, Refusal, WorkerClass};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use state::{Lane, QueuedRequest, TableState, workers_of};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

pub(crate) use state::Work;

/// Returns the number of worker threads: the sum over all classes.
pub(crate) const fn workers() -> usize {
    let (mut sum, mut index) = (0, 0);
    while index < WorkerClass::ALL.len() {
        sum += workers_of(WorkerClass::ALL[index]);
        index += 1;
    }
    sum
}

/// One request of a connection. A connection makes one request at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestKey {
    pub(crate) connection: u64,
    /// The peer's number for the request.
    pub(crate) id: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Submitted {
    /// The request is answered at once.
    Answer(Outcome),
    /// The answer will be among [`OperationTable::answers`], unless the connection gives up.
    Later,
    /// The table accepts no more requests.
    Closed,
}

/// The table, which the thread that serves the sockets shares with the workers.
#[derive(Debug)]
pub(crate) struct OperationTable {
    state: Mutex<TableState>,
    places: Arc<ToolPlaces>,
    wake_event: WakeEvent,
    /// Notified when something has ended; wakes the thread that ends the process.
    change: Condvar,
}

impl OperationTable {
    /// Creates an empty table. The event is signalled when there are answers.
    pub(crate) fn new(places: Arc<ToolPlaces>, wake_event: WakeEvent) -> Self {
        Self { state: Mutex::default(), places, wake_event, change: Condvar::new() }
    }

    /// Starts the operation, or joins the same one that is running. A request that does not wait is
    /// answered at once.
    pub(crate) fn submit(
        &self,
        operation: Operation,
        waits: bool,
        request: RequestKey,
    ) -> Submitted {
        let mut state = self.lock();
        state.inspections += 1;
        let Some(lane) = Lane::of(&operation, state.inspections) else {
            return Submitted::Answer(Refusal::Unsupported.into());
        };
        let submitted = state.admit(lane, Arc::new(operation), waits, request);
        state.wake_worker();
        submitted
    }

    /// Ends the wait of a connection and returns the answer for it. Returns None when the answer is
    /// among [`OperationTable::answers`], or when the connection does not wait.
    pub(crate) fn stop_waiting(&self, connection: u64) -> Option<Outcome> {
        let mut state = self.lock();
        let waits = |queued: &QueuedRequest| queued.request.connection == connection;
        if let Some(index) = state.queued.iter().position(waits) {
            state.queued.remove(index);
            return Some(Refusal::Busy.into());
        }
        state.runs.values_mut().find_map(|run| {
            let mut waiting = run.waiting.iter();
            let index = waiting.position(|request| request.connection == connection)?;
            run.waiting.swap_remove(index);
            Some(Outcome::Pending)
        })
    }

    /// Takes the outcomes for the connections that wait.
    pub(crate) fn answers(&self) -> Vec<(RequestKey, Outcome)> {
        std::mem::take(&mut self.lock().answers)
    }

    /// Returns the event that is signalled when there are answers.
    pub(crate) fn wake_event(&self) -> &WakeEvent {
        &self.wake_event
    }

    /// Takes the next piece of work, and waits for one. Returns None when the table is closed and
    /// has no work for this worker.
    pub(crate) fn take(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if let Some((work, place)) = state.next() {
                if let Some(kind) = place {
                    self.places.take_reserved(kind);
                }
                return Some(work);
            }
            if state.closed {
                return None;
            }
            let this = thread::current();
            let id = this.id();
            state.idle.push(this);
            drop(state);
            thread::park();
            state = self.lock();
            // A thread may return from the wait without having been woken.
            state.idle.retain(|idle| idle.id() != id);
        }
    }

    /// Records the outcome of work. The thread that took the work must call this.
    pub(crate) fn finish(&self, work: &Work, outcome: &Outcome) {
        let mut state = self.lock();
        state.taken[work.operation.properties().workers.index()] -= 1;
        if let Some(run) = state.runs.remove(&work.lane) {
            let answers = run.waiting.into_iter().map(|request| (request, outcome.clone()));
            state.answers.extend(answers);
        }
        self.pass_places_on(&mut state);
        state.admit_queued(&work.lane);
        self.notify_change(state);
    }

    /// Returns work that needs a tool while no place of this kind is free. The operation is started
    /// again when there is one.
    pub(crate) fn park(&self, work: &Work, kind: PlaceKind) {
        let mut state = self.lock();
        self.pass_places_on(&mut state);
        state.taken[work.operation.properties().workers.index()] -= 1;
        let ending = state.ending || state.closed;
        let Some(run) = state.runs.get_mut(&work.lane) else {
            return;
        };
        run.taken = false;
        if ending {
            state.refuse_as_busy(&work.lane);
        } else if self.places.reserve(kind) {
            // A place has become free meanwhile.
            run.place = Some(kind);
            state.ready[WorkerClass::Disk.index()].push_front(work.lane.clone());
        } else {
            state.parked[kind.index()].push_back(work.lane.clone());
        }
        self.notify_change(state);
    }

    /// Returns the running operations and their start times.
    pub(crate) fn running(&self) -> Vec<(Arc<Operation>, Instant)> {
        let state = self.lock();
        let runs = state.runs.values();
        runs.map(|run| (Arc::clone(&run.operation), run.since)).collect()
    }

    /// Counts a connected caller until the returned value is dropped.
    pub(crate) fn caller(&self) -> Caller<'_> {
        self.lock().callers += 1;
        Caller(self)
    }

    /// Notes that a request has arrived, also one that is answered without this table.
    pub(crate) fn note_request(&self) {
        self.lock().last_request = Some(Instant::now());
    }

    /// Starts no more operations that may take long, and serves other requests until no caller is
    /// connected, no caller has sent a request for `quiet`, or `timeout` is over.
    pub(crate) fn serve_until_quiet(&self, quiet: Duration, timeout: Duration) {
        let begun = Instant::now();
        let mut state = self.lock();
        state.ending = true;
        // Nothing was done yet for operations that wait for a tool.
        for lane in std::mem::take(&mut state.parked).into_iter().flatten() {
            state.refuse_as_busy(&lane);
        }
        self.notify_change(state);
        let mut state = self.lock();
        while state.callers > 0 {
            let last = state.last_request.map_or(begun, |last| last.max(begun));
            let end = (begun + timeout).min(last + quiet);
            if end <= Instant::now() {
                return;
            }
            state = match self.wait(state, end) {
                Ok(again) => again,
                Err(()) => self.lock(),
            };
        }
    }

    /// Accepts no more work and waits, at most `timeout`, until the running changes have ended.
    /// Returns whether all of them have.
    pub(crate) fn drain(&self, timeout: Duration) -> bool {
        let end = Instant::now() + timeout;
        let mut state = self.lock();
        state.closed = true;
        for idle in std::mem::take(&mut state.idle) {
            idle.unpark();
        }
        while state.runs.keys().any(|lane| matches!(lane, Lane::Change(_))) {
            match self.wait(state, end) {
                Ok(again) => state = again,
                Err(()) => return false,
            }
        }
        true
    }

    /// Passes the places of the operation on this thread to those that wait.
    fn pass_places_on(&self, state: &mut TableState) {
        for kind in self.places.end_operation() {
            if !state.pass_place_on(kind) {
                self.places.give_back(kind);
            }
        }
    }

    /// Notifies all threads that may wait for this change.
    fn notify_change(&self, mut state: MutexGuard<'_, TableState>) {
        if !state.answers.is_empty() {
            self.wake_event.signal();
        }
        state.wake_worker();
        drop(state);
        self.change.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, TableState> {
        lock(&self.state)
    }

    /// Waits for a change; the error says that the time is over.
    fn wait<'s>(
        &self,
        state: MutexGuard<'s, TableState>,
        end: Instant,
    ) -> Result<MutexGuard<'s, TableState>, ()> {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(());
        }
        Ok(self.change.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0)
    }
}

/// A connection whose caller may send further requests.
#[derive(Debug)]
pub(crate) struct Caller<'t>(&'t OperationTable);

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.0.lock().callers -= 1;
        self.0.change.notify_all();
    }
}

/// Wakes the thread that serves the sockets, from the worker threads: a counter of the kernel that
/// can be polled together with sockets (eventfd(2)).
#[derive(Debug)]
pub(crate) struct WakeEvent(OwnedFd);

impl WakeEvent {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(eventfd(0, flags)?))
    }

    /// Wakes the thread that waits for this event.
    pub(crate) fn signal(&self) {
        // The write fails only when the counter has reached its maximum, and then the event is
        // signalled already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Resets the counter, so that the next [`WakeEvent::signal`] wakes the waiting thread again.
    pub(crate) fn reset(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for WakeEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
