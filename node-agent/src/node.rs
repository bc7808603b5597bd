//! The Node service: parse, take a turn, ask the helper, answer. No system call on a volume is made here.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use ebs_csi_proto::csi::{self, node_service_capability as offered, volume_usage::Unit};
use ebs_csi_proto::observe::note;
use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire as wire;
use ebs_csi_wire::{KubeletPath, Operation, VolumeId};
use tonic::{Code, Request, Response, Status};

use crate::attach_limit::{self, Wishes};
use crate::deadline::Deadline;
use crate::facts::NodeFacts;
use crate::helper::words::{Asked, failure};
use crate::helper::{Helper, HelperError};
use crate::metrics::Metrics;
use crate::queue::{Queue, Turn};
use crate::request::{self, Handle, Place, Staging};
use crate::topology;

/// The Node service.
#[derive(Clone, Debug)]
pub struct Node(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    facts: NodeFacts,
    wishes: Wishes,
    legacy_xfs: bool,
    helper: Arc<Helper>,
    queue: Queue,
    metrics: Arc<Metrics>,
}

impl Node {
    /// A service for the node that the facts describe.
    #[must_use]
    pub fn new(
        facts: NodeFacts,
        wishes: Wishes,
        legacy_xfs: bool,
        helper: Arc<Helper>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self(Arc::new(Inner {
            facts,
            wishes,
            legacy_xfs,
            helper,
            queue: Queue::default(),
            metrics,
        }))
    }

    /// Counts and times an answer, and turns a failure into its status.
    async fn answer<T>(
        &self,
        method: &'static str,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<Response<T>, Status> {
        let started = Instant::now();
        let result = work.await;
        let code = match &result {
            Ok(_) => Code::Ok,
            Err(failure) => failure.condition().code(),
        };
        self.0
            .metrics
            .rpc_answered(method, code_name(code), started.elapsed());
        Ok(Response::new(result?))
    }
}

impl Inner {
    async fn stage(
        &self,
        request: &csi::NodeStageVolumeRequest,
        deadline: Deadline,
    ) -> Result<csi::NodeStageVolumeResponse, Failure> {
        let done = csi::NodeStageVolumeResponse {};
        let ask = match request::stage(request, self.legacy_xfs)? {
            // The device itself is what is published; there is nothing to prepare.
            Staging::Nothing(_) => return Ok(done),
            Staging::Filesystem(ask) => *ask,
        };
        let (volume, path) = (ask.disk.volume.clone(), ask.staging.clone());
        let _turn = self.alone(Asked::Stage, &volume, deadline).await?;
        let staged = self
            .helper
            .stage(ask, deadline)
            .await
            .map_err(|e| told(Asked::Stage, &volume, &path, &e, deadline))?;
        tracing::info!(
            volume.id = %volume,
            already = staged.already,
            formatted = staged.formatted,
            checked = staged.checked,
            repaired = staged.repaired,
            grown = staged.grown,
            device_bytes = staged.device_bytes,
            "staged"
        );
        if staged.repaired {
            tracing::warn!(volume.id = %volume, "the file system had errors, which were repaired");
        }
        Ok(done)
    }

    async fn unstage(
        &self,
        request: &csi::NodeUnstageVolumeRequest,
        deadline: Deadline,
    ) -> Result<csi::NodeUnstageVolumeResponse, Failure> {
        let place = request::unstage(request)?;
        let done = csi::NodeUnstageVolumeResponse {};
        let Some(volume) = self.volume_at(Asked::Unstage, &place, deadline).await? else {
            // Nothing that this driver could have staged.
            return Ok(done);
        };
        let _turn = self.alone(Asked::Unstage, &volume, deadline).await?;
        let operation = Operation::Unstage(wire::Unstage {
            volume: volume.clone(),
            staging: place.path.clone(),
        });
        self.perform(Asked::Unstage, operation, &volume, &place.path, deadline)
            .await?;
        Ok(done)
    }

    async fn publish(
        &self,
        request: &csi::NodePublishVolumeRequest,
        deadline: Deadline,
    ) -> Result<csi::NodePublishVolumeResponse, Failure> {
        let asked = request::publish(request)?;
        let (volume, target) = (&asked.volume, &asked.target);
        let _turn = if asked.single {
            let turn = self.alone(Asked::Publish, volume, deadline).await?;
            self.refuse_second_target(volume, target, deadline).await?;
            turn
        } else {
            self.shared(Asked::Publish, volume, deadline).await?
        };
        self.perform(Asked::Publish, asked.operation, volume, target, deadline)
            .await?;
        Ok(csi::NodePublishVolumeResponse {})
    }

    async fn unpublish(
        &self,
        request: &csi::NodeUnpublishVolumeRequest,
        deadline: Deadline,
    ) -> Result<csi::NodeUnpublishVolumeResponse, Failure> {
        let place = request::unpublish(request)?;
        let done = csi::NodeUnpublishVolumeResponse {};
        let Some(volume) = self.volume_at(Asked::Unpublish, &place, deadline).await? else {
            return Ok(done);
        };
        let _turn = self.shared(Asked::Unpublish, &volume, deadline).await?;
        let operation = Operation::Unpublish(wire::Unpublish {
            volume: volume.clone(),
            target: place.path.clone(),
        });
        self.perform(Asked::Unpublish, operation, &volume, &place.path, deadline)
            .await?;
        Ok(done)
    }

    async fn expand(
        &self,
        request: &csi::NodeExpandVolumeRequest,
        deadline: Deadline,
    ) -> Result<csi::NodeExpandVolumeResponse, Failure> {
        let asked = request::expand(request)?;
        let path = &asked.place.path;
        let volume = self
            .volume_at(Asked::Expand, &asked.place, deadline)
            .await?
            .ok_or_else(|| not_at(&request.volume_id, path))?;
        let _turn = self.alone(Asked::Expand, &volume, deadline).await?;
        let ask = wire::Expand {
            volume: volume.clone(),
            path: path.clone(),
            required_bytes: asked.required_bytes,
            limit_bytes: asked.limit_bytes,
        };
        let expanded = self
            .helper
            .expand(ask, deadline)
            .await
            .map_err(|e| told(Asked::Expand, &volume, path, &e, deadline))?;
        Ok(csi::NodeExpandVolumeResponse {
            capacity_bytes: signed(expanded.device_bytes),
        })
    }

    async fn stats(
        &self,
        request: &csi::NodeGetVolumeStatsRequest,
        deadline: Deadline,
    ) -> Result<csi::NodeGetVolumeStatsResponse, Failure> {
        let place = request::stats(request)?;
        let volume = self
            .volume_at(Asked::Stats, &place, deadline)
            .await?
            .ok_or_else(|| not_at(&request.volume_id, &place.path))?;
        let ask = wire::Stats {
            volume: volume.clone(),
            path: place.path.clone(),
        };
        let usage = self
            .helper
            .stats(ask, deadline)
            .await
            .map_err(|e| told(Asked::Stats, &volume, &place.path, &e, deadline))?;
        Ok(csi::NodeGetVolumeStatsResponse {
            usage: entries(&usage),
        })
    }

    async fn perform(
        &self,
        asked: Asked,
        operation: Operation,
        volume: &VolumeId,
        path: &KubeletPath,
        deadline: Deadline,
    ) -> Result<wire::Done, Failure> {
        self.helper
            .perform(operation, deadline)
            .await
            .map_err(|e| told(asked, volume, path, &e, deadline))
    }

    /// The EBS volume of a request that names it by id and path; `None` when there is none.
    async fn volume_at(
        &self,
        asked: Asked,
        place: &Place,
        deadline: Deadline,
    ) -> Result<Option<VolumeId>, Failure> {
        match &place.handle {
            Handle::Volume(volume) => Ok(Some(volume.clone())),
            Handle::Unknown => Ok(None),
            Handle::NodeLocal => {
                self.helper
                    .held_at(&place.path, deadline)
                    .await
                    .map_err(|error| {
                        let chosen = deadline.chosen_by_caller();
                        failure(
                            asked,
                            "a node-local volume",
                            place.path.as_str(),
                            &error,
                            chosen,
                        )
                    })
            }
        }
    }

    /// SINGLE_NODE_SINGLE_WRITER: at one target at a time.
    async fn refuse_second_target(
        &self,
        volume: &VolumeId,
        target: &KubeletPath,
        deadline: Deadline,
    ) -> Result<(), Failure> {
        let held = self
            .helper
            .held(deadline)
            .await
            .map_err(|e| told(Asked::Publish, volume, target, &e, deadline))?;
        let other = held
            .iter()
            .find(|entry| !entry.staged && entry.volume == *volume && entry.path != *target);
        match other {
            None => Ok(()),
            Some(entry) => Err(Failure::new(
                Condition::InUse,
                format!(
                    "publishing {volume} at {target}: it is published at {} and its access mode allows one place only; unpublish it there first",
                    entry.path
                ),
            )),
        }
    }

    async fn alone(
        &self,
        asked: Asked,
        volume: &VolumeId,
        deadline: Deadline,
    ) -> Result<Turn, Failure> {
        let turn = self.queue.alone(volume, deadline).await;
        turn.ok_or_else(|| waited_in_vain(asked, volume))
    }

    async fn shared(
        &self,
        asked: Asked,
        volume: &VolumeId,
        deadline: Deadline,
    ) -> Result<Turn, Failure> {
        let turn = self.queue.shared(volume, deadline).await;
        turn.ok_or_else(|| waited_in_vain(asked, volume))
    }
}

fn told(
    asked: Asked,
    volume: &VolumeId,
    path: &KubeletPath,
    error: &HelperError,
    deadline: Deadline,
) -> Failure {
    let chosen = deadline.chosen_by_caller();
    failure(asked, volume.as_str(), path.as_str(), error, chosen)
}

fn waited_in_vain(asked: Asked, volume: &VolumeId) -> Failure {
    Failure::new(
        Condition::OperationPending,
        format!(
            "{} {volume}: another request about the volume is still running; retry",
            asked.verb()
        ),
    )
}

fn not_at(id: &str, path: &KubeletPath) -> Failure {
    let id: String = id.chars().take(64).collect();
    Failure::new(
        Condition::NotFound,
        format!("volume {id:?} is not at {path}; name a path where it is staged or published"),
    )
}

fn entries(usage: &wire::Usage) -> Vec<csi::VolumeUsage> {
    let mut entries = vec![csi::VolumeUsage {
        available: signed(usage.available_bytes),
        total: signed(usage.total_bytes),
        used: signed(usage.used_bytes),
        unit: Unit::Bytes as i32,
    }];
    // btrfs and raw devices count no inodes.
    if usage.total_inodes > 0 && !usage.block {
        entries.push(csi::VolumeUsage {
            available: signed(usage.available_inodes),
            total: signed(usage.total_inodes),
            used: signed(usage.used_inodes),
            unit: Unit::Inodes as i32,
        });
    }
    entries
}

/// CSI counts in signed numbers; a size beyond them stays the largest.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

const fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[tonic::async_trait]
impl csi::node_server::Node for Node {
    async fn node_stage_volume(
        &self,
        request: Request<csi::NodeStageVolumeRequest>,
    ) -> Result<Response<csi::NodeStageVolumeResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let request = request.into_inner();
        note("volume.id", &request.volume_id);
        tracing::debug!(?request, "asked");
        self.answer("NodeStageVolume", self.0.stage(&request, deadline))
            .await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<csi::NodeUnstageVolumeRequest>,
    ) -> Result<Response<csi::NodeUnstageVolumeResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let request = request.into_inner();
        note("volume.id", &request.volume_id);
        tracing::debug!(?request, "asked");
        self.answer("NodeUnstageVolume", self.0.unstage(&request, deadline))
            .await
    }

    async fn node_publish_volume(
        &self,
        request: Request<csi::NodePublishVolumeRequest>,
    ) -> Result<Response<csi::NodePublishVolumeResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let request = request.into_inner();
        note("volume.id", &request.volume_id);
        tracing::debug!(?request, "asked");
        self.answer("NodePublishVolume", self.0.publish(&request, deadline))
            .await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<csi::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<csi::NodeUnpublishVolumeResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let request = request.into_inner();
        note("volume.id", &request.volume_id);
        tracing::debug!(?request, "asked");
        self.answer("NodeUnpublishVolume", self.0.unpublish(&request, deadline))
            .await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<csi::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<csi::NodeGetVolumeStatsResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let request = request.into_inner();
        note("volume.id", &request.volume_id);
        self.answer("NodeGetVolumeStats", self.0.stats(&request, deadline))
            .await
    }

    async fn node_expand_volume(
        &self,
        request: Request<csi::NodeExpandVolumeRequest>,
    ) -> Result<Response<csi::NodeExpandVolumeResponse>, Status> {
        let deadline = Deadline::of(request.metadata());
        let request = request.into_inner();
        note("volume.id", &request.volume_id);
        tracing::debug!(?request, "asked");
        self.answer("NodeExpandVolume", self.0.expand(&request, deadline))
            .await
    }

    async fn node_get_capabilities(
        &self,
        _: Request<csi::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<csi::NodeGetCapabilitiesResponse>, Status> {
        use offered::rpc::Type;
        let capabilities = [
            Type::StageUnstageVolume,
            Type::ExpandVolume,
            Type::GetVolumeStats,
            Type::SingleNodeMultiWriter,
        ]
        .map(|kind| csi::NodeServiceCapability {
            r#type: Some(offered::Type::Rpc(offered::Rpc {
                r#type: kind as i32,
            })),
        });
        Ok(Response::new(csi::NodeGetCapabilitiesResponse {
            capabilities: capabilities.to_vec(),
        }))
    }

    async fn node_get_info(
        &self,
        _: Request<csi::NodeGetInfoRequest>,
    ) -> Result<Response<csi::NodeGetInfoResponse>, Status> {
        let Inner { facts, wishes, .. } = &*self.0;
        self.answer("NodeGetInfo", async {
            Ok(csi::NodeGetInfoResponse {
                node_id: facts.instance.to_string(),
                max_volumes_per_node: attach_limit::max_volumes(facts, *wishes).into(),
                accessible_topology: Some(csi::Topology {
                    segments: topology::segments(facts),
                }),
            })
        })
        .await
    }

    async fn node_get_volume_health(
        &self,
        _: Request<csi::NodeGetVolumeHealthRequest>,
    ) -> Result<Response<csi::NodeGetVolumeHealthResponse>, Status> {
        Err(Failure::unimplemented("NodeGetVolumeHealth").into())
    }

    async fn node_get_storage_health(
        &self,
        _: Request<csi::NodeGetStorageHealthRequest>,
    ) -> Result<Response<csi::NodeGetStorageHealthResponse>, Status> {
        Err(Failure::unimplemented("NodeGetStorageHealth").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raw_device_has_one_entry_and_a_file_system_two() {
        let usage = wire::Usage {
            total_bytes: u64::MAX,
            used_bytes: 1,
            available_bytes: 2,
            total_inodes: 3,
            used_inodes: 1,
            available_inodes: 2,
            block: false,
        };
        let both = entries(&usage);
        assert_eq!(both.len(), 2);
        assert_eq!(both[0].total, i64::MAX);
        assert_eq!((both[1].total, both[1].unit), (3, Unit::Inodes as i32));
        assert_eq!(
            entries(&wire::Usage {
                block: true,
                ..usage
            })
            .len(),
            1
        );
        let uncounted = wire::Usage {
            total_inodes: 0,
            ..usage
        };
        assert_eq!(entries(&uncounted).len(), 1);
    }
}
