//! The CSI Controller service: parses requests, acts, and builds the responses.

mod attachment;
mod group;
mod health;
mod snapshot;
mod volume;

use std::sync::Arc;
use std::time::Duration;

use ebs_csi_ec2::Ec2;
use ebs_csi_proto::csi::controller_service_capability::rpc::Type as Offer;
use ebs_csi_proto::csi::controller_service_capability::{Rpc, Type};
use ebs_csi_proto::csi::{
    self, ControllerGetCapabilitiesResponse, ControllerServiceCapability, controller_server,
};
use ebs_csi_proto::{Condition, Failure};
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status};

use crate::attach::{Attachments, InstanceTypes};
use crate::metrics::Metrics;
use crate::modify::Modifications;
use crate::operation::operation_count::OperationCount;
use crate::request::tags::TagSettings;
use crate::safe_detach::{self, ClusterEvidence, FenceSettings, Mode, OldAgents};
use crate::snapshot::Snapshots;
use crate::snapshot::group::Groups;
use crate::volume::Volumes;
use crate::volume::iops::IopsCeilings;
use crate::volume::origin::Sources;

/// Settings of the service.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// What every set of tags contains.
    pub tags: TagSettings,
    /// How long an expansion and a modification of one volume wait for each other.
    pub modify_window: Duration,
    /// How long after its start this process looks for snapshots that the previous process may just
    /// have requested.
    pub snapshot_takeover: Duration,
    /// Whether handles that begin with `local-ebs://` may be published.
    pub node_local_volumes: bool,
    /// How much must be proved before a volume leaves a node.
    pub safe_detach: Mode,
    /// What a fence may do.
    pub fence: FenceSettings,
    /// What counts of a node whose node-agent is older than its page.
    pub old_agents: OldAgents,
    /// Whether the health of volumes is reported. The RPCs are alpha in the CSI specification.
    pub volume_health: bool,
}

impl Default for ServiceSettings {
    fn default() -> Self {
        Self {
            tags: TagSettings::default(),
            modify_window: Duration::from_secs(2),
            snapshot_takeover: Duration::from_secs(10),
            node_local_volumes: false,
            safe_detach: Mode::Off,
            fence: FenceSettings::default(),
            old_agents: OldAgents::default(),
            volume_health: false,
        }
    }
}

/// The Controller service. Clones share their state.
#[derive(Clone, Debug)]
pub struct Controller {
    ec2: Ec2,
    volumes: Volumes,
    attachments: Attachments,
    modifications: Modifications,
    snapshots: Snapshots,
    groups: Groups,
    sources: Sources,
    tags: Arc<TagSettings>,
    node_local_volumes: bool,
    volume_health: bool,
    safe_detach: safe_detach::Service,
    operation_count: OperationCount,
}

impl Controller {
    /// Creates the service with no operation under way.
    pub fn new(ec2: Ec2, settings: ServiceSettings, metrics: Arc<Metrics>) -> Self {
        metrics.safe_detach_mode(settings.safe_detach);
        let cluster_evidence = ClusterEvidence::new(settings.fence, settings.old_agents);
        let instance_types = InstanceTypes::default();
        let safe_detach = safe_detach::Service {
            ec2: ec2.clone(),
            instance_types: instance_types.clone(),
            mode: settings.safe_detach,
            cluster_evidence: cluster_evidence.clone(),
            metrics: Arc::clone(&metrics),
        };
        let operation_count = OperationCount::with_metrics(metrics);
        let tags = Arc::new(settings.tags);
        let ceilings = IopsCeilings::new(ec2.clone(), Arc::clone(&tags));
        Self {
            volumes: Volumes::new(
                ec2.clone(),
                Arc::clone(&tags),
                ceilings.clone(),
                &operation_count,
            ),
            attachments: Attachments::new(
                ec2.clone(),
                instance_types,
                settings.safe_detach,
                cluster_evidence,
                operation_count.clone(),
            ),
            modifications: Modifications::new(
                ec2.clone(),
                ceilings,
                settings.modify_window,
                operation_count.clone(),
            ),
            snapshots: Snapshots::new(
                ec2.clone(),
                Arc::clone(&tags),
                settings.snapshot_takeover,
                &operation_count,
            ),
            groups: Groups::new(
                ec2.clone(),
                Arc::clone(&tags),
                settings.snapshot_takeover,
                &operation_count,
            ),
            sources: Sources::new(ec2.clone(), Arc::clone(&tags)),
            tags,
            node_local_volumes: settings.node_local_volumes,
            volume_health: settings.volume_health,
            safe_detach,
            operation_count,
            ec2,
        }
    }

    /// Returns the service of the SafeDetach socket, which shares this service's evidence.
    pub fn safe_detach(&self) -> safe_detach::Service {
        self.safe_detach.clone()
    }

    /// Calls `callback` each time that no operation has been under way for `pause`.
    pub fn on_idle(
        &self,
        pause: Duration,
        callback: impl FnMut() + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        self.operation_count.clone().on_idle(pause, callback)
    }

    /// Adds to a deadline that has passed that EC2 throttled meanwhile: the work waits for it.
    fn explain_deadline(&self, status: Status, began: Instant) -> Status {
        match self.ec2.throttling_since(began) {
            Some(why) if status.code() == Code::DeadlineExceeded => {
                let text = format!("{}; {why}", status.message());
                Failure::new(Condition::DeadlinePassed, text).into()
            }
            _ => status,
        }
    }

    /// Returns the number of operations under way, including those whose callers no longer wait.
    pub fn operations(&self) -> usize {
        self.operation_count.running()
    }
}

type RpcResult<T> = Result<Response<T>, Status>;

/// Makes the service from one row for each RPC: its messages, and the function that serves it.
macro_rules! controller_service {
    (
        offered { $($rpc:ident: $request:ident -> $response:ident, $serve:path;)* }
        not_offered { $($other:ident: $question:ident -> $answer:ident, $name:literal;)* }
    ) => {
        #[tonic::async_trait]
        impl controller_server::Controller for Controller {
            $(async fn $rpc(
                &self,
                request: Request<csi::$request>,
            ) -> RpcResult<csi::$response> {
                let began = Instant::now();
                let answer = $serve(self, request).await;
                answer.map_err(|status| self.explain_deadline(status, began))
            })*

            $(async fn $other(&self, _: Request<csi::$question>) -> RpcResult<csi::$answer> {
                Err(Failure::unimplemented($name).into())
            })*
        }
    };
}

controller_service! {
    offered {
        create_volume: CreateVolumeRequest -> CreateVolumeResponse, volume::create;
        delete_volume: DeleteVolumeRequest -> DeleteVolumeResponse, volume::delete;
        controller_publish_volume:
            ControllerPublishVolumeRequest -> ControllerPublishVolumeResponse, attachment::publish;
        controller_unpublish_volume:
            ControllerUnpublishVolumeRequest -> ControllerUnpublishVolumeResponse,
            attachment::unpublish;
        validate_volume_capabilities:
            ValidateVolumeCapabilitiesRequest -> ValidateVolumeCapabilitiesResponse,
            volume::validate;
        controller_expand_volume:
            ControllerExpandVolumeRequest -> ControllerExpandVolumeResponse, volume::expand;
        controller_modify_volume:
            ControllerModifyVolumeRequest -> ControllerModifyVolumeResponse, volume::modify;
        create_snapshot: CreateSnapshotRequest -> CreateSnapshotResponse, snapshot::create;
        delete_snapshot: DeleteSnapshotRequest -> DeleteSnapshotResponse, snapshot::delete;
        list_snapshots: ListSnapshotsRequest -> ListSnapshotsResponse, snapshot::list;
        get_snapshot: GetSnapshotRequest -> GetSnapshotResponse, snapshot::get;
        controller_get_capabilities:
            ControllerGetCapabilitiesRequest -> ControllerGetCapabilitiesResponse, get_capabilities;
        list_volumes: ListVolumesRequest -> ListVolumesResponse, volume::list;
        controller_list_volume_health:
            ControllerListVolumeHealthRequest -> ControllerListVolumeHealthResponse, health::list;
        controller_get_volume_health:
            ControllerGetVolumeHealthRequest -> ControllerGetVolumeHealthResponse, health::get;
    }
    not_offered {
        get_capacity: GetCapacityRequest -> GetCapacityResponse, "GetCapacity";
        controller_get_volume:
            ControllerGetVolumeRequest -> ControllerGetVolumeResponse, "ControllerGetVolume";
    }
}

async fn get_capabilities(
    this: &Controller,
    _: Request<csi::ControllerGetCapabilitiesRequest>,
) -> RpcResult<ControllerGetCapabilitiesResponse> {
    Ok(Response::new(capabilities(this.volume_health)))
}

/// The capabilities of the Go driver, in the Go driver's order.
const GO_DRIVER: [Offer; 7] = [
    Offer::CreateDeleteVolume,
    Offer::CloneVolume,
    Offer::PublishUnpublishVolume,
    Offer::CreateDeleteSnapshot,
    Offer::ListSnapshots,
    Offer::ExpandVolume,
    Offer::ModifyVolume,
];

/// Capabilities that the Go driver does not offer.
///
/// LIST_VOLUMES_PUBLISHED_NODES is missing on purpose: with it, external-attacher would attach a
/// volume again that was detached on purpose.
const ADDITIONAL: [Offer; 3] =
    [Offer::SingleNodeMultiWriter, Offer::GetSnapshot, Offer::ListVolumes];

/// Offered with `--enable-volume-health`.
const HEALTH: [Offer; 2] = [Offer::GetVolumeHealth, Offer::ListVolumeHealth];

fn capabilities(volume_health: bool) -> ControllerGetCapabilitiesResponse {
    let health: &[Offer] = if volume_health { &HEALTH } else { &[] };
    ControllerGetCapabilitiesResponse {
        capabilities: GO_DRIVER
            .iter()
            .chain(&ADDITIONAL)
            .chain(health)
            .map(|offer| ControllerServiceCapability {
                r#type: Some(Type::Rpc(Rpc { r#type: *offer as i32 })),
            })
            .collect(),
    }
}
