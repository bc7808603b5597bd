//! The state of the table: what is running, what waits for what, and what is next.
use super::{RequestKey, Submitted};
use crate::tool::{PlaceKind, TOOLS};
use ebs_csi_wire::{Operation, Outcome, Refusal, RequestProperties, VolumeId, WorkerClass};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::thread::Thread;
use std::time::Instant;

/// Largest number of operations of one class, running or waiting. A node has fewer volumes.
pub(super) const MOST: usize = 512;
/// Largest number of them that one connection may have started, so that other connections find
/// room.
pub(super) const MOST_OF_ONE: usize = 128;

pub(super) const fn workers_of(class: WorkerClass) -> usize {
    match class {
        WorkerClass::Mount => 8,
        WorkerClass::Look | WorkerClass::Release => 6,
        WorkerClass::Inspect => 2,
        // Workers for the operations that have a tool, and six more for those that have none.
        WorkerClass::Disk => TOOLS + 6,
    }
}

/// Operations with the same lane run one after the other: changes of one volume do, while reads of
/// statistics do not wait for changes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    Change(VolumeId),
    Look(VolumeId),
    /// Each inventory has a number of its own, so that nobody gets one that began before the
    /// request.
    Inspect(u64),
}

impl Lane {
    /// Returns the lane of an operation; None for one that names no volume where its class needs
    /// one. `number` distinguishes inventories.
    pub(super) fn of(operation: &Operation, number: u64) -> Option<Self> {
        Some(match operation.properties().workers {
            WorkerClass::Inspect => Self::Inspect(number),
            WorkerClass::Look => Self::Look(operation.volume()?.clone()),
            _ => Self::Change(operation.volume()?.clone()),
        })
    }
}

#[derive(Debug)]
pub(super) struct Run {
    pub(super) operation: Arc<Operation>,
    pub(super) since: Instant,
    /// The connection that requested the operation first.
    pub(super) by: u64,
    pub(super) waiting: Vec<RequestKey>,
    /// Whether a worker carries it out.
    pub(super) taken: bool,
    /// The kind of place that is reserved for it.
    pub(super) place: Option<PlaceKind>,
}

/// A request that waits until another operation on its volume has ended.
#[derive(Debug)]
pub(super) struct QueuedRequest {
    pub(super) lane: Lane,
    pub(super) operation: Arc<Operation>,
    pub(super) request: RequestKey,
}

#[derive(Debug, Default)]
pub(super) struct TableState {
    pub(super) runs: HashMap<Lane, Run>,
    /// For each class, the operations that wait for a worker.
    pub(super) ready: [VecDeque<Lane>; WorkerClass::ALL.len()],
    /// For each class, the number of operations that have a worker.
    pub(super) taken: [usize; WorkerClass::ALL.len()],
    /// The workers that wait for work, in the order in which they began to wait.
    pub(super) idle: Vec<Thread>,
    /// For each kind of place, the operations that wait for one, without a worker.
    pub(super) parked: [VecDeque<Lane>; PlaceKind::ALL.len()],
    pub(super) queued: Vec<QueuedRequest>,
    pub(super) answers: Vec<(RequestKey, Outcome)>,
    pub(super) inspections: u64,
    pub(super) callers: usize,
    pub(super) last_request: Option<Instant>,
    pub(super) ending: bool,
    pub(super) closed: bool,
}

/// One piece of work that a worker has taken.
#[derive(Debug)]
pub(crate) struct Work {
    pub(super) lane: Lane,
    pub(super) operation: Arc<Operation>,
    since: Instant,
}

impl Work {
    pub(crate) fn operation(&self) -> &Operation {
        &self.operation
    }

    /// Returns when the operation was requested.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }
}

impl TableState {
    pub(super) fn admit(
        &mut self,
        lane: Lane,
        operation: Arc<Operation>,
        waits: bool,
        request: RequestKey,
    ) -> Submitted {
        let busy = || Submitted::Answer(Refusal::Busy.into());
        let RequestProperties { workers: class, may_take_long, .. } = *operation.properties();
        if self.closed {
            return Submitted::Closed;
        }
        let full = self.is_full(class, request.connection);
        match self.runs.get_mut(&lane) {
            Some(run) if run.operation == operation => {
                if !waits {
                    return Submitted::Answer(Outcome::Pending);
                }
                run.waiting.push(request);
            }
            _ if self.ending && may_take_long => return busy(),
            Some(_) if !waits => return busy(),
            Some(_) => self.queued.push(QueuedRequest { lane, operation, request }),
            None if full => return busy(),
            None => {
                self.ready[class.index()].push_back(lane.clone());
                let run = Run {
                    operation,
                    since: Instant::now(),
                    by: request.connection,
                    waiting: Vec::from_iter(waits.then_some(request)),
                    taken: false,
                    place: None,
                };
                self.runs.insert(lane, run);
                if !waits {
                    return Submitted::Answer(Outcome::Pending);
                }
            }
        }
        Submitted::Later
    }

    /// Wakes the worker that began to wait last, if work is ready. A node with little to do uses
    /// few workers then, so that the stacks of the others take no memory.
    pub(super) fn wake_worker(&mut self) {
        if self.ready.iter().any(|queue| !queue.is_empty())
            && let Some(idle) = self.idle.pop()
        {
            idle.unpark();
        }
    }

    fn is_full(&self, class: WorkerClass, connection: u64) -> bool {
        let (mut all, mut of_one) = (0, 0);
        for run in self.runs.values() {
            if run.operation.properties().workers == class {
                all += 1;
                of_one += usize::from(run.by == connection);
            }
        }
        all >= MOST || of_one >= MOST_OF_ONE
    }

    /// Returns the next piece of work that may have a worker, and the kind of place that comes with
    /// it.
    pub(super) fn next(&mut self) -> Option<(Work, Option<PlaceKind>)> {
        let has_room = |class: &WorkerClass| self.taken[class.index()] < workers_of(*class);
        let (class, index) = WorkerClass::ALL.into_iter().filter(has_room).find_map(|class| {
            let index = self.next_in_turn(&self.ready[class.index()])?;
            Some((class, index))
        })?;
        let lane = self.ready[class.index()].remove(index)?;
        let run = self.runs.get_mut(&lane)?;
        run.taken = true;
        let place = run.place.take();
        let work = Work { operation: Arc::clone(&run.operation), since: run.since, lane };
        self.taken[class.index()] += 1;
        Some((work, place))
    }

    /// Returns the first operation of the connection that has the fewest workers, so that a
    /// connection with many requests delays only itself.
    fn next_in_turn(&self, queue: &VecDeque<Lane>) -> Option<usize> {
        let mut busy: HashMap<u64, usize> = HashMap::new();
        if queue.len() > 1 {
            for run in self.runs.values().filter(|run| run.taken) {
                *busy.entry(run.by).or_default() += 1;
            }
        }
        let load = |lane: &Lane| match self.runs.get(lane) {
            // The operation occupies a place while it waits.
            Some(run) if run.place.is_some() => 0,
            Some(run) => busy.get(&run.by).map_or(0, |count| *count),
            None => 0,
        };
        (0..queue.len()).min_by_key(|index| load(&queue[*index]))
    }

    /// Passes a reserved place to the next operation that waits for one; returns false when there
    /// is none.
    pub(super) fn pass_place_on(&mut self, kind: PlaceKind) -> bool {
        let Some(index) = self.next_in_turn(&self.parked[kind.index()]) else {
            return false;
        };
        let lane = self.parked[kind.index()].remove(index);
        let run = lane.and_then(|lane| Some((self.runs.get_mut(&lane)?, lane)));
        let Some((run, lane)) = run else {
            return false;
        };
        run.place = Some(kind);
        self.ready[WorkerClass::Disk.index()].push_front(lane);
        true
    }

    /// Drops an operation for which nothing was done yet, and answers Busy.
    pub(super) fn refuse_as_busy(&mut self, lane: &Lane) {
        if let Some(run) = self.runs.remove(lane) {
            let busy = |request| (request, Refusal::Busy.into());
            self.answers.extend(run.waiting.into_iter().map(busy));
        }
        self.admit_queued(lane);
    }

    /// Admits the requests that wait for a lane that has become free, in their order.
    pub(super) fn admit_queued(&mut self, lane: &Lane) {
        if !self.queued.iter().any(|queued| queued.lane == *lane) {
            return;
        }
        for queued in std::mem::take(&mut self.queued) {
            if queued.lane != *lane {
                self.queued.push(queued);
                continue;
            }
            let QueuedRequest { lane, operation, request } = queued;
            match self.admit(lane, operation, true, request) {
                Submitted::Later => {}
                Submitted::Answer(outcome) => self.answers.push((request, outcome)),
                Submitted::Closed => self.answers.push((request, Refusal::Busy.into())),
            }
        }
    }
}
