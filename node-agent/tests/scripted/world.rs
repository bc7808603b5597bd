//! A node service in this process, its socket, and requests for the service.

#![allow(dead_code)]

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ebs_csi_node_agent::attach_limit::Attachments;
use ebs_csi_node_agent::facts::{NodeFacts, Source};
use ebs_csi_node_agent::helper::Helper;
use ebs_csi_node_agent::metrics::Metrics;
use ebs_csi_node_agent::node::{Node, Options};
use ebs_csi_node_agent::registration::RegistrationState;
use ebs_csi_node_agent::service;
use ebs_csi_proto::Endpoint;
use ebs_csi_proto::csi;
use ebs_csi_proto::csi::identity_client::IdentityClient;
use ebs_csi_proto::csi::node_client::NodeClient;
use ebs_csi_proto::csi::volume_capability::{
    AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode,
};
use ebs_csi_wire::{HeldVolume, InstanceId, KubeletPath, VolumeId};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::scripted_helper::{Greeting, ScriptedHelper};

pub(crate) const INSTANCE: &str = "i-0123456789abcdef0";
pub(crate) const VOLUME: &str = "vol-0123456789abcdef0";
pub(crate) const STAGING: &str = "/var/lib/kubelet/plugins/kubernetes.io/csi/d/h/globalmount";
pub(crate) const TARGET: &str = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/v/mount";

/// The service, its helper, and the directory with the sockets of both.
pub(crate) struct World {
    pub(crate) helper: ScriptedHelper,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) socket: PathBuf,
    pub(crate) dir: tempfile::TempDir,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::with(Greeting::Usual, Options::default()).await
    }

    /// Starts a service that offers the alpha health calls.
    pub(crate) async fn with_health() -> Self {
        let options = Options { volume_health: true, ..Options::default() };
        Self::with(Greeting::Usual, options).await
    }

    /// Starts a service whose helper greets in this way.
    pub(crate) async fn with_greeting(greeting: Greeting) -> Self {
        Self::with(greeting, Options::default()).await
    }

    async fn with(greeting: Greeting, options: Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let helper = ScriptedHelper::start(&dir.path().join("helper.sock"), greeting);
        let socket = dir.path().join("csi.sock");
        let metrics = Arc::new(Metrics::default());
        let address = format!("unix://{}", dir.path().join("helper.sock").display());
        let client = Helper::new(address.parse().unwrap(), Arc::clone(&metrics));
        let sysfs = Attachments::new(dir.path().join("sys"));
        let registration_state = Arc::new(RegistrationState::elsewhere(Arc::clone(&metrics)));
        let node = Node::new(
            Arc::new(facts().into()),
            options,
            sysfs,
            Arc::new(client),
            Arc::clone(&metrics),
        );
        let listener = Endpoint::Unix(socket.clone()).bind(0o660).unwrap();
        tokio::spawn(service::serve_until(
            listener,
            node,
            registration_state,
            std::future::pending(),
            Duration::ZERO,
        ));
        Self { helper, metrics, socket, dir }
    }

    pub(crate) fn node(&self) -> NodeClient<Channel> {
        node(&self.socket)
    }

    pub(crate) fn identity(&self) -> IdentityClient<Channel> {
        IdentityClient::new(channel(&self.socket))
    }
}

pub(crate) fn facts() -> NodeFacts {
    NodeFacts {
        instance: InstanceId::parse(INSTANCE).unwrap(),
        instance_type: "m7i.large".to_owned(),
        zone: "us-east-1a".to_owned(),
        region: None,
        network_interfaces: 1,
        other_volumes: 0,
        outpost: None,
        source: Source::Imds,
    }
}

pub(crate) fn channel(socket: &Path) -> Channel {
    tonic::transport::Endpoint::try_from(format!("unix://{}", socket.display()))
        .unwrap()
        .connect_lazy()
}

pub(crate) fn node(socket: &Path) -> NodeClient<Channel> {
    NodeClient::new(channel(socket))
}

/// Checks that a call fails with this code, and returns its status.
#[track_caller]
pub(crate) fn refused<T: Debug>(answer: Result<T, Status>, code: Code) -> Status {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), code, "{status}");
    status
}

/// Returns the request with a `grpc-timeout`, as a client with a deadline sends it.
pub(crate) fn timed<T>(message: T, limit: Duration) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(limit);
    request
}

pub(crate) fn mount() -> csi::VolumeCapability {
    csi::VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter as i32 }),
    }
}

pub(crate) fn block() -> csi::VolumeCapability {
    csi::VolumeCapability { access_type: Some(AccessType::Block(BlockVolume {})), ..mount() }
}

pub(crate) fn single_writer() -> csi::VolumeCapability {
    csi::VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeSingleWriter as i32 }),
        ..mount()
    }
}

pub(crate) fn stage() -> csi::NodeStageVolumeRequest {
    csi::NodeStageVolumeRequest {
        volume_id: VOLUME.to_owned(),
        staging_target_path: STAGING.to_owned(),
        volume_capability: Some(mount()),
        publish_context: [("devicePath".to_owned(), "/dev/xvdaa".to_owned())].into(),
        ..Default::default()
    }
}

pub(crate) fn publish() -> csi::NodePublishVolumeRequest {
    csi::NodePublishVolumeRequest {
        volume_id: VOLUME.to_owned(),
        staging_target_path: STAGING.to_owned(),
        target_path: TARGET.to_owned(),
        volume_capability: Some(mount()),
        publish_context: [("devicePath".to_owned(), "/dev/xvdaa".to_owned())].into(),
        ..Default::default()
    }
}

pub(crate) fn stats() -> csi::NodeGetVolumeStatsRequest {
    csi::NodeGetVolumeStatsRequest {
        volume_id: VOLUME.to_owned(),
        volume_path: TARGET.to_owned(),
        ..Default::default()
    }
}

pub(crate) fn expand() -> csi::NodeExpandVolumeRequest {
    csi::NodeExpandVolumeRequest {
        volume_id: VOLUME.to_owned(),
        volume_path: TARGET.to_owned(),
        ..Default::default()
    }
}

pub(crate) fn unstage() -> csi::NodeUnstageVolumeRequest {
    csi::NodeUnstageVolumeRequest {
        volume_id: VOLUME.to_owned(),
        staging_target_path: STAGING.to_owned(),
    }
}

pub(crate) fn unpublish() -> csi::NodeUnpublishVolumeRequest {
    csi::NodeUnpublishVolumeRequest { volume_id: VOLUME.to_owned(), target_path: TARGET.to_owned() }
}

/// Returns the volume as the helper's inventory shows it at a path.
pub(crate) fn held(path: &str, staged: bool) -> HeldVolume {
    HeldVolume {
        volume: VolumeId::parse(VOLUME).unwrap(),
        path: KubeletPath::parse(path).unwrap(),
        read_only: false,
        staged,
        by_name: false,
    }
}
