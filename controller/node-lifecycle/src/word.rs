//! The words of nodes: the controller asks, this process reads the Node object anew and reports.
//!
//! Every replica does it for the controller beside it, whoever leads.

use std::sync::Arc;
use std::time::Duration;

use ebs_csi_proto::safe_detach::{Ask, Node, Report};
use k8s_openapi::api::core::v1 as core;
use kube::{Api, Client, ResourceExt};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::controller::Controller;
use crate::lease_age::LeaseAges;
use crate::metrics::Metrics;
use crate::seen::SeenNode;
use crate::table::Table;

/// Between two attempts to open the stream.
const PAUSE: Duration = Duration::from_secs(2);
/// Reports that wait to be sent.
const WAITING: usize = 64;
/// A Node object is read within this time, or not at all.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// Answers the controller's questions about nodes.
#[derive(Clone, Debug)]
pub struct Words {
    /// For the Node objects.
    pub api: Api<core::Node>,
    /// Which Node objects there are.
    pub nodes: Arc<Table<SeenNode>>,
    /// How fresh they are.
    pub ages: Arc<LeaseAges>,
    /// Counts them.
    pub metrics: Arc<Metrics>,
}

impl Words {
    /// From these.
    pub fn new(
        client: Client,
        nodes: Arc<Table<SeenNode>>,
        ages: Arc<LeaseAges>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let api = Api::all(client);
        Self {
            api,
            nodes,
            ages,
            metrics,
        }
    }

    /// Answers for ever; the stream is opened again when it ends.
    pub async fn run(self, controller: Controller) {
        loop {
            if let Err(status) = self.answer(&controller).await {
                tracing::info!(code = ?status.code(), text = status.message(), "no questions about nodes come from the controller");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn answer(&self, controller: &Controller) -> Result<(), tonic::Status> {
        let (send, reports) = mpsc::channel(WAITING);
        let stream = ReceiverStream::new(reports);
        let mut asks = controller.client().observe(stream).await?.into_inner();
        tracing::info!("the controller may ask for the words of nodes");
        while let Some(ask) = asks.message().await? {
            let (words, send) = (self.clone(), send.clone());
            tokio::spawn(async move {
                let read = tokio::time::timeout(READ_WITHIN, words.read(&ask)).await;
                let outcome = match read {
                    Ok(Ok(report)) => {
                        // The stream has ended: nobody waits for it any more.
                        let _ = send.send(report).await;
                        "told"
                    }
                    Ok(Err(error)) => {
                        tracing::warn!(%error, instance = ask.instance_id, "a Node object could not be read: nothing is said");
                        "failed"
                    }
                    Err(_) => "late",
                };
                words.metrics.word(outcome);
            });
        }
        Ok(())
    }

    /// All Node objects of the instance, each read anew: not from the table, which only says which they are.
    async fn read(&self, ask: &Ask) -> Result<Report, kube::Error> {
        if !self.nodes.is_complete() {
            return Err(kube::Error::Service(
                "the nodes have not been listed yet".into(),
            ));
        }
        let instance = Some(ask.instance_id.as_str());
        let names: Vec<String> = self
            .nodes
            .pick(|seen| seen.node.instance.as_deref() == instance)
            .iter()
            .map(|seen| seen.name.clone())
            .collect();
        let mut nodes = Vec::new();
        for name in names {
            if let Some(object) = self.api.get_opt(&name).await? {
                nodes.push(self.word(&object));
            }
        }
        Ok(Report {
            ask: ask.ask,
            nodes,
        })
    }

    fn word(&self, object: &core::Node) -> Node {
        let name = object.name_any();
        let seen = SeenNode::of(object);
        let status = object.status.clone().unwrap_or_default();
        let age = self.ages.age(&name);
        let attached = status.volumes_attached.unwrap_or_default();
        Node {
            provider_id: object
                .spec
                .as_ref()
                .and_then(|spec| spec.provider_id.clone())
                .unwrap_or_default(),
            ready: seen.ready == ebs_csi_safe_detach::lifecycle::Readiness::Ready,
            lease_age_ms: age.and_then(|age| u64::try_from(age.as_millis()).ok()),
            volumes_in_use: status.volumes_in_use.unwrap_or_default(),
            volumes_attached: attached.into_iter().map(|volume| volume.name).collect(),
            boot_id: seen.boot,
            name,
        }
    }
}
