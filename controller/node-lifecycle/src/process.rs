//! The process between its confinement and its end.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use ebs_csi_proto::http_endpoint;
use ebs_csi_proto::serve::stop_signal;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config as ApiConfig};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cluster::{
    AGENT_PODS, LeaseAges, Retained, SeenAgentPod, Table, TableRow, Tables, follow,
};
use crate::controller_client::kubelet_reports::KubeletReports;
use crate::controller_client::{Controller, override_orders};
use crate::detach_retries::Retries;
use crate::events::EventSender;
use crate::failover::{FRESH, Failover, Fencing, Lost};
use crate::flags::{Config, Switch, VERSION};
use crate::leader::Leader;
use crate::metrics::Metrics;
use crate::metrics::http_endpoint::PageSources;
use crate::onboarding::Onboarding;
use crate::onboarding::agent_annotations::{AgentAnnotations, Kept};
use crate::unidentified_nodes;

pub mod confinement;
pub mod kubeconfig;

/// Why the process ended without a signal.
#[derive(Debug)]
pub enum Ended {
    /// The API server's address or the credential cannot be used.
    Configuration(String),
    /// A task that never ends has ended.
    Failed(String),
}

impl Ended {
    /// Returns the exit status: 78 for a configuration, 1 otherwise.
    pub fn status(&self) -> u8 {
        match self {
            Self::Configuration(_) => 78,
            Self::Failed(_) => 1,
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration(why) | Self::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Ended {}

/// Works until SIGTERM or SIGINT. Must run inside a tokio runtime.
///
/// `kubeconfig` is the file's content from before the confinement; without one the pod's service
/// account is used.
///
/// # Errors
/// [`Ended`].
pub async fn run(
    config: Config,
    kubeconfig: Option<Kubeconfig>,
    listener: Option<std::net::TcpListener>,
) -> Result<(), Ended> {
    let stop = stop_signal().map_err(|e| Ended::Failed(format!("signal handlers: {e}")))?;
    let client = connect(kubeconfig).await?;
    let metrics = Arc::new(Metrics::default());
    let tables = Arc::new(Tables::default());
    let ages = Arc::new(LeaseAges::default());
    let controller = Controller::at(config.socket.clone());
    let leader =
        Leader::new(client.clone(), &config.namespace, config.identity.clone(), config.lease);
    tracing::info!(version = VERSION, failover = ?config.failover, identity = config.identity, "node-lifecycle");

    let mut tasks = JoinSet::new();
    let mut always = |name: &'static str, task: Task| {
        tasks.spawn(async move {
            task.await;
            name
        });
    };
    let mode = config.failover.mode();
    always("a watch", watch(&client, &tables.nodes));
    always("a watch", watch(&client, &tables.csi_nodes));
    {
        let (ages, client) = (Arc::clone(&ages), client.clone());
        always("the leases", Box::pin(async move { ages.run(client).await }));
    }
    let words =
        KubeletReports::new(client.clone(), Arc::clone(&tables), ages, Arc::clone(&metrics));
    // Without failover, attachments matter only where the controller may refuse detaches.
    let heard = words.heard.clone();
    let when_needed = |task: Task| match mode {
        Some(_) => task,
        None => once(heard.subscribe(), task),
    };
    always("a watch", when_needed(watch(&client, &tables.volumes)));
    always("a watch", when_needed(watch(&client, &tables.attachments)));
    let running = Arc::clone(&leader);
    let election: Task = Box::pin(async move { running.run().await });
    let (teller, telling) = EventSender::new(client.clone(), config.identity);
    let teller = Arc::new(teller);
    always("the events", Box::pin(telling.run()));
    let annotates = [config.node_facts, config.drain_annotation].contains(&Switch::On);
    match config.onboarding {
        Switch::Off if !annotates => always("leader election", when_needed(election)),
        _ => always("leader election", election),
    }
    if config.onboarding == Switch::On {
        let onboarding = Onboarding {
            client: client.clone(),
            tables: Arc::clone(&tables),
            leader: Arc::clone(&leader),
            metrics: Arc::clone(&metrics),
            tried: HashMap::new(),
        };
        always("onboarding", Box::pin(onboarding.run()));
    }
    if annotates {
        let mut pods = Vec::new();
        for namespace in &config.node_namespaces {
            let table = Arc::new(Table::<SeenAgentPod>::default());
            let api = Api::namespaced(client.clone(), namespace);
            let following = follow(api, AGENT_PODS, Arc::clone(&table));
            always("a watch", Box::pin(following));
            pods.push(table);
        }
        let annotations = AgentAnnotations::new(
            client.clone(),
            Arc::clone(&tables),
            pods,
            Kept {
                facts: config.node_facts == Switch::On,
                draining: config.drain_annotation == Switch::On,
            },
            Arc::clone(&leader),
            Arc::clone(&metrics),
            Arc::clone(&teller),
        );
        always("the annotations", Box::pin(annotations.run()));
    }
    let orders = override_orders::run(
        Arc::clone(&tables),
        controller.clone(),
        Arc::clone(&leader),
        Arc::clone(&teller),
    );
    always("override orders", when_needed(Box::pin(orders)));
    let retries = Retries {
        client: client.clone(),
        namespace: config.namespace.clone(),
        tables: Arc::clone(&tables),
        words: words.clone(),
        controller: controller.clone(),
        leader: Arc::clone(&leader),
        metrics: Arc::clone(&metrics),
        teller: Arc::clone(&teller),
        known: HashMap::new(),
        looks: 0,
    };
    always("the retries", Box::pin(retries.run()));
    let unidentified = unidentified_nodes::run(Arc::clone(&tables), Arc::clone(&metrics));
    always("the unidentified nodes", Box::pin(unidentified));
    always("the words", Box::pin(words.run(controller.clone())));
    if let Some(mode) = mode {
        always("a watch", watch(&client, &tables.pods));
        let failover = Failover {
            teller,
            client,
            namespace: config.namespace,
            tables: Arc::clone(&tables),
            controller,
            leader: Arc::clone(&leader),
            mode,
            fencing: Fencing { how: config.fence, when: config.fence_when },
            lost: Lost::new(config.fence_after),
            episodes: Mutex::default(),
            rota: Mutex::default(),
            every: config.query_every,
            silent: AtomicBool::new(false),
            fresh: FRESH,
            metrics: Arc::clone(&metrics),
        };
        always("failover", Box::pin(failover.run()));
    }
    if let Some(listener) = listener {
        let ready = move || match tables.nodes.is_complete() {
            true => Ok(()),
            false => Err("the nodes have not been listed yet"),
        };
        always(
            "metrics",
            Box::pin(async move {
                if let Err(error) =
                    http_endpoint::serve(listener, PageSources { metrics, ready }).await
                {
                    tracing::error!(%error, "metrics are not served");
                }
            }),
        );
    }
    tokio::select! {
        () = stop => {}
        ended = tasks.join_next() => {
            let what = match ended {
                Some(Ok(name)) => format!("{name} ended"),
                Some(Err(error)) => format!("a task failed: {error}"),
                None => "nothing was left to do".to_owned(),
            };
            return Err(Ended::Failed(what));
        }
    }
    // First all acts of this process end, then another replica may act.
    tasks.shutdown().await;
    leader.resign().await;
    tracing::info!("ended");
    Ok(())
}

type Task = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// Returns a task that starts once the controller listens for the first time.
fn once(mut heard: watch::Receiver<bool>, task: Task) -> Task {
    Box::pin(async move {
        if heard.wait_for(|heard| *heard).await.is_ok() {
            task.await;
        }
    })
}

fn watch<T>(client: &Client, table: &Arc<Table<T>>) -> Task
where
    T: Retained + TableRow + fmt::Debug + Send + Sync + 'static,
{
    Box::pin(follow(Api::all(client.clone()), "", Arc::clone(table)))
}

/// Creates a client of the API server.
///
/// # Errors
/// [`Ended::Configuration`].
pub async fn connect(kubeconfig: Option<Kubeconfig>) -> Result<Client, Ended> {
    let unusable = |error: &dyn fmt::Display| Ended::Configuration(error.to_string());
    let config = match kubeconfig {
        Some(read) => ApiConfig::from_custom_kubeconfig(read, &KubeConfigOptions::default())
            .await
            .map_err(|e| unusable(&e))?,
        None => ApiConfig::incluster().map_err(|e| {
            unusable(&format!("{e}; outside a pod give --kubeconfig or KUBECONFIG"))
        })?,
    };
    tracing::info!(server = %config.cluster_url, "Kubernetes");
    Client::try_from(config).map_err(|e| unusable(&e))
}
