//! Starts and runs the service, in the order that gives up each privilege as early as possible.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use ebs_csi_confine::Fault;
use ebs_csi_policy::{PRODUCTION, profile, setting};
use ebs_csi_proto::Endpoint;
use ebs_csi_proto::csi::identity_server::IdentityServer;
use ebs_csi_proto::csi::node_server::NodeServer;
use ebs_csi_proto::endpoint::Listener;
use ebs_csi_proto::health::Health;
use ebs_csi_proto::http_endpoint::{self, PlainText};
use ebs_csi_proto::identity::Identity;
use ebs_csi_proto::metrics::Metrics as Registered;
use ebs_csi_proto::program::{self, Exit};
use ebs_csi_proto::serve;
use tonic::service::Routes;

use crate::attach_limit::{self, Attachments};
use crate::facts::live_facts::LiveFacts;
use crate::facts::{self, dmi};
use crate::helper::Helper;
use crate::http_endpoint::{self as pages, Collection, PageSources, VolumeStatistics};
use crate::node::Node;
use crate::registration::socket_file::{Holder, Prepared, SocketFile};
use crate::registration::{self, Lost, Registration, RegistrationState};
use crate::settings::Settings;

pub mod confinement;
mod promises;

/// Reads the node's facts, binds, confines the process, serves, and drains at SIGTERM or SIGINT.
pub fn run(settings: Settings) -> Result<(), Exit> {
    for flag in &settings.ignored {
        tracing::info!(flag, "this flag has no effect");
    }
    let facts = match facts::read(&settings.sources) {
        Ok(facts) => {
            facts.log();
            LiveFacts::known(facts, settings.sources.files.clone())
        }
        Err(unknown) => {
            let facts = LiveFacts::awaited(&settings.sources, unknown).map_err(Exit::failed)?;
            tracing::warn!(
                "not all facts about this node are known yet: the agent serves, and NodeGetInfo is UNAVAILABLE until a node facts file has them"
            );
            facts
        }
    };
    let facts = Arc::new(facts);

    // Read before kubelet knows of the driver: the disks that are attached now were not attached
    // for the driver.
    let attachments = Attachments::new(attach_limit::SYSFS);

    // Steps that can fail come first: a running agent must not lose its sockets to one that does
    // not reach serving.
    let http = settings.http.bind()?;
    let csi = Csi::prepare(&settings.endpoint).map_err(bind_error(&settings.endpoint))?;
    let target = settings.registration.as_ref();
    let prepared = target
        .map(|target| {
            let socket = target.socket();
            let mode = profile::NODE_AGENT.socket_mode("--plugin-registration-path");
            Prepared::bind(&socket, mode).map_err(bind_error(socket.display()))
        })
        .transpose()?;
    let registry = target.map(|target| target.directory.as_path());
    let facts_files = settings.sources.files;
    let places = confinement::places(
        Some(&settings.endpoint),
        registry,
        facts_files.iter().map(PathBuf::as_path),
        settings.helper.socket(),
    )
    .map_err(unconfined)?;
    confinement::rehearse().map_err(Exit::not_confined)?;

    // A successor's CSI socket appears before its registration: the agent that it replaces relies
    // on the order.
    if let Some(target) = target {
        target.remove_former();
    }
    let (listener, csi) = csi.take_over().map_err(bind_error(&settings.endpoint))?;
    let registration = target
        .zip(prepared)
        .map(|(target, prepared)| {
            Registration::take_over(prepared, target).map_err(bind_error(target.socket().display()))
        })
        .transpose()?;

    // Kubelet writes this id into the Node object, too.
    let boot = dmi::line(Path::new("/proc/sys/kernel/random/boot_id")).unwrap_or_default();
    let enforced = confinement::enter(places, settings.helper.is_vsock()).map_err(unconfined)?;
    let wider = &settings.wider;
    let policy = setting::digest_in_force(&PRODUCTION, wider);
    if !wider.is_empty() {
        tracing::warn!(settings = %wider.join(" "), "these permit more than the policy without them");
    }
    tracing::info!(%enforced, policy, "confined");

    let statistics = Arc::new(VolumeStatistics::default());
    let landlock = enforced.landlock.to_string();
    let metrics =
        pages::metrics(Registered::default(), &policy, &landlock, Arc::clone(&statistics));
    let metrics = Arc::new(metrics);
    let registration_state = Arc::new(match &registration {
        Some(_) => RegistrationState::waiting(Arc::clone(&metrics), Instant::now()),
        None => RegistrationState::elsewhere(Arc::clone(&metrics)),
    });
    let helper = Arc::new(Helper::new(settings.helper, Arc::clone(&metrics)));
    let collection = Arc::new(Collection::new(Arc::clone(&helper), Arc::clone(&facts), statistics));
    let live_facts = Arc::clone(&facts);
    let node =
        Node::new(facts, settings.options, attachments, Arc::clone(&helper), Arc::clone(&metrics));
    program::block_on(async {
        let stop = serve::stop_signal().map_err(Exit::failed)?;
        // The files tell facts that are still missing, the attachment limit, and which attachments
        // the node is to leave alone.
        if !facts_files.is_empty() {
            tokio::spawn(promises::run(Arc::clone(&helper), facts_files));
        }
        if let Some(http) = http {
            let sources = PageSources {
                metrics,
                helper,
                collection,
                registration_state: Arc::clone(&registration_state),
                facts: live_facts,
                pod: settings.pod_uid,
                boot,
            };
            tokio::spawn(http_endpoint::serve(http, PlainText, sources));
        }
        let (lost_sender, lost) = tokio::sync::oneshot::channel();
        let (csi, state) = (csi.as_ref(), Arc::clone(&registration_state));
        let watching = async move {
            let lost = tokio::select! {
                lost = wait_for_removal(csi) => lost,
                lost = serve_registration(registration, csi, state) => lost,
            };
            tracing::error!(%lost, "kubelet cannot find the driver");
            let _ = lost_sender.send(());
            lost
        };
        let stop = async move {
            tokio::select! {
                () = stop => {}
                Ok(()) = lost => {}
            }
        };
        tracing::info!(endpoint = %settings.endpoint, "serving");
        let serving = serve_until(listener, node, registration_state, stop, settings.grace);
        tokio::pin!(serving);
        tokio::select! {
            ended = &mut serving => ended,
            lost = watching => {
                serving.await?;
                Err(Exit::failed(lost))
            }
        }
    })?;
    tracing::info!("ended");
    Ok(())
}

pub(crate) fn unconfined(fault: Fault) -> Exit {
    Exit::new(fault.exit_status(), fault)
}

/// Returns when the file of the CSI socket was removed. A replacement of the file does not end this
/// process: the agent that made the replacement serves, and this process gets a signal to end.
async fn wait_for_removal(csi: Option<&SocketFile>) -> Lost {
    let Some(csi) = csi else {
        return std::future::pending().await;
    };
    while csi.holder() != Holder::Nobody {
        tokio::time::sleep(registration::PAUSE).await;
    }
    Lost::new(csi.path(), std::io::ErrorKind::NotFound.into())
}

/// Returns when kubelet can no longer find the driver in its registration directory.
async fn serve_registration(
    registration: Option<Registration>,
    csi: Option<&SocketFile>,
    registration_state: Arc<RegistrationState>,
) -> Lost {
    match registration {
        Some(registration) => registration.serve(csi, registration_state).await,
        None => std::future::pending().await,
    }
}

/// The CSI socket before clients can reach it.
enum Csi {
    Unix(Prepared),
    /// No other process can bind the address, so there is nothing to take over.
    Tcp(Listener),
}

impl Csi {
    fn prepare(endpoint: &Endpoint) -> std::io::Result<Self> {
        let mode = profile::NODE_AGENT.socket_mode("--endpoint");
        match endpoint {
            Endpoint::Unix(path) => Prepared::bind(path, mode).map(Self::Unix),
            Endpoint::Tcp(_) => endpoint.bind(mode).map(Self::Tcp),
        }
    }

    fn take_over(self) -> std::io::Result<(Listener, Option<SocketFile>)> {
        match self {
            Self::Unix(prepared) => {
                let (listener, file) = prepared.take_over()?;
                Ok((Listener::Unix(listener), Some(file)))
            }
            Self::Tcp(listener) => Ok((listener, None)),
        }
    }
}

/// Adds the address to a bind error.
fn bind_error(address: impl Display) -> impl FnOnce(std::io::Error) -> Exit {
    move |error| {
        Exit::failed(format_args!(
            "{address} cannot be bound: {error}; check that the directory exists and that this user may write there"
        ))
    }
}

/// Serves Identity, Node and gRPC health on a bound listener. Readiness depends on the mount-helper
/// and the registration; liveness means that the process answers.
pub async fn serve_until(
    listener: Listener,
    node: Node,
    registration_state: Arc<RegistrationState>,
    stop: impl Future<Output = ()> + Send + 'static,
    grace: std::time::Duration,
) -> Result<(), Exit> {
    let identity = Identity::always_ready(concat!("v", env!("CARGO_PKG_VERSION")));
    let health = Health::with_async_check(node.readiness(registration_state));
    let routes = Routes::new(IdentityServer::new(identity))
        .add_service(NodeServer::new(node))
        .add_service(health);
    serve::serve(listener, routes, stop, grace).await
}
