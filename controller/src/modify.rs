//! Grows and modifies volumes. An expansion and a modification that arrive together share one
//! ModifyVolume; each volume has one change at a time.
//!
//! EC2 limits the number of modifications, whatever their size. A request therefore waits a moment
//! for its counterpart, and is sent at once when both have arrived. A request that arrives during a
//! change is gathered for the next one, or joins the running change when that covers the request.

mod apply;
mod change;
mod explain;
mod tagging;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebs_csi_ec2::{Ec2, Volume};
use ebs_csi_parameters::VolumeAttributes;
use ebs_csi_proto::{Condition, Failure, GiB, lock};
use ebs_csi_wire::VolumeId;
use tokio::sync::Notify;
use tracing::Instrument;

use crate::operation::operation_count::OperationCount;
use crate::operation::ordered_watch::{WatchedResult, watched_result};
use crate::operation::{Caller, Callers};
use crate::volume::iops::IopsCeilings;

use change::Change;

#[derive(Clone, Debug)]
pub(crate) struct Modifications {
    ec2: Ec2,
    ceilings: IopsCeilings,
    window: Duration,
    operation_count: OperationCount,
    slots: Arc<Mutex<HashMap<VolumeId, Slot>>>,
}

/// The kind of a request: an expansion and a modification of one volume belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Expand,
    Modify,
}

/// The changes of one volume.
#[derive(Debug, Default)]
struct Slot {
    /// Held during a change, so that changes run one at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
    gathering: Option<Batch>,
    running: Option<Batch>,
}

#[derive(Clone, Debug)]
struct Batch {
    change: Change,
    expands: bool,
    modifies: bool,
    /// Notified when both parts have arrived.
    complete: Arc<Notify>,
    callers: Callers,
    outcome: WatchedResult<Results>,
}

#[derive(Clone, Debug)]
struct Results {
    expand: Result<Volume, Failure>,
    modify: Result<Volume, Failure>,
}

impl Results {
    fn both(result: Result<Volume, Failure>) -> Self {
        Self { expand: result.clone(), modify: result }
    }
}

impl Modifications {
    /// Creates the service with no change under way. `window` is how long a request waits for its
    /// counterpart.
    pub(crate) fn new(
        ec2: Ec2,
        ceilings: IopsCeilings,
        window: Duration,
        operation_count: OperationCount,
    ) -> Self {
        Self { ec2, ceilings, window, operation_count, slots: Arc::default() }
    }

    /// Grows the volume to at least this size, and waits until the new size is effective. Leaves a
    /// volume unchanged that is already as large.
    ///
    /// # Errors
    /// EC2's errors; [`Condition::OperationPending`] when a change to another size is under way.
    pub(crate) async fn expand(
        &self,
        volume: &VolumeId,
        size: GiB,
        timeout: Option<Duration>,
    ) -> Result<Volume, Failure> {
        self.request(volume, Part::Expand, Change::to_size(size), timeout).await
    }

    /// Changes type, performance and tags, and waits until the performance change is under way.
    ///
    /// # Errors
    /// [`Condition::InvalidField`] for what EC2 cannot do; and EC2's errors. The volume and its
    /// tags are unchanged unless the text says that the volume is modified.
    pub(crate) async fn modify(
        &self,
        volume: &VolumeId,
        attributes: VolumeAttributes,
        timeout: Option<Duration>,
    ) -> Result<Volume, Failure> {
        let change = Change::to_attributes(attributes)?;
        self.request(volume, Part::Modify, change, timeout).await
    }

    async fn request(
        &self,
        volume: &VolumeId,
        part: Part,
        change: Change,
        timeout: Option<Duration>,
    ) -> Result<Volume, Failure> {
        let (outcome, _caller) = self.join(volume, part, change)?;
        let results = match timeout {
            Some(timeout) => tokio::time::timeout(timeout, outcome.wait()).await.map_err(|_| {
                Failure::new(
                    Condition::DeadlinePassed,
                    format!("volume {volume}: the time for this call has passed; the change goes on and a repeated call joins it"),
                )
            })?,
            None => outcome.wait().await,
        };
        match (results, part) {
            (Some(results), Part::Expand) => results.expand,
            (Some(results), Part::Modify) => results.modify,
            // The change panicked, and what it had begun by then is unknown.
            (None, _) => Err(Failure::pending(format!(
                "volume {volume}: the change ended by a fault of the driver; the log has it, and the call can be repeated"
            ))),
        }
    }

    /// Joins the running change when that covers the request, otherwise the change that is being
    /// gathered, or begins a new one.
    fn join(
        &self,
        volume: &VolumeId,
        part: Part,
        change: Change,
    ) -> Result<(WatchedResult<Results>, Caller), Failure> {
        let mut slots = lock(&self.slots);
        let slot = slots.entry(volume.clone()).or_default();
        if let Some(running) = &slot.running
            && running.has(part)
            && running.change.covers(&change)
        {
            return Ok((running.outcome.clone(), running.callers.join()));
        }
        if let Some(gathering) = &mut slot.gathering {
            gathering.change.merge(&change).map_err(|field| {
                Failure::pending(format!("volume {volume}: another request asks for another {field} at the same time; ask again when it is done"))
            })?;
            gathering.add(part);
            if gathering.expands && gathering.modifies {
                gathering.complete.notify_one();
            }
            return Ok((gathering.outcome.clone(), gathering.callers.join()));
        }
        let (setter, outcome) = watched_result();
        let complete = Arc::new(Notify::new());
        let mut batch = Batch {
            change,
            expands: false,
            modifies: false,
            complete: Arc::clone(&complete),
            callers: Callers::default(),
            outcome: outcome.clone(),
        };
        let caller = batch.callers.join();
        batch.add(part);
        slot.gathering = Some(batch);
        let turn = Arc::clone(&slot.turn);
        drop(slots);
        let this = self.clone();
        let volume = volume.clone();
        let counted = self.operation_count.count();
        let task = async move {
            let _counted = counted;
            let _ = tokio::time::timeout(this.window, complete.notified()).await;
            let _turn = turn.lock().await;
            let running = EndChangeOnDrop { modifications: this.clone(), volume: volume.clone() };
            let Some(batch) = this.start(&volume) else {
                return;
            };
            let results = this.carry_out(&volume, &batch).await;
            drop(running);
            setter.set(results);
        };
        tokio::spawn(task.instrument(tracing::Span::current()));
        Ok((outcome, caller))
    }

    /// Turns the gathered change into the running one.
    fn start(&self, volume: &VolumeId) -> Option<Batch> {
        let mut slots = lock(&self.slots);
        let slot = slots.get_mut(volume)?;
        slot.running = slot.gathering.take();
        slot.running.clone()
    }

    async fn carry_out(&self, volume: &VolumeId, batch: &Batch) -> Results {
        let whole = self.apply(volume, &batch.change, &batch.callers).await;
        let is_caused_by_request = |failure: &Failure| {
            matches!(
                failure.condition(),
                Condition::InvalidField
                    | Condition::CapacityOutOfRange
                    | Condition::QuotaExhausted
                    | Condition::NotPermitted
            )
        };
        match whole {
            // EC2 may refuse only one of the two parts, which must not keep the other from its own
            // result.
            Err(failure) if batch.expands && batch.modifies && is_caused_by_request(&failure) => {
                let expand = self.apply(volume, &batch.change.size_alone(), &batch.callers).await;
                let modify = match &expand {
                    Ok(_) => Err(failure),
                    Err(_) => {
                        self.apply(volume, &batch.change.without_size(), &batch.callers).await
                    }
                };
                Results { expand, modify }
            }
            result => Results::both(result),
        }
    }
}

impl Batch {
    fn has(&self, part: Part) -> bool {
        match part {
            Part::Expand => self.expands,
            Part::Modify => self.modifies,
        }
    }

    fn add(&mut self, part: Part) {
        match part {
            Part::Expand => self.expands = true,
            Part::Modify => self.modifies = true,
        }
    }
}

/// Ends the change in its slot on drop, also after a panic.
struct EndChangeOnDrop {
    modifications: Modifications,
    volume: VolumeId,
}

impl Drop for EndChangeOnDrop {
    fn drop(&mut self) {
        let mut slots = lock(&self.modifications.slots);
        if let Some(slot) = slots.get_mut(&self.volume) {
            slot.running = None;
            if slot.gathering.is_none() {
                slots.remove(&self.volume);
            }
        }
    }
}
