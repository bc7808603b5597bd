//! Runs the process's tasks, from its confinement to its end.

use std::sync::Arc;

use ebs_csi_proto::http_endpoint::{self, Pages, PlainText, StatusCode};
use ebs_csi_proto::program::Exit;
use ebs_csi_proto::serve::stop_signal;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config as ApiConfig};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cluster::{LeaseAges, Tables, Task, watch_agent_pods};
use crate::context::Context;
use crate::controller_client::node_reports::NodeReports;
use crate::controller_client::{Controller, override_orders};
use crate::detach_retries::DetachRetries;
use crate::events::EventSender;
use crate::failover::{Failover, Fencing};
use crate::flags::{Config, Switch, VERSION};
use crate::leader::Leader;
use crate::metrics::{Metrics, unidentified_nodes};
use crate::onboarding;
use crate::onboarding::agent_annotations::{AgentAnnotations, AnnotationSwitches};

pub mod confinement;
pub mod kubeconfig;

/// Runs until SIGTERM or SIGINT. Must run inside a tokio runtime.
///
/// `kubeconfig` is the file's content from before the confinement; without one the pod's service
/// account is used.
///
/// # Errors
/// [`Exit`]: a setting that cannot be used, or a task that ended and should not have.
pub async fn run(
    config: Config,
    kubeconfig: Option<Kubeconfig>,
    listener: Option<std::net::TcpListener>,
) -> Result<(), Exit> {
    let stop = stop_signal().map_err(|e| Exit::failed(format_args!("signal handlers: {e}")))?;
    let client = connect(kubeconfig).await?;
    let (events, event_writer) = EventSender::new(client.clone(), config.identity.clone());
    let identity = config.identity.clone();
    let context = Context {
        client: client.clone(),
        namespace: config.namespace.clone(),
        tables: Arc::default(),
        controller: Controller::new(config.socket.clone()),
        leader: Leader::new(client.clone(), &config.namespace, identity, config.lease_duration),
        metrics: Arc::default(),
        events: Arc::new(events),
    };
    let Context { tables, metrics, leader, .. } = context.clone();
    let ages = Arc::new(LeaseAges::default());
    tracing::info!(version = VERSION, failover = ?config.failover, identity = config.identity, "node-lifecycle");

    let mut tasks = JoinSet::new();
    let mut spawn_endless = |name: &'static str, task: Task| {
        tasks.spawn(async move {
            task.await;
            name
        });
    };
    let mode = config.failover.mode();
    for watch in tables.watch_nodes(&client) {
        spawn_endless("a watch", watch);
    }
    spawn_endless("the leases", Box::pin(Arc::clone(&ages).run(client.clone())));
    let (agent_pods, agent_watches): (Vec<_>, Vec<_>) =
        config.node_namespaces.iter().map(|namespace| watch_agent_pods(&client, namespace)).unzip();
    let node_reports = NodeReports::new(&context, ages, agent_pods.clone());
    // Without failover, attachments are needed only where the controller may refuse detaches.
    let controller_listens = node_reports.controller_listens.clone();
    let when_controller_listens = |task: Task| match mode {
        Some(_) => task,
        None => start_after(controller_listens.subscribe(), task),
    };
    for watch in tables.watch_volumes_and_pods(&client) {
        spawn_endless("a watch", when_controller_listens(watch));
    }
    let election: Task = Box::pin(Arc::clone(&leader).run());
    spawn_endless("the events", Box::pin(event_writer.run()));
    let writes_annotations = [config.node_facts, config.drain_annotation].contains(&Switch::On);
    let needs_leader = config.onboarding == Switch::On || writes_annotations;
    let election = if needs_leader { election } else { when_controller_listens(election) };
    spawn_endless("leader election", election);
    if config.onboarding == Switch::On {
        spawn_endless("onboarding", Box::pin(onboarding::run(context.clone())));
    }
    for watch in agent_watches {
        let watch = if writes_annotations { watch } else { when_controller_listens(watch) };
        spawn_endless("a watch", watch);
    }
    spawn_endless("the promises", when_controller_listens(Box::pin(node_reports.promises().run())));
    if writes_annotations {
        let switches = AnnotationSwitches {
            facts: config.node_facts == Switch::On,
            draining: config.drain_annotation == Switch::On,
        };
        let annotations = AgentAnnotations::new(context.clone(), agent_pods, switches);
        spawn_endless("the annotations", Box::pin(annotations.run()));
    }
    let orders = override_orders::run(context.clone());
    spawn_endless("override orders", when_controller_listens(Box::pin(orders)));
    let retries = DetachRetries::new(context.clone(), node_reports.clone());
    spawn_endless("the retries", Box::pin(retries.run()));
    let unidentified = unidentified_nodes::run(Arc::clone(&tables), Arc::clone(&metrics));
    spawn_endless("the unidentified nodes", Box::pin(unidentified));
    spawn_endless("the node reports", Box::pin(node_reports.run()));
    if let Some(mode) = mode {
        let fencing = Fencing { power_off: config.fence, when: config.fence_when.into() };
        let failover =
            Failover::new(context, mode, fencing, config.fence_after, config.query_interval);
        spawn_endless("failover", Box::pin(failover.run()));
    }
    if let Some(listener) = listener {
        let serving = http_endpoint::serve(listener, PlainText, PageSources { metrics, tables });
        spawn_endless("metrics", Box::pin(serving));
    }
    tokio::select! {
        () = stop => {}
        ended = tasks.join_next() => {
            let what = match ended {
                Some(Ok(name)) => format!("{name} ended"),
                Some(Err(error)) => format!("a task failed: {error}"),
                None => "nothing was left to do".to_owned(),
            };
            return Err(Exit::failed(what));
        }
    }
    // First all acts of this process end, then another replica may act.
    tasks.shutdown().await;
    leader.resign().await;
    tracing::info!("ended");
    Ok(())
}

/// Returns a task that starts when the controller has opened the stream for nodes' answers.
fn start_after(mut controller_listens: watch::Receiver<bool>, task: Task) -> Task {
    Box::pin(async move {
        if controller_listens.wait_for(|controller_listens| *controller_listens).await.is_ok() {
            task.await;
        }
    })
}

/// Creates a client of the API server.
///
/// # Errors
/// [`Exit`]: the API server's address or the credential cannot be used.
pub async fn connect(kubeconfig: Option<Kubeconfig>) -> Result<Client, Exit> {
    let config = match kubeconfig {
        Some(kubeconfig) => {
            let options = KubeConfigOptions::default();
            let config = ApiConfig::from_custom_kubeconfig(kubeconfig, &options).await;
            config.map_err(Exit::setting)?
        }
        None => ApiConfig::incluster().map_err(|e| {
            Exit::setting(format_args!("{e}; outside a pod give --kubeconfig or KUBECONFIG"))
        })?,
    };
    #[cfg(feature = "fips")]
    tracing::info!(fips = rustls::crypto::aws_lc_rs::default_provider().fips(), "TLS");
    tracing::info!(server = %config.cluster_url, "Kubernetes");
    Client::try_from(config).map_err(Exit::setting)
}

#[derive(Debug)]
struct PageSources {
    metrics: Arc<Metrics>,
    tables: Arc<Tables>,
}

impl Pages for PageSources {
    async fn metrics(&self) -> Result<String, StatusCode> {
        Ok(self.metrics.page())
    }

    async fn ready(&self) -> Result<(), String> {
        match self.tables.nodes.is_complete() {
            true => Ok(()),
            false => Err("the nodes have not been listed yet".to_owned()),
        }
    }
}
