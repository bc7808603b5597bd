//! Attaches and detaches volumes, as one operation per pair of volume and instance. A later call
//! for the pair supersedes an earlier one of the other kind.

mod attach_now;
mod attaching;
mod detach_decision;
mod detach_now;
mod detaching;
mod device_name;
mod instance_types;
mod left_behind;
mod own_volume;
mod publish_options;
mod recent_changes;

use std::time::Duration;

use ebs_csi_ec2::{Ec2, ExpiringCache, Timestamp, Volume};
use ebs_csi_proto::{Condition, Failure};
use tokio::time::Instant;

use crate::operation::operation_count::OperationCount;
use crate::operation::{Conflict, Operations};
use crate::request::{Pair, Publish};
use crate::safe_detach::{ClusterEvidence, Mode};
use device_name::DeviceNames;

pub(crate) use instance_types::InstanceTypes;
use publish_options::KnownPublishOptions;
use recent_changes::RecentChanges;

/// The longest time of one operation: external-attacher waits as long. A repeated call continues
/// where this operation ended.
const OPERATION_TIME: Duration = Duration::from_secs(360);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attached {
    /// The device name in EC2's answer.
    pub device: String,
    /// When EC2 accepted the attach.
    pub since: Option<Timestamp>,
    /// The volume in the look that showed it attached.
    pub volume: Volume,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Intent {
    Attach(Publish),
    Detach,
}

#[derive(Clone, Debug)]
pub(crate) struct Attachments {
    ec2: Ec2,
    names: DeviceNames,
    instance_types: InstanceTypes,
    publish_options: KnownPublishOptions,
    recent: RecentChanges,
    /// By pair, since when EC2 has shown neither the pair's volume nor the pair's instance.
    unseen: ExpiringCache<Instant>,
    operation_count: OperationCount,
    safe_detach: Mode,
    cluster_evidence: ClusterEvidence,
    running: Operations<Pair, Intent, Option<Attached>>,
}

impl Attachments {
    pub(crate) fn new(
        ec2: Ec2,
        instance_types: InstanceTypes,
        safe_detach: Mode,
        cluster_evidence: ClusterEvidence,
        operation_count: OperationCount,
    ) -> Self {
        Self {
            ec2,
            names: DeviceNames::default(),
            instance_types,
            publish_options: KnownPublishOptions::default(),
            recent: RecentChanges::default(),
            unseen: ExpiringCache::default(),
            running: Operations::new(Conflict::Supersede, operation_count.clone()),
            operation_count,
            safe_detach,
            cluster_evidence,
        }
    }

    /// Attaches the volume, and waits until EC2 shows it attached.
    ///
    /// # Errors
    /// [`Condition::PublishedElsewhere`], naming the holder; [`Condition::Incompatible`] when the
    /// volume is published at this instance with another access; [`Condition::AttachLimit`];
    /// [`Condition::NotFound`]; and EC2's errors.
    pub(crate) async fn attach(
        &self,
        request: Publish,
        timeout: Option<Duration>,
    ) -> Result<Attached, Failure> {
        let this = self.clone();
        let key = request.pair.clone();
        let attached = self
            .running
            .run(key, Intent::Attach(request.clone()), timeout, move |cancellation| async move {
                this.attach_now(&request, &cancellation).await.map(Some)
            })
            .await?;
        attached.ok_or_else(|| Failure::new(Condition::Bug, "an attach ended as a detach"))
    }

    /// Detaches the volume, and waits until EC2 shows no attachment to the instance.
    ///
    /// # Errors
    /// [`Condition::InUse`] when the volume may not leave; [`Condition::DeadlinePassed`] while the
    /// guest still holds the device; and EC2's errors.
    pub(crate) async fn detach(
        &self,
        pair: Pair,
        timeout: Option<Duration>,
    ) -> Result<(), Failure> {
        let this = self.clone();
        self.running
            .run(pair.clone(), Intent::Detach, timeout, move |cancellation| async move {
                this.detach_now(&pair, &cancellation).await.map(|()| None)
            })
            .await
            .map(drop)
    }
}

#[cfg(test)]
pub(crate) mod tests;
