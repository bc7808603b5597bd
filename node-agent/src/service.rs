//! From settings to a served socket, in the order that keeps every privilege as short as it can be.

use std::sync::{Arc, Mutex, PoisonError};

use ebs_csi_confine::Fault;
use ebs_csi_policy::variant;
use ebs_csi_proto::csi::identity_server::IdentityServer;
use ebs_csi_proto::csi::node_server::NodeServer;
use ebs_csi_proto::endpoint::Listener;
use ebs_csi_proto::health::Health;
use ebs_csi_proto::identity::Identity;
use ebs_csi_proto::serve;
use tonic::service::Routes;

use crate::attachments::{self, Attachments};
use crate::confinement;
use crate::facts;
use crate::helper::Helper;
use crate::http_endpoint;
use crate::metrics::Metrics;
use crate::node::Node;
use crate::nvme_metrics::Collector;
use crate::registration::{self, Registration};
use crate::settings::Settings;

/// Why the process ended other than by request.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// Nobody knows the node.
    #[error(transparent)]
    Facts(#[from] facts::Unknown),
    /// A socket could not be bound.
    #[error(
        "{address} cannot be bound: {source}; check that the directory exists and that this user may write there"
    )]
    Bind {
        /// Which.
        address: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The process could not be confined.
    #[error(transparent)]
    Confine(#[from] Fault),
    /// Kubelet cannot find the driver any more.
    #[error(transparent)]
    Registration(#[from] registration::Lost),
    /// The runtime could not be started.
    #[error("the runtime cannot be started")]
    Runtime(#[source] std::io::Error),
    /// Serving ended.
    #[error(transparent)]
    Serve(#[from] serve::ServeError),
}

impl ServiceError {
    /// The exit status.
    #[must_use]
    pub const fn exit(&self) -> u8 {
        match self {
            Self::Confine(_) => Fault::EXIT,
            _ => 1,
        }
    }
}

/// Reads the node's facts, binds, confines the process, serves, and drains at SIGTERM or SIGINT.
///
/// # Errors
/// [`ServiceError`].
pub fn run(settings: Settings) -> Result<(), ServiceError> {
    for flag in &settings.ignored {
        tracing::info!(flag, "this flag has no effect");
    }
    let facts = facts::read(&settings.sources)?;
    tracing::info!(
        node.id = %facts.instance,
        instance_type = facts.instance_type,
        zone = facts.zone,
        source = facts.source.as_str(),
        "this node"
    );

    // Before kubelet knows of the driver: what is attached now, nobody attached for it.
    let attachments = Attachments::new(attachments::SYSFS);

    let listener = settings
        .endpoint
        .bind()
        .map_err(|source| ServiceError::Bind {
            address: settings.endpoint.to_string(),
            source,
        })?;
    let registration = settings
        .registration
        .as_ref()
        .map(|wish| {
            Registration::bind(wish).map_err(|source| ServiceError::Bind {
                address: wish
                    .directory
                    .join(registration::SOCKET)
                    .display()
                    .to_string(),
                source,
            })
        })
        .transpose()?;
    let http = settings
        .http
        .map(|address| {
            std::net::TcpListener::bind(address)
                .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
                .map_err(|source| ServiceError::Bind {
                    address: address.to_string(),
                    source,
                })
        })
        .transpose()?;

    // The facts are known by now: their files are not opened again.
    let registry = settings.registration.as_ref();
    let registry = registry.map(|wish| wish.directory.as_path());
    let enforced = confinement::enter(Some(&settings.endpoint), registry, [])?;
    let policy = variant::PRODUCTION.digest;
    tracing::info!(%enforced, policy, "confined");

    let metrics = Arc::new(Metrics::default());
    metrics.info("version", env!("CARGO_PKG_VERSION"));
    metrics.info("policy", policy);
    metrics.info("landlock", enforced.landlock.to_string());
    let helper = Arc::new(Helper::new(settings.helper, Arc::clone(&metrics)));
    let collector = Arc::new(Collector::new(Arc::clone(&helper), facts.instance.clone()));
    let node = Node::new(
        facts,
        settings.options,
        attachments,
        Arc::clone(&helper),
        Arc::clone(&metrics),
    );
    let socket_files = [
        match &settings.endpoint {
            ebs_csi_proto::Endpoint::Unix(path) => Some(path.clone()),
            ebs_csi_proto::Endpoint::Tcp(_) => None,
        },
        registration.as_ref().map(|r| r.path().to_owned()),
    ];
    let ended: Result<(), ServiceError> = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ServiceError::Runtime)?
        .block_on(async {
            let stop = serve::stop_signal().map_err(ServiceError::Runtime)?;
            if let Some(http) = http {
                let (metrics, helper) = (Arc::clone(&metrics), Arc::clone(&helper));
                tokio::spawn(http_endpoint::serve(http, metrics, helper, collector));
            }
            let unregistered = Arc::new(Mutex::new(None));
            let seen = Arc::clone(&unregistered);
            let lost = async move {
                match registration {
                    Some(registration) => {
                        let lost = registration.serve(metrics).await;
                        tracing::error!(%lost, "kubelet cannot find the driver");
                        *seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(lost);
                    }
                    None => std::future::pending().await,
                }
            };
            let stop = async move {
                tokio::select! {
                    () = stop => {}
                    () = lost => {}
                }
            };
            tracing::info!(endpoint = %settings.endpoint, "serving");
            serve_until(listener, node, stop, settings.grace).await?;
            let lost = unregistered
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            match lost {
                Some(lost) => Err(ServiceError::Registration(lost)),
                None => Ok(()),
            }
        });
    // The next process replaces a file where this one may not remove it.
    for path in socket_files.into_iter().flatten() {
        let _ = std::fs::remove_file(path);
    }
    ended?;
    tracing::info!("ended");
    Ok(())
}

/// Serves Identity, Node and gRPC health on a bound listener. Readiness is that of the mount-helper, liveness
/// that the process answers.
///
/// # Errors
/// [`ServiceError::Serve`].
pub async fn serve_until(
    listener: Listener,
    node: Node,
    stop: impl Future<Output = ()> + Send + 'static,
    grace: std::time::Duration,
) -> Result<(), ServiceError> {
    let identity = Identity::always_ready(concat!("v", env!("CARGO_PKG_VERSION")));
    let health = Health::asking(node.readiness());
    let routes = Routes::new(IdentityServer::new(identity))
        .add_service(NodeServer::new(node))
        .add_service(health);
    Ok(serve::serve(listener, routes, stop, grace).await?)
}
