//! The operations that run. An operation belongs to its volume, not to the connection that asked for it: it goes on
//! when the asker has left, and whoever asks the same again joins it.
use ebs_csi_wire::{Operation, Outcome, Refusal, VolumeId};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Looks at volumes that may run at once. A file system that hangs keeps its thread: the rest must not go the same way.
const LOOKS: usize = 4;

/// Longest time that anybody is kept waiting, whatever he asked for.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// Changes of one volume come one after the other; looks do not wait for them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Lane {
    Change(VolumeId),
    Look(VolumeId),
}

impl Lane {
    fn of(operation: &Operation) -> Option<Self> {
        let volume = operation.volume()?.clone();
        Some(match operation {
            Operation::Stats(_) | Operation::NvmeStatistics(_) => Self::Look(volume),
            _ => Self::Change(volume),
        })
    }
}

#[derive(Debug)]
struct Run {
    lane: Lane,
    operation: Operation,
    since: Instant,
    outcome: Mutex<Option<Outcome>>,
}

#[derive(Debug, Default)]
struct State {
    running: HashMap<Lane, Arc<Run>>,
    waiting: VecDeque<Arc<Run>>,
    callers: usize,
    asked: Option<Instant>,
    ending: bool,
    closed: bool,
}

/// The table, shared by the threads that talk and the threads that work.
#[derive(Debug, Default)]
pub struct Table {
    state: Mutex<State>,
    /// Work is waiting: for one worker.
    offered: Condvar,
    /// Something has ended: for everybody who waits for it.
    ended: Condvar,
}

/// One piece of work that a worker has taken.
#[derive(Debug)]
pub struct Work(Arc<Run>);

impl Work {
    /// What is to be done.
    pub fn operation(&self) -> &Operation {
        &self.0.operation
    }

    /// When it was asked for.
    pub fn since(&self) -> Instant {
        self.0.since
    }
}

impl Table {
    /// Start the operation or join the same one that runs, and wait for it, at most `wait`. None when the table is
    /// closed and takes no more work.
    pub fn submit(&self, operation: Operation, wait: Duration) -> Option<Outcome> {
        let Some(lane) = Lane::of(&operation) else {
            return Some(Refusal::Unsupported.into());
        };
        let end = Instant::now() + wait.min(LONGEST_WAIT);
        let mut state = self.lock();
        let run = loop {
            if state.closed {
                return None;
            }
            match state.running.get(&lane) {
                Some(run) if run.operation == operation => break Arc::clone(run),
                _ if state.ending && takes_long(&operation) => return Some(Refusal::Busy.into()),
                None if !too_many_looks(&state, &lane) => {
                    let run = Arc::new(Run {
                        lane: lane.clone(),
                        operation,
                        since: Instant::now(),
                        outcome: Mutex::new(None),
                    });
                    state.running.insert(lane, Arc::clone(&run));
                    state.waiting.push_back(Arc::clone(&run));
                    self.offered.notify_one();
                    break run;
                }
                _ => match self.wait(state, end) {
                    Ok(again) => state = again,
                    Err(_) => return Some(Refusal::Busy.into()),
                },
            }
        };
        loop {
            if let Some(outcome) = lock(&run.outcome).clone() {
                return Some(outcome);
            }
            match self.wait(state, end) {
                Ok(again) => state = again,
                Err(_) => return Some(Outcome::Pending),
            }
        }
    }

    /// Next piece of work; waits for one. None when the table is closed and empty.
    pub fn take(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if let Some(run) = state.waiting.pop_front() {
                return Some(Work(run));
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

    /// The work is done.
    pub fn finish(&self, work: Work, outcome: Outcome) {
        let mut state = self.lock();
        state.running.remove(&work.0.lane);
        *lock(&work.0.outcome) = Some(outcome);
        drop(state);
        self.ended.notify_all();
    }

    /// What runs: the operation and since when.
    pub fn running(&self) -> Vec<(Operation, Instant)> {
        self.lock()
            .running
            .values()
            .map(|run| (run.operation.clone(), run.since))
            .collect()
    }

    /// A caller has connected; it has left when the answer is dropped.
    pub fn caller(&self) -> Caller<'_> {
        self.lock().callers += 1;
        Caller(self)
    }

    /// Something was asked, be it a look that this table does not carry out.
    pub fn asked(&self) {
        self.lock().asked = Some(Instant::now());
    }

    /// Begin nothing any more that may take long, and serve what else is asked: until no caller is
    /// connected, or none has asked for `quiet`, at most `patience`.
    pub fn serve_last(&self, quiet: Duration, patience: Duration) {
        let begun = Instant::now();
        let mut state = self.lock();
        state.ending = true;
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

    /// Take no more work and wait until what runs has ended, at most `patience`. True when all of it has.
    pub fn drain(&self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        let mut state = self.lock();
        state.closed = true;
        self.offered.notify_all();
        self.ended.notify_all();
        while state
            .running
            .keys()
            .any(|lane| matches!(lane, Lane::Change(_)))
        {
            match self.wait(state, end) {
                Ok(again) => state = again,
                Err(_) => return false,
            }
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
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

/// Formats, checks and growth of large volumes take minutes.
fn takes_long(operation: &Operation) -> bool {
    matches!(operation, Operation::Stage(_) | Operation::Expand(_))
}

fn too_many_looks(state: &State, lane: &Lane) -> bool {
    matches!(lane, Lane::Look(_))
        && state
            .running
            .keys()
            .filter(|lane| matches!(lane, Lane::Look(_)))
            .count()
            >= LOOKS
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebs_csi_wire::{Done, Expand, KubeletPath, Stats, Unpublish, Usage};
    use std::thread;

    fn unpublish(volume: &str, target: &str) -> Operation {
        Operation::Unpublish(Unpublish {
            volume: VolumeId::parse(volume).expect("id"),
            target: KubeletPath::parse(target).expect("path"),
        })
    }

    const A: &str = "vol-00000000000000001";
    const B: &str = "vol-00000000000000002";
    const LONG: Duration = Duration::from_secs(30);
    const DONE: Outcome = Outcome::Done(Done {
        already: false,
        copied: false,
    });

    #[test]
    fn a_repeated_request_joins_the_running_operation() {
        let table = Arc::new(Table::default());
        let first = table.submit(unpublish(A, "/k/a"), Duration::ZERO);
        assert_eq!(first, Some(Outcome::Pending));
        let again = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.submit(unpublish(A, "/k/a"), LONG))
        };
        let work = table.take().expect("work");
        assert_eq!(table.running().len(), 1);
        table.finish(work, DONE);
        // Whether it joined before or after the end decides if there is a second run; both answer.
        let second = thread::spawn({
            let table = Arc::clone(&table);
            move || {
                if let Some(work) = table.take() {
                    table.finish(work, DONE);
                }
            }
        });
        assert_eq!(again.join().expect("join"), Some(DONE));
        table.drain(LONG);
        second.join().expect("join");
    }

    #[test]
    fn another_request_for_the_same_volume_waits_and_is_then_busy() {
        let table = Table::default();
        table.submit(unpublish(A, "/k/a"), Duration::ZERO);
        let other = table.submit(unpublish(A, "/k/b"), Duration::from_millis(10));
        assert_eq!(other, Some(Refusal::Busy.into()));
        assert_eq!(
            table.submit(unpublish(B, "/k/b"), Duration::ZERO),
            Some(Outcome::Pending)
        );
    }

    #[test]
    fn a_look_does_not_wait_for_a_change() {
        let table = Arc::new(Table::default());
        table.submit(unpublish(A, "/k/a"), Duration::ZERO);
        let stats = Operation::Stats(Stats {
            volume: VolumeId::parse(A).expect("id"),
            path: KubeletPath::parse("/k/a").expect("path"),
        });
        let asker = thread::spawn({
            let table = Arc::clone(&table);
            move || table.submit(stats, LONG)
        });
        let change = table.take().expect("the change");
        let look = table.take().expect("the look");
        assert!(matches!(look.operation(), Operation::Stats(_)));
        table.finish(look, Outcome::Usage(Usage::default()));
        assert_eq!(
            asker.join().expect("join"),
            Some(Outcome::Usage(Usage::default()))
        );
        table.finish(change, DONE);
    }

    #[test]
    fn hanging_looks_do_not_take_every_worker() {
        let table = Table::default();
        for n in 0..LOOKS + 2 {
            let stats = Operation::Stats(Stats {
                volume: VolumeId::parse(&format!("vol-{n:017x}")).expect("id"),
                path: KubeletPath::parse("/k/a").expect("path"),
            });
            let expected = if n < LOOKS {
                Outcome::Pending
            } else {
                Refusal::Busy.into()
            };
            assert_eq!(table.submit(stats, Duration::ZERO), Some(expected), "{n}");
        }
    }

    #[test]
    fn the_end_waits_for_callers_and_begins_nothing_long() {
        let table = Arc::new(Table::default());
        let caller = table.caller();
        let serving = thread::spawn({
            let table = Arc::clone(&table);
            move || table.serve_last(LONG, LONG)
        });
        while !table.lock().ending {
            thread::yield_now();
        }
        let expand = Operation::Expand(Expand {
            volume: VolumeId::parse(B).expect("id"),
            path: KubeletPath::parse("/k/b").expect("path"),
            required_bytes: None,
            limit_bytes: None,
        });
        assert_eq!(table.submit(expand, LONG), Some(Refusal::Busy.into()));
        assert_eq!(
            table.submit(unpublish(A, "/k/a"), Duration::ZERO),
            Some(Outcome::Pending)
        );
        assert!(!serving.is_finished());
        drop(caller);
        serving.join().expect("join");
        // Nobody is connected, or nobody leaves in time.
        table.serve_last(LONG, LONG);
        let _caller = table.caller();
        table.serve_last(LONG, Duration::ZERO);
        // Or who is connected does not ask.
        table.asked();
        table.serve_last(Duration::from_millis(1), LONG);
    }

    #[test]
    fn a_closed_table_finishes_what_runs_and_takes_nothing_more() {
        let table = Arc::new(Table::default());
        table.submit(unpublish(A, "/k/a"), Duration::ZERO);
        let drained = thread::spawn({
            let table = Arc::clone(&table);
            move || table.drain(LONG)
        });
        let work = table.take().expect("work");
        table.finish(work, DONE);
        assert!(drained.join().expect("join"));
        assert!(table.take().is_none());
        assert_eq!(table.submit(unpublish(B, "/k/b"), LONG), None);
    }
}
