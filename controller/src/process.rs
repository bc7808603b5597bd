//! Runs the process from its bound sockets to its end.

pub mod config;
pub mod confinement;
mod http;
pub mod orphans;
mod probe;
pub mod traces;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ebs_csi_ec2::{Ec2, Surroundings};
use ebs_csi_proto::csi::controller_server::ControllerServer;
use ebs_csi_proto::csi::group_controller_server::GroupControllerServer;
use ebs_csi_proto::csi::identity_server::IdentityServer;
use ebs_csi_proto::endpoint::Listener;
use ebs_csi_proto::health::Health;
use ebs_csi_proto::identity::Identity;
use ebs_csi_proto::modify::modify_server::ModifyServer;
use ebs_csi_proto::program::Exit;
use ebs_csi_proto::serve::{serve, stop_signal};
use tokio::sync::oneshot;
use tonic::service::Routes;

use self::http::Pages;
use crate::VERSION;
use crate::csi::rpc;
use crate::csi::service::Controller;
use crate::metrics::Metrics;
use crate::safe_detach::Mode;
use config::Config;
use probe::Probe;
use traces::Exporter;

/// How long the end of the process waits for the collector.
const TRACES_END_TIMEOUT: Duration = Duration::from_secs(2);
/// How long no operation must run until the process is at rest.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// The sockets, bound before the process confined itself.
#[derive(Debug)]
pub struct Sockets {
    /// CSI.
    pub csi: Listener,
    /// SafeDetach.
    pub safe_detach: Option<Listener>,
    /// Metrics and health.
    pub http: Option<std::net::TcpListener>,
    /// The exporter of the log's spans, when they are exported.
    pub traces: Option<Exporter>,
}

/// Serves until SIGTERM or SIGINT, then lets the running calls end. Calls `on_idle` each time that
/// no operation has run for a second after the last one ended. Must run inside a tokio runtime.
///
/// # Errors
/// [`Exit`]: a setting that EC2 or a listener cannot use, or the failure of serving.
pub async fn run(config: Config, sockets: Sockets, on_idle: fn()) -> Result<(), Exit> {
    let metrics = Arc::new(Metrics::new(config.deprecated_metrics));
    let surroundings = Surroundings { observer: metrics.clone(), ..Surroundings::default() };
    let ec2 = Ec2::connect(config.ec2.clone(), surroundings).await.map_err(Exit::setting)?;
    tracing::info!(
        fips = rustls::crypto::aws_lc_rs::default_provider().fips(),
        region = ec2.region(),
        endpoint = config.ec2.ec2_endpoint.as_deref().unwrap_or("of the Region"),
        credentials = config.ec2.credentials_from,
        "EC2"
    );
    tracing::info!(
        mode = %config.service.safe_detach,
        gate = config.service.safe_detach != Mode::Off,
        fence = %config.service.fence.permission,
        "safe detach"
    );
    let probe = Probe::new(config.probe_aws);
    tokio::spawn(Arc::clone(&probe).run(ec2.clone(), Arc::clone(&metrics)));

    let stop =
        stop_signal().map_err(|error| Exit::failed(format_args!("signal handlers: {error}")))?;
    if let Some(listener) = sockets.http {
        let pages = Pages::new(ec2.clone(), Arc::clone(&metrics), Arc::clone(&probe));
        // Health and metrics are served until the last call has ended.
        http::start(listener, config.certificate.clone(), pages).map_err(Exit::setting)?;
    }
    let (calls_ended, end_signal) = oneshot::channel::<()>();
    let export_task = sockets.traces.map(|exporter| {
        tokio::spawn(async move {
            let stopped = async {
                // A message and a dropped sender both mean the end.
                let _ = end_signal.await;
            };
            if let Err(error) = exporter.run(stopped).await {
                tracing::error!(%error, "traces are not exported");
            }
        })
    });
    let settings = config.checked_service().map_err(Exit::setting)?;
    let controller = Controller::new(ec2.clone(), settings, Arc::clone(&metrics));
    tokio::spawn(controller.on_idle(IDLE_AFTER, on_idle));
    if let (Some(listener), Some(socket)) = (sockets.safe_detach, &config.safe_detach_socket) {
        let routes = controller.safe_detach().routes(socket.peers.clone());
        let routes = rpc::guarded(routes, Arc::clone(&metrics));
        tracing::info!(endpoint = %socket.endpoint, "serving SafeDetach");
        // The streams of SafeDetach do not end by themselves, so it is served until the last CSI
        // call has ended.
        let server = serve(listener, routes, std::future::pending(), config.drain);
        tokio::spawn(async move {
            if let Err(error) = server.await {
                tracing::error!(%error, "SafeDetach is served no more");
            }
        });
    }
    let routes = routes(&config, controller, &metrics, &probe);
    tracing::info!(endpoint = %config.endpoint, version = VERSION, "serving CSI");
    serve(sockets.csi, routes, stop, config.drain).await?;
    drop(calls_ended);
    if let Some(export_task) = export_task {
        // Sends the last spans, with a time limit.
        let _ = tokio::time::timeout(TRACES_END_TIMEOUT, export_task).await;
    }
    tracing::info!("ended");
    Ok(())
}

fn routes(
    config: &Config,
    controller: Controller,
    metrics: &Arc<Metrics>,
    probe: &Arc<Probe>,
) -> Routes {
    let manifest = match config.service.safe_detach {
        Mode::Off => HashMap::new(),
        Mode::Ec2Only | Mode::Enforce => {
            HashMap::from([("safe-detach".to_owned(), "v1".to_owned())])
        }
    };
    let identity = Identity::new(VERSION, probe.readiness())
        .with_manifest(manifest)
        .with_groups(config.group_snapshots);
    let ready = {
        let probe = Arc::clone(probe);
        Arc::new(move || probe.unready().is_none())
    };
    let mut routes = Routes::new(IdentityServer::new(identity))
        .add_service(ModifyServer::new(controller.clone()))
        .add_service(Health::new(ready));
    if config.group_snapshots {
        routes = routes.add_service(GroupControllerServer::new(controller.clone()));
    }
    let routes = routes.add_service(ControllerServer::new(controller));
    rpc::guarded(routes, Arc::clone(metrics))
}
