//! The operations that run. An operation belongs to its volume, not to the connection that asked
//! for it: it goes on when the asker has left, and whoever asks the same again joins it.
//!
//! Who asks is told the outcome later: answers are left here for the thread that talks. What may
//! wait here is bounded, for each connection and in all; beyond that the answer is Busy.
mod lane;
mod state;
#[cfg(test)]
mod tests;

use crate::bell::Bell;
use crate::tool_places::ToolPlaces;
use ebs_csi_wire::{Operation, Outcome, Refusal};
use lane::{Class, Lane};
use state::{Behind, State};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use state::Work;

/// Threads that work: as many as all classes together may have.
pub const fn workers() -> usize {
    let (mut sum, mut index) = (0, 0);
    while index < Class::ALL.len() {
        sum += Class::ALL[index].workers();
        index += 1;
    }
    sum
}

/// One request of a connection, which makes one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asker {
    /// The connection.
    pub connection: u64,
    /// The caller's number of its request.
    pub id: u64,
}

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Submitted {
    /// It is answered at once.
    Answer(Outcome),
    /// The answer will be among [`Table::answers`], unless the asker gives up.
    Later,
    /// The table takes nothing any more.
    Closed,
}

/// The table, shared by the thread that talks and the threads that work.
#[derive(Debug)]
pub struct Table {
    state: Mutex<State>,
    places: Arc<ToolPlaces>,
    bell: Bell,
    /// Work is waiting: for one worker.
    offered: Condvar,
    /// Something has ended: for who ends the process.
    ended: Condvar,
}

impl Table {
    /// An empty one. The bell is rung when there are answers.
    pub fn new(places: Arc<ToolPlaces>, bell: Bell) -> Self {
        Self {
            state: Mutex::default(),
            places,
            bell,
            offered: Condvar::new(),
            ended: Condvar::new(),
        }
    }

    /// Start the operation or join the same one that runs. Who does not wait is answered at once.
    pub fn submit(&self, operation: Operation, waits: bool, asker: Asker) -> Submitted {
        let mut state = self.lock();
        state.inspections += 1;
        let Some(lane) = Lane::of(&operation, state.inspections) else {
            return Submitted::Answer(Refusal::Unsupported.into());
        };
        let submitted = state.admit(lane, Arc::new(operation), waits, asker);
        drop(state);
        self.offered.notify_one();
        submitted
    }

    /// The connection waits no longer; what it is told. None when its answer is among
    /// [`Table::answers`], or it waits for none.
    pub fn give_up(&self, connection: u64) -> Option<Outcome> {
        let mut state = self.lock();
        let waits = |behind: &Behind| behind.asker.connection == connection;
        if let Some(index) = state.behind.iter().position(waits) {
            state.behind.remove(index);
            return Some(Refusal::Busy.into());
        }
        state.runs.values_mut().find_map(|run| {
            let mut askers = run.askers.iter();
            let index = askers.position(|asker| asker.connection == connection)?;
            run.askers.swap_remove(index);
            Some(Outcome::Pending)
        })
    }

    /// Outcomes for those who wait.
    pub fn answers(&self) -> Vec<(Asker, Outcome)> {
        std::mem::take(&mut self.lock().answers)
    }

    /// It rings when there are answers.
    pub fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Next piece of work; waits for one. None when the table is closed and there is none for this
    /// worker.
    pub fn take(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if let Some((work, place)) = state.next() {
                if place {
                    self.places.adopt();
                }
                return Some(work);
            }
            if state.closed {
                return None;
            }
            state = self
                .offered
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The work is done, by the thread that took it.
    pub fn finish(&self, work: &Work, outcome: &Outcome) {
        let mut state = self.lock();
        state.taken[Class::of(&work.operation).index()] -= 1;
        if let Some(run) = state.runs.remove(&work.lane) {
            let answers = run.askers.into_iter().map(|asker| (asker, outcome.clone()));
            state.answers.extend(answers);
        }
        if self.places.leave() && !state.hand_on() {
            self.places.give_back();
        }
        state.let_in(&work.lane);
        self.changed(state);
    }

    /// The work wants a tool, and there is no place for one: it begins anew when there is.
    pub fn park(&self, work: &Work) {
        let mut state = self.lock();
        state.taken[Class::of(&work.operation).index()] -= 1;
        let ending = state.ending || state.closed;
        let Some(run) = state.runs.get_mut(&work.lane) else {
            return;
        };
        run.taken = false;
        if ending {
            state.give_away(&work.lane);
        } else if self.places.reserve() {
            // One came free meanwhile.
            run.place = true;
            state.ready[Class::Disk.index()].push_front(work.lane.clone());
        } else {
            state.parked.push_back(work.lane.clone());
        }
        self.changed(state);
    }

    /// What runs: the operation and since when.
    pub fn running(&self) -> Vec<(Arc<Operation>, Instant)> {
        let state = self.lock();
        let runs = state.runs.values();
        runs.map(|run| (Arc::clone(&run.operation), run.since))
            .collect()
    }

    /// A caller has connected; it has left when the answer is dropped.
    pub fn caller(&self) -> Caller<'_> {
        self.lock().callers += 1;
        Caller(self)
    }

    /// Something was asked, be it what is answered without this table.
    pub fn asked(&self) {
        self.lock().asked = Some(Instant::now());
    }

    /// Begin nothing any more that may take long, and serve what else is asked: until no caller is
    /// connected, or none has asked for `quiet`, at most `patience`.
    pub fn serve_last(&self, quiet: Duration, patience: Duration) {
        let begun = Instant::now();
        let mut state = self.lock();
        state.ending = true;
        // Nothing was done for those that wait for a tool.
        for lane in std::mem::take(&mut state.parked) {
            state.give_away(&lane);
        }
        self.changed(state);
        let mut state = self.lock();
        while state.callers > 0 {
            let last = state.asked.map_or(begun, |asked| asked.max(begun));
            let end = (begun + patience).min(last + quiet);
            if end <= Instant::now() {
                return;
            }
            state = match self.wait(state, end) {
                Ok(again) => again,
                Err(()) => self.lock(),
            };
        }
    }

    /// Take no more work and wait until what runs has ended, at most `patience`. True when all of
    /// it has.
    pub fn drain(&self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        let mut state = self.lock();
        state.closed = true;
        self.offered.notify_all();
        while state
            .runs
            .keys()
            .any(|lane| matches!(lane, Lane::Change(_)))
        {
            match self.wait(state, end) {
                Ok(again) => state = again,
                Err(()) => return false,
            }
        }
        true
    }

    /// Tell whoever waits for what may have changed.
    fn changed(&self, state: MutexGuard<'_, State>) {
        if !state.answers.is_empty() {
            self.bell.ring();
        }
        drop(state);
        self.offered.notify_one();
        self.ended.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wait for a change; the error says that the time is over.
    fn wait<'s>(
        &self,
        state: MutexGuard<'s, State>,
        end: Instant,
    ) -> Result<MutexGuard<'s, State>, ()> {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(());
        }
        Ok(self
            .ended
            .wait_timeout(state, left)
            .unwrap_or_else(PoisonError::into_inner)
            .0)
    }
}

/// A connection whose caller may ask again.
#[derive(Debug)]
pub struct Caller<'t>(&'t Table);

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.0.lock().callers -= 1;
        self.0.ended.notify_all();
    }
}
