//! A node service in this process, and its socket.

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
use ebs_csi_proto::csi::identity_client::IdentityClient;
use ebs_csi_proto::csi::node_client::NodeClient;
use ebs_csi_wire::{HeldVolume, InstanceId, KubeletPath, VolumeId};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::scripted_helper::{Greeting, ScriptedHelper};

mod requests;

pub(crate) use requests::*;

pub(crate) const INSTANCE: &str = "i-0123456789abcdef0";

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
