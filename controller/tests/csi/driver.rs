//! The service on a unix socket, and a client.

use std::collections::HashMap;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ebs_csi_controller::csi::service::{Controller, ServiceSettings};
use ebs_csi_controller::metrics::Metrics;
use ebs_csi_controller::safe_detach::{FenceSettings, Mode as SafeDetach, OldAgents};
use ebs_csi_controller::tags::TagSettings;
use ebs_csi_ec2::{Call, Ec2, Ec2Settings};
use ebs_csi_proto::csi::controller_client::ControllerClient;
use ebs_csi_proto::csi::controller_server::ControllerServer;
use ebs_csi_proto::csi::group_controller_client::GroupControllerClient;
use ebs_csi_proto::csi::group_controller_server::GroupControllerServer;
use ebs_csi_proto::csi::volume_capability::access_mode::Mode;
use ebs_csi_proto::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use ebs_csi_proto::csi::volume_content_source::{SnapshotSource, Type as SourceType, VolumeSource};
use ebs_csi_proto::modify::modify_client::ModifyClient;
use ebs_csi_proto::modify::modify_server::ModifyServer;
use ebs_csi_proto::safe_detach::instance_types_client::InstanceTypesClient;
use ebs_csi_proto::safe_detach::safe_detach_client::SafeDetachClient;
use ebs_csi_proto::{Endpoint, csi};
use serde_json::{Value, json};
use tonic::service::Routes;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::world::{World, access, merged};

/// Two instances in zone a, one in zone b.
pub(crate) const NODE_1: &str = "i-0aaaaaaaaaaaaaaa1";
pub(crate) const NODE_2: &str = "i-0aaaaaaaaaaaaaaa2";
pub(crate) const NODE_B: &str = "i-0bbbbbbbbbbbbbbb1";

/// The service, its clients and the simulated EC2.
pub(crate) struct Driver {
    pub(crate) world: Arc<World>,
    pub(crate) controller: Controller,
    shown: Arc<Metrics>,
    pub(crate) client: ControllerClient<Channel>,
    pub(crate) groups: GroupControllerClient<Channel>,
    pub(crate) modifier: ModifyClient<Channel>,
    pub(crate) safe_detach: SafeDetachClient<Channel>,
    pub(crate) instance_types: InstanceTypesClient<Channel>,
    _stop: tokio::sync::oneshot::Sender<()>,
    _dir: tempfile::TempDir,
}

impl Driver {
    /// Starts a driver in a world where everything is fast.
    pub(crate) async fn new() -> Self {
        Self::in_world(json!({})).await
    }

    pub(crate) async fn in_world(scenario: Value) -> Self {
        Self::under(SafeDetach::Off, scenario).await
    }

    /// Like [`Driver::in_world`], with a volume of this size. Returns also the volume's id.
    pub(crate) async fn with_volume_in(gib: i64, scenario: Value) -> (Self, String) {
        let driver = Self::in_world(scenario).await;
        let id = driver.created("pvc-1", gib).await;
        (driver, id)
    }

    /// Like [`Driver::new`], with a volume of this size. Returns also the volume's id.
    pub(crate) async fn with_volume(gib: i64) -> (Self, String) {
        Self::with_volume_in(gib, json!({})).await
    }

    /// Like [`Driver::in_world`], with a mode of safe detach.
    pub(crate) async fn under(safe_detach: SafeDetach, scenario: Value) -> Self {
        let settings = ServiceSettings { safe_detach, ..settings() };
        Self::with(settings, scenario).await
    }

    /// Like [`Driver::in_world`], with other settings of the service.
    pub(crate) async fn with(settings: ServiceSettings, scenario: Value) -> Self {
        let whole = json!({
            "profile": "instant",
            "instances": [
                { "id": NODE_1, "type": "m5.large", "zone": "us-east-1a" },
                { "id": NODE_2, "type": "m5.large", "zone": "us-east-1a" },
                { "id": NODE_B, "type": "m5.large", "zone": "us-east-1b" },
            ],
        });
        let world = World::with(merged(whole, scenario), Ec2Settings::default()).await;
        let world = Arc::new(world);
        let ec2 = world.ec2.clone();
        Self::over(world, ec2, settings).await
    }

    /// Starts another process over the same EC2: a replica, or this process after a restart.
    pub(crate) async fn another(&self) -> Self {
        self.another_with(settings()).await
    }

    /// Like [`Driver::another`], with other settings of the service.
    pub(crate) async fn another_with(&self, settings: ServiceSettings) -> Self {
        let ec2 = access(&self.world.server.ec2(), Ec2Settings::default()).await;
        Self::over(Arc::clone(&self.world), ec2, settings).await
    }

    /// Starts another process, without `--enable-node-local-volumes`.
    pub(crate) async fn without_node_local_volumes(&self) -> Self {
        let settings = ServiceSettings { node_local_volumes: false, ..settings() };
        self.another_with(settings).await
    }

    async fn over(world: Arc<World>, ec2: Ec2, settings: ServiceSettings) -> Self {
        let shown = Arc::<Metrics>::default();
        let controller = Controller::new(ec2, settings, Arc::clone(&shown));
        let dir = tempfile::tempdir().unwrap();
        let endpoint: Endpoint =
            format!("unix://{}/csi.sock", dir.path().display()).parse().unwrap();
        let listener = endpoint.bind(0o660).unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let routes = Routes::new(ModifyServer::new(controller.clone()))
            .add_service(ControllerServer::new(controller.clone()))
            .add_service(GroupControllerServer::new(controller.clone()));
        tokio::spawn(ebs_csi_proto::serve::serve(
            listener,
            routes,
            async {
                let _ = stopped.await;
            },
            Duration::from_secs(1),
        ));
        let url = format!("unix://{}/csi.sock", dir.path().display());
        let client = ControllerClient::connect(url.clone()).await.unwrap();
        let groups = GroupControllerClient::connect(url.clone()).await.unwrap();
        let modifier = ModifyClient::connect(url).await.unwrap();
        let own = rustix::process::getuid().as_raw();
        let channel = served(&controller, dir.path(), own).await;
        let safe_detach = SafeDetachClient::new(channel.clone());
        let instance_types = InstanceTypesClient::new(channel);
        Self {
            world,
            controller,
            shown,
            client,
            groups,
            modifier,
            safe_detach,
            instance_types,
            _stop: stop,
            _dir: dir,
        }
    }

    /// Sends a request with a deadline that only a hang reaches.
    pub(crate) async fn call<R: CsiRequest>(&self, request: R) -> Result<R::Response, Status> {
        R::send(self.client.clone(), within(request, 60)).await
    }

    /// Sends a request whose deadline comes before the service is done.
    pub(crate) async fn call_until_overdue<R: CsiRequest>(&self, millis: u64, request: R) {
        let mut request = Request::new(request);
        request.set_timeout(Duration::from_millis(millis));
        match R::send(self.client.clone(), request).await {
            Ok(_) => panic!("the call ended within {millis} ms"),
            // The status comes from the service, or from the client's own clock when the machine is
            // busy.
            Err(status) => {
                let is_overdue = matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled);
                assert!(is_overdue, "{status}");
            }
        }
    }

    pub(crate) async fn create(
        &self,
        request: csi::CreateVolumeRequest,
    ) -> Result<csi::Volume, Status> {
        Ok(self.call(request).await?.volume.expect("a volume"))
    }

    pub(crate) async fn created(&self, name: &str, gib: i64) -> String {
        self.create(volume(name, gib)).await.unwrap().volume_id
    }

    /// Returns the volume as EC2 has it.
    pub(crate) async fn look(&self, id: &str) -> ebs_csi_ec2::Volume {
        let id = ebs_csi_wire::VolumeId::parse(id).unwrap();
        self.world.ec2.look_volume(&Call::default(), &id).await.known().unwrap().unwrap()
    }

    pub(crate) async fn delete(&self, id: &str) -> Result<(), Status> {
        let request = csi::DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
        self.call(request).await.map(drop)
    }

    pub(crate) async fn publish(
        &self,
        id: &str,
        node: &str,
    ) -> Result<HashMap<String, String>, Status> {
        Ok(self.call(publish(id, node)).await?.publish_context)
    }

    /// Creates volumes and publishes all of them to the node at the same time. Returns their ids
    /// and publish contexts.
    pub(crate) async fn publish_at_once(
        &self,
        volumes: usize,
        node: &str,
    ) -> Vec<(String, HashMap<String, String>)> {
        let mut ids = Vec::new();
        for n in 0..volumes {
            ids.push(self.created(&format!("pvc-{n}"), 1).await);
        }
        let start = |id: String| {
            let request = within(publish(&id, node), 60);
            let call = csi::ControllerPublishVolumeRequest::send(self.client.clone(), request);
            (id, tokio::spawn(call))
        };
        let running: Vec<_> = ids.into_iter().map(start).collect();
        let mut published = Vec::new();
        for (id, call) in running {
            published.push((id, call.await.unwrap().unwrap().publish_context));
        }
        published
    }

    pub(crate) async fn unpublish(&self, id: &str, node: &str) -> Result<(), Status> {
        self.call(unpublish(id, node)).await.map(drop)
    }

    pub(crate) async fn expand(
        &self,
        id: &str,
        gib: i64,
    ) -> Result<csi::ControllerExpandVolumeResponse, Status> {
        self.call(csi::ControllerExpandVolumeRequest {
            volume_id: id.to_owned(),
            capacity_range: range(gib, 0),
            volume_capability: Some(mount()),
            ..Default::default()
        })
        .await
    }

    pub(crate) async fn modify(&self, id: &str, parameters: &[(&str, &str)]) -> Result<(), Status> {
        let request = csi::ControllerModifyVolumeRequest {
            volume_id: id.to_owned(),
            mutable_parameters: map(parameters),
            ..Default::default()
        };
        self.call(request).await.map(drop)
    }

    pub(crate) async fn snapshot(&self, name: &str, volume: &str) -> Result<csi::Snapshot, Status> {
        self.snapshot_of_class(name, volume, &[]).await
    }

    pub(crate) async fn snapshot_of_class(
        &self,
        name: &str,
        volume: &str,
        class: &[(&str, &str)],
    ) -> Result<csi::Snapshot, Status> {
        let request =
            csi::CreateSnapshotRequest { parameters: map(class), ..snapshot(name, volume) };
        Ok(self.call(request).await?.snapshot.expect("a snapshot"))
    }

    pub(crate) async fn delete_snapshot(&self, id: &str) -> Result<(), Status> {
        let request =
            csi::DeleteSnapshotRequest { snapshot_id: id.to_owned(), ..Default::default() };
        self.call(request).await.map(drop)
    }

    pub(crate) async fn ready_snapshot(&self, name: &str, volume: &str) -> csi::Snapshot {
        for _ in 0..200 {
            let snapshot = self.snapshot(name, volume).await.unwrap();
            if snapshot.ready_to_use {
                return snapshot;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the snapshot does not become ready");
    }

    /// Waits until this many requests of an action have reached EC2.
    pub(crate) async fn until_called(&self, action: &str, times: u64) {
        while self.world.calls(action) < times {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) fn metrics(&self) -> String {
        self.shown.encode(&[])
    }

    /// Returns the number of live resources of this kind in EC2, without root volumes.
    pub(crate) fn live(&self, what: &str) -> u64 {
        self.world.get("/v1/invariants")["live"][what].as_u64().unwrap()
    }

    /// Checks that EC2's rules were kept throughout.
    pub(crate) fn check_invariants(&self) {
        let report = self.world.get("/v1/invariants");
        assert_eq!(report["ok"], json!(true), "{report}");
    }
}

/// Serves SafeDetach on a separate socket in this folder, for this user id, until the runtime ends.
pub(crate) async fn served(controller: &Controller, folder: &Path, peer: u32) -> Channel {
    let url = format!("unix://{}/safe-detach-{peer}.sock", folder.display());
    let listener = url.parse::<Endpoint>().unwrap().bind(0o660).unwrap();
    tokio::spawn(ebs_csi_proto::serve::serve(
        listener,
        controller.safe_detach().routes(vec![peer]),
        std::future::pending(),
        Duration::ZERO,
    ));
    tonic::transport::Endpoint::new(url).unwrap().connect().await.unwrap()
}

/// Returns the settings of these tests: all features are on, and all waiting times are short.
pub(crate) fn settings() -> ServiceSettings {
    ServiceSettings {
        tags: TagSettings { cluster_id: Some("test".to_owned()), ..Default::default() },
        modify_window: Duration::from_millis(300),
        snapshot_takeover: Duration::ZERO,
        node_local_volumes: true,
        safe_detach: SafeDetach::Off,
        fence: FenceSettings::default(),
        old_agents: OldAgents::KubeletReport,
        volume_health: true,
    }
}

pub(crate) trait CsiRequest: Sized {
    type Response;

    fn send(
        client: ControllerClient<Channel>,
        request: Request<Self>,
    ) -> impl Future<Output = Result<Self::Response, Status>> + Send;
}

macro_rules! calls {
    ($($call:ident: $request:ident -> $response:ident;)*) => {$(
        impl CsiRequest for csi::$request {
            type Response = csi::$response;

            async fn send(
                mut client: ControllerClient<Channel>,
                request: Request<Self>,
            ) -> Result<Self::Response, Status> {
                Ok(client.$call(request).await?.into_inner())
            }
        }
    )*};
}

calls! {
    create_volume: CreateVolumeRequest -> CreateVolumeResponse;
    delete_volume: DeleteVolumeRequest -> DeleteVolumeResponse;
    controller_publish_volume: ControllerPublishVolumeRequest -> ControllerPublishVolumeResponse;
    controller_unpublish_volume: ControllerUnpublishVolumeRequest -> ControllerUnpublishVolumeResponse;
    controller_expand_volume: ControllerExpandVolumeRequest -> ControllerExpandVolumeResponse;
    controller_modify_volume: ControllerModifyVolumeRequest -> ControllerModifyVolumeResponse;
    validate_volume_capabilities: ValidateVolumeCapabilitiesRequest -> ValidateVolumeCapabilitiesResponse;
    list_volumes: ListVolumesRequest -> ListVolumesResponse;
    controller_get_capabilities: ControllerGetCapabilitiesRequest -> ControllerGetCapabilitiesResponse;
    controller_get_volume_health: ControllerGetVolumeHealthRequest -> ControllerGetVolumeHealthResponse;
    controller_list_volume_health: ControllerListVolumeHealthRequest -> ControllerListVolumeHealthResponse;
    create_snapshot: CreateSnapshotRequest -> CreateSnapshotResponse;
    delete_snapshot: DeleteSnapshotRequest -> DeleteSnapshotResponse;
    get_snapshot: GetSnapshotRequest -> GetSnapshotResponse;
    list_snapshots: ListSnapshotsRequest -> ListSnapshotsResponse;
}

pub(crate) fn within<T>(message: T, seconds: u64) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(Duration::from_secs(seconds));
    request
}

pub(crate) fn map(entries: &[(&str, &str)]) -> HashMap<String, String> {
    entries.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

pub(crate) fn mount() -> csi::VolumeCapability {
    capability(
        AccessType::Mount(MountVolume { fs_type: "ext4".to_owned(), ..Default::default() }),
        Mode::SingleNodeWriter,
    )
}

pub(crate) fn block(mode: Mode) -> csi::VolumeCapability {
    capability(AccessType::Block(BlockVolume {}), mode)
}

fn capability(access: AccessType, mode: Mode) -> csi::VolumeCapability {
    csi::VolumeCapability {
        access_type: Some(access),
        access_mode: Some(AccessMode { mode: mode as i32 }),
    }
}

pub(crate) fn volume(name: &str, gib: i64) -> csi::CreateVolumeRequest {
    csi::CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: range(gib, 0),
        volume_capabilities: vec![mount()],
        ..Default::default()
    }
    .in_zone("us-east-1a")
}

pub(crate) fn range(required: i64, limit: i64) -> Option<csi::CapacityRange> {
    Some(csi::CapacityRange { required_bytes: required << 30, limit_bytes: limit << 30 })
}

pub(crate) trait CreateRequest: Sized {
    fn with_parameters(self, parameters: &[(&str, &str)]) -> Self;
    fn with_capability(self, capability: csi::VolumeCapability) -> Self;
    fn with_source(self, source: csi::VolumeContentSource) -> Self;
    /// Requires, and prefers, the topology with these segments.
    fn with_topology(self, segments: &[(&str, &str)]) -> Self;

    fn in_zone(self, zone: &str) -> Self {
        self.with_topology(&[("topology.kubernetes.io/zone", zone)])
    }
}

impl CreateRequest for csi::CreateVolumeRequest {
    fn with_parameters(self, parameters: &[(&str, &str)]) -> Self {
        Self { parameters: map(parameters), ..self }
    }

    fn with_capability(self, capability: csi::VolumeCapability) -> Self {
        Self { volume_capabilities: vec![capability], ..self }
    }

    fn with_source(self, source: csi::VolumeContentSource) -> Self {
        Self { volume_content_source: Some(source), ..self }
    }

    fn with_topology(self, segments: &[(&str, &str)]) -> Self {
        let term = csi::Topology { segments: map(segments) };
        let required =
            csi::TopologyRequirement { requisite: vec![term.clone()], preferred: vec![term] };
        Self { accessibility_requirements: Some(required), ..self }
    }
}

pub(crate) fn publish(id: &str, node: &str) -> csi::ControllerPublishVolumeRequest {
    csi::ControllerPublishVolumeRequest {
        volume_id: id.to_owned(),
        node_id: node.to_owned(),
        volume_capability: Some(mount()),
        ..Default::default()
    }
}

pub(crate) fn unpublish(id: &str, node: &str) -> csi::ControllerUnpublishVolumeRequest {
    csi::ControllerUnpublishVolumeRequest {
        volume_id: id.to_owned(),
        node_id: node.to_owned(),
        ..Default::default()
    }
}

pub(crate) fn snapshot(name: &str, volume: &str) -> csi::CreateSnapshotRequest {
    csi::CreateSnapshotRequest {
        name: name.to_owned(),
        source_volume_id: volume.to_owned(),
        ..Default::default()
    }
}

pub(crate) fn from_snapshot(id: &str) -> csi::VolumeContentSource {
    csi::VolumeContentSource {
        r#type: Some(SourceType::Snapshot(SnapshotSource { snapshot_id: id.to_owned() })),
    }
}

pub(crate) fn from_volume(id: &str) -> csi::VolumeContentSource {
    csi::VolumeContentSource {
        r#type: Some(SourceType::Volume(VolumeSource { volume_id: id.to_owned() })),
    }
}

/// Returns a scenario in which a step of EC2 takes this long.
pub(crate) fn with_latency(step: &str, millis: u64) -> Value {
    json!({ "latency": { step: { "fixed_ms": millis } } })
}

/// Checks that the call failed with this code and a message that has these words.
#[track_caller]
pub(crate) fn assert_refused<T: Debug>(answer: Result<T, Status>, code: Code, words: &[&str]) {
    assert_status(&answer.unwrap_err(), code, words);
}

#[track_caller]
pub(crate) fn assert_status(status: &Status, code: Code, words: &[&str]) {
    assert_eq!(status.code(), code, "{status}");
    for word in words {
        assert!(status.message().contains(word), "{word}: {status}");
    }
}
