//! The Node service: each call is counted, timed and passed to [`calls`]. This process makes no
//! system call on a volume.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebs_csi_proto::csi::{self, node_service_capability as offered};
use ebs_csi_proto::health::ReadyLater;
use ebs_csi_proto::observe::{Shortened, record_field};
use ebs_csi_proto::{Failure, code_name};
use tonic::{Code, Request, Response, Status};

use crate::attach_limit::{self, Attachments, SlotSettings};
use crate::deadline::Deadline;
use crate::facts::live_facts::LiveFacts;
use crate::helper::Helper;
use crate::metrics::Metrics;
use crate::registration::RegistrationState;

mod calls;
mod queue;
mod stats_and_health;
mod usage;

use calls::Calls;
use queue::Queue;
use usage::KnownUsage;

/// Options of the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The operator's settings for attachment slots.
    pub slot_settings: SlotSettings,
    /// Make XFS file systems that old kernels can mount.
    pub legacy_xfs: bool,
    /// Offer the alpha health calls.
    pub volume_health: bool,
}

/// How long the helper may take to show that it answers.
const READY_TIMEOUT: Duration = Duration::from_secs(2);

/// How long NodeGetInfo waits for missing facts before it answers UNAVAILABLE. Kubelet, whose own
/// limit is two minutes, then waits longer after each failure.
const FACTS_TIMEOUT: Duration = Duration::from_secs(30);

/// The Node service.
#[derive(Clone, Debug)]
pub struct Node {
    calls: Arc<Calls>,
}

impl Node {
    /// Creates the service for the node that the facts describe.
    pub fn new(
        facts: Arc<LiveFacts>,
        options: Options,
        attachments: Attachments,
        helper: Arc<Helper>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            calls: Arc::new(Calls {
                facts,
                options,
                attachments,
                helper,
                queue: Queue::default(),
                known: KnownUsage::default(),
                metrics,
            }),
        }
    }

    /// Returns the check of [`ready`], for gRPC health.
    pub fn readiness(&self, registration_state: Arc<RegistrationState>) -> ReadyLater {
        let calls = Arc::clone(&self.calls);
        Arc::new(move || {
            let (calls, state) = (Arc::clone(&calls), Arc::clone(&registration_state));
            Box::pin(async move { ready(&calls.helper, &state).await.is_ok() })
        })
    }

    /// Counts and times an answer, and converts a failure to its status.
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
        self.calls.metrics.rpc_answered(method, code_name(code), started.elapsed());
        Ok(Response::new(result?))
    }
}

/// Checks that kubelet has registered the driver and that the mount-helper answers. Without both,
/// nothing can be done on this node.
///
/// # Errors
/// What is missing, in one line.
pub(crate) async fn ready(
    helper: &Helper,
    registration_state: &RegistrationState,
) -> Result<(), String> {
    if let Some(fault) = registration_state.fault(Instant::now()) {
        return Err(fault);
    }
    let greeting = helper.greet(Deadline::after(READY_TIMEOUT)).await;
    greeting.map(drop).map_err(|error| error.to_string())
}

/// Returns the message and the deadline of a request, and names the volume in the log.
fn read<T>(request: Request<T>, volume_id: impl Fn(&T) -> &str) -> (T, Deadline) {
    let deadline = Deadline::of(request.metadata());
    let request = request.into_inner();
    record_field("volume.id", volume_id(&request));
    (request, deadline)
}

#[tonic::async_trait]
impl csi::node_server::Node for Node {
    async fn node_stage_volume(
        &self,
        request: Request<csi::NodeStageVolumeRequest>,
    ) -> Result<Response<csi::NodeStageVolumeResponse>, Status> {
        let (request, deadline) = read(request, |request| &request.volume_id);
        tracing::debug!(request = ?Shortened(&request), "asked");
        self.answer("NodeStageVolume", self.calls.stage(&request, deadline)).await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<csi::NodeUnstageVolumeRequest>,
    ) -> Result<Response<csi::NodeUnstageVolumeResponse>, Status> {
        let (request, deadline) = read(request, |request| &request.volume_id);
        tracing::debug!(request = ?Shortened(&request), "asked");
        self.answer("NodeUnstageVolume", self.calls.unstage(&request, deadline)).await
    }

    async fn node_publish_volume(
        &self,
        request: Request<csi::NodePublishVolumeRequest>,
    ) -> Result<Response<csi::NodePublishVolumeResponse>, Status> {
        let (request, deadline) = read(request, |request| &request.volume_id);
        tracing::debug!(request = ?Shortened(&request), "asked");
        self.answer("NodePublishVolume", self.calls.publish(&request, deadline)).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<csi::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<csi::NodeUnpublishVolumeResponse>, Status> {
        let (request, deadline) = read(request, |request| &request.volume_id);
        tracing::debug!(request = ?Shortened(&request), "asked");
        self.answer("NodeUnpublishVolume", self.calls.unpublish(&request, deadline)).await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<csi::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<csi::NodeGetVolumeStatsResponse>, Status> {
        let (request, deadline) = read(request, |request| &request.volume_id);
        self.answer("NodeGetVolumeStats", self.calls.stats(&request, deadline)).await
    }

    async fn node_expand_volume(
        &self,
        request: Request<csi::NodeExpandVolumeRequest>,
    ) -> Result<Response<csi::NodeExpandVolumeResponse>, Status> {
        let (request, deadline) = read(request, |request| &request.volume_id);
        tracing::debug!(request = ?Shortened(&request), "asked");
        self.answer("NodeExpandVolume", self.calls.expand(&request, deadline)).await
    }

    async fn node_get_capabilities(
        &self,
        _: Request<csi::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<csi::NodeGetCapabilitiesResponse>, Status> {
        use offered::rpc::Type;
        let mut kinds = vec![
            Type::StageUnstageVolume,
            Type::ExpandVolume,
            Type::GetVolumeStats,
            Type::SingleNodeMultiWriter,
        ];
        if self.calls.options.volume_health {
            kinds.extend([Type::GetVolumeHealth, Type::GetStorageHealth]);
        }
        let capabilities = kinds.into_iter().map(|kind| csi::NodeServiceCapability {
            r#type: Some(offered::Type::Rpc(offered::Rpc { r#type: kind as i32 })),
        });
        Ok(Response::new(csi::NodeGetCapabilitiesResponse { capabilities: capabilities.collect() }))
    }

    async fn node_get_info(
        &self,
        request: Request<csi::NodeGetInfoRequest>,
    ) -> Result<Response<csi::NodeGetInfoResponse>, Status> {
        let deadline = Deadline::of(request.metadata()).at_most(FACTS_TIMEOUT);
        let Calls { facts: live, options, .. } = &*self.calls;
        self.answer("NodeGetInfo", async {
            let facts = live.wait(deadline).await?;
            let learned = match attach_limit::is_guessed(facts, options.slot_settings, None) {
                true => live.wait_for_limit(deadline).await,
                false => live.limit(),
            };
            let learned = learned.as_ref();
            let taken = self.calls.taken_slots().await;
            let guessed = attach_limit::is_guessed(facts, options.slot_settings, learned);
            if !guessed {
                self.calls.metrics.attach_limit_known();
            } else if self.calls.metrics.attach_limit_guessed(&facts.instance_type) {
                tracing::warn!(
                    instance_type = facts.instance_type,
                    "the table of attachment limits lacks this instance type, and no annotation of the pod has EC2's limit, so 27 slots are assumed; --volume-attach-limit sets another number"
                );
            }
            let max = attach_limit::max_volumes(facts, options.slot_settings, learned, &taken);
            Ok(csi::NodeGetInfoResponse {
                node_id: facts.instance.to_string(),
                max_volumes_per_node: max.into(),
                accessible_topology: Some(csi::Topology { segments: facts.topology() }),
            })
        })
        .await
    }

    async fn node_get_volume_health(
        &self,
        request: Request<csi::NodeGetVolumeHealthRequest>,
    ) -> Result<Response<csi::NodeGetVolumeHealthResponse>, Status> {
        if !self.calls.options.volume_health {
            return Err(Failure::unimplemented("NodeGetVolumeHealth").into());
        }
        let (request, deadline) = read(request, |request| &request.volume_id);
        let work = self.calls.volume_health(&request, deadline);
        self.answer("NodeGetVolumeHealth", work).await
    }

    async fn node_get_storage_health(
        &self,
        request: Request<csi::NodeGetStorageHealthRequest>,
    ) -> Result<Response<csi::NodeGetStorageHealthResponse>, Status> {
        if !self.calls.options.volume_health {
            return Err(Failure::unimplemented("NodeGetStorageHealth").into());
        }
        let deadline = Deadline::of(request.metadata());
        let work = async { Ok(self.calls.storage_health(deadline).await) };
        self.answer("NodeGetStorageHealth", work).await
    }
}
