//! The calls that change nothing: usage, and the alpha health calls, which report what the usage
//! calls run into.

use std::time::{Duration, Instant};

use ebs_csi_proto::csi::volume_health::VolumeHealthEntry;
use ebs_csi_proto::csi::{
    self, VolumeHealthErrorType, node_get_storage_health_response::StorageBackendHealth,
};
use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire as wire;
use ebs_csi_wire::{KubeletPath, VolumeId};

use super::calls::{Calls, not_at};
use super::usage;
use crate::attach_limit::TakenSlots;
use crate::deadline::Deadline;
use crate::helper::HelperError;
use crate::helper::call_failure::{NodeCall, failure};
use crate::request;

/// A file system whose usage is not known within this time counts as hung.
const USAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// NodeGetInfo waits at most this long for the list of held volumes.
const HELD_TIMEOUT: Duration = Duration::from_secs(2);

enum UsageResult {
    Answered(wire::Usage),
    /// No answer in time; the last known usage.
    Hung(Option<wire::Usage>),
}

impl Calls {
    pub(super) async fn stats(
        &self,
        request: &csi::NodeGetVolumeStatsRequest,
        deadline: Deadline,
    ) -> Result<csi::NodeGetVolumeStatsResponse, Failure> {
        let place = request::look_up(&request.volume_id, &request.volume_path)?;
        let volume = self
            .volume_at(NodeCall::Stats, &place, deadline)
            .await?
            .ok_or_else(|| not_at(&request.volume_id, &place.path))?;
        let result = self.query_usage(&volume, &place.path, deadline).await;
        match result.map_err(|e| failure(NodeCall::Stats, &volume, &place.path, &e, deadline))? {
            UsageResult::Answered(usage) | UsageResult::Hung(Some(usage)) => {
                Ok(csi::NodeGetVolumeStatsResponse { usage: usage::entries(&usage) })
            }
            UsageResult::Hung(None) => Err(Failure::new(
                Condition::DeadlinePassed,
                format!(
                    "looking at {volume} at {}: the file system does not answer and nothing is known of it yet; check the volume and its attachment",
                    place.path
                ),
            )),
        }
    }

    /// Answers NodeGetVolumeHealth (alpha): whether the volume's file system responds at the given
    /// places.
    pub(super) async fn volume_health(
        &self,
        request: &csi::NodeGetVolumeHealthRequest,
        deadline: Deadline,
    ) -> Result<csi::NodeGetVolumeHealthResponse, Failure> {
        let places = request::health(request)?;
        let mut health_statuses = Vec::new();
        for place in &places {
            let Some(volume) = self.volume_at(NodeCall::Stats, place, deadline).await? else {
                continue;
            };
            match self.query_usage(&volume, &place.path, deadline).await {
                Ok(UsageResult::Answered(usage)) => {
                    health_statuses.extend(stopped_entry(&place.path, &usage));
                    break;
                }
                Ok(UsageResult::Hung(_)) => {
                    let message = format!("the file system at {} does not answer", place.path);
                    let hung = VolumeHealthErrorType::Inaccessible;
                    health_statuses.push(entry(hung, "FilesystemHangs", message));
                    break;
                }
                // The volume is not there, or not there yet: that is no sign of a fault.
                Err(HelperError::Refused(_)) => {}
                Err(HelperError::Failed(failed)) => {
                    health_statuses.push(failed_entry(&place.path, failed));
                    break;
                }
                Err(e) => {
                    return Err(failure(NodeCall::Stats, &volume, &place.path, &e, deadline));
                }
            }
        }
        Ok(csi::NodeGetVolumeHealthResponse {
            volume_health: Some(csi::VolumeHealth {
                volume_id: request.volume_id.clone(),
                health_statuses,
            }),
        })
    }

    /// Answers NodeGetStorageHealth (alpha): whether volumes can be served on this node.
    pub(super) async fn storage_health(
        &self,
        deadline: Deadline,
    ) -> csi::NodeGetStorageHealthResponse {
        use csi::StorageHealthErrorType::{StorageDegraded, StorageUnreachable};
        let entry =
            |status: csi::StorageHealthErrorType, reason: &str, message| StorageBackendHealth {
                status: status as i32,
                reason: reason.to_owned(),
                message,
                volume_capability: None,
            };
        let mut backend_health = Vec::new();
        let held = match self.helper.held(deadline).await {
            Ok(held) => Some(held),
            Err(error) => {
                backend_health.push(entry(
                    StorageDegraded,
                    "MountHelperDown",
                    format!("volumes that are mounted stay so, but none can be added or removed: {error}"),
                ));
                None
            }
        };
        let hung = self.known.hung();
        if !hung.is_empty() {
            let names: Vec<_> = hung.iter().map(VolumeId::as_str).collect();
            // When several volumes are held and none responds, the cause is not the volumes.
            let all = held.is_some_and(|held| {
                hung.len() > 1 && held.iter().all(|entry| hung.contains(&entry.volume))
            });
            backend_health.push(entry(
                if all { StorageUnreachable } else { StorageDegraded },
                "FilesystemsHang",
                format!("these volumes do not answer: {}", names.join(", ")),
            ));
        }
        csi::NodeGetStorageHealthResponse { backend_health }
    }

    /// Returns the attachment slots that are taken now. Asks the helper which disks are the
    /// driver's, if sysfs shows any disk.
    pub(super) async fn taken_slots(&self) -> TakenSlots {
        let held = if self.attachments.shows_disks() {
            let held = self.helper.held(Deadline::after(HELD_TIMEOUT)).await.ok();
            held.map(|held| held.into_iter().map(|entry| entry.volume).collect::<Vec<_>>())
        } else {
            None
        };
        self.attachments.taken(held.as_deref(), Instant::now())
    }

    /// Queries the usage of a place with a short limit, and records the result.
    async fn query_usage(
        &self,
        volume: &VolumeId,
        path: &KubeletPath,
        deadline: Deadline,
    ) -> Result<UsageResult, HelperError> {
        let request = wire::Stats { volume: volume.clone(), path: path.clone() };
        match self.helper.send(request, deadline.at_most(USAGE_TIMEOUT)).await {
            Ok(usage) => {
                if self.known.record_answer(volume, path, usage) {
                    tracing::info!(volume.id = %volume, %path, "the file system answers again");
                    self.metrics.filesystem_answers(volume.as_str());
                }
                let damaged = usage.turned_read_only || usage.shut_down || usage.errors > 0;
                if self.metrics.filesystem_damaged(volume.as_str(), damaged) && damaged {
                    tracing::warn!(
                        volume.id = %volume,
                        %path,
                        turned_read_only = usage.turned_read_only,
                        shut_down = usage.shut_down,
                        errors = usage.errors,
                        "the kernel has met errors in the file system"
                    );
                }
                Ok(UsageResult::Answered(usage))
            }
            // The helper works and waits for the kernel.
            Err(HelperError::Pending) => {
                let (first, known) = self.known.record_hang(volume, path);
                if first {
                    tracing::warn!(volume.id = %volume, %path, "the file system does not answer; what was last known of it is given");
                }
                self.metrics.filesystem_hangs(volume.as_str());
                Ok(UsageResult::Hung(known))
            }
            Err(error) => Err(error),
        }
    }
}

/// Returns an entry when the file system answers, but the kernel has recorded errors in it.
fn stopped_entry(path: &KubeletPath, usage: &wire::Usage) -> Option<VolumeHealthEntry> {
    use VolumeHealthErrorType::{Degraded, Inaccessible};
    let remedy = "its application has to end; the next stage checks the file system, and repairs what needs no person";
    let (status, reason, message) = match usage {
        wire::Usage { shut_down: true, .. } => (
            Inaccessible,
            "FilesystemShutDown",
            format!("the kernel has shut the file system at {path} down after an error; {remedy}"),
        ),
        wire::Usage { turned_read_only: true, .. } => (
            Degraded,
            "FilesystemReadOnly",
            format!(
                "the kernel takes no more writes to the file system at {path} after an error; {remedy}"
            ),
        ),
        wire::Usage { errors: 1.., .. } => (
            Degraded,
            "FilesystemErrors",
            format!(
                "the kernel has met {} errors in the file system at {path} since it was last checked; {remedy}",
                usage.errors
            ),
        ),
        _ => return None,
    };
    Some(entry(status, reason, message))
}

fn failed_entry(path: &KubeletPath, failed: wire::Failed) -> VolumeHealthEntry {
    let why = failed.errno.map_or_else(String::new, |errno| {
        format!(": {}", std::io::Error::from_raw_os_error(errno.get()))
    });
    let message = format!("the file system at {path} cannot be asked how full it is{why}");
    entry(VolumeHealthErrorType::Inaccessible, "FilesystemFails", message)
}

fn entry(status: VolumeHealthErrorType, reason: &str, message: String) -> VolumeHealthEntry {
    VolumeHealthEntry { status: status as i32, reason: reason.to_owned(), message }
}
