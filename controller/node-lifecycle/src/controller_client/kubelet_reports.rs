//! Kubelet's reports: the controller asks about an instance, and this process reads the Node object
//! from the API server and answers.
//!
//! Every replica does so for the controller in its own pod, whichever replica leads.

use std::sync::Arc;
use std::time::Duration;

use ebs_csi_proto::safe_detach::{Node, Report};
use ebs_csi_safe_detach::lifecycle::Readiness;
use k8s_openapi::api::core::v1 as core;
use kube::Api;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

use super::Controller;
use crate::cluster::{CsiNodeRow, LeaseAges, NodeRow, Tables, Watched};
use crate::context::Context;
use crate::metrics::Metrics;

/// The first pause between two attempts to open the stream: a restarted controller serves within a
/// second or two.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause, where the controller does not serve the socket at all.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const QUEUE_LENGTH: usize = 64;
/// A Node object is read within this time, or not at all.
pub const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// ControllerAnswers the controller's questions about nodes.
#[derive(Clone, Debug)]
pub struct KubeletReports {
    api: Api<core::Node>,
    /// For nodes without a provider id.
    csi_nodes: Api<Watched<CsiNodeRow>>,
    tables: Arc<Tables>,
    ages: Arc<LeaseAges>,
    metrics: Arc<Metrics>,
    /// Whether the controller's stream of questions is open.
    pub controller_listens: watch::Sender<bool>,
}

impl KubeletReports {
    /// Creates the reporter from its parts.
    pub fn new(context: &Context, ages: Arc<LeaseAges>) -> Self {
        Self {
            api: Api::all(context.client.clone()),
            csi_nodes: Api::all(context.client.clone()),
            tables: Arc::clone(&context.tables),
            ages,
            metrics: Arc::clone(&context.metrics),
            controller_listens: watch::Sender::new(false),
        }
    }

    /// ControllerAnswers for ever; opens the stream again when it ends.
    ///
    /// A controller with safe detach off serves no socket, and may never serve one: that is logged
    /// once, and the attempts become less and less frequent.
    pub async fn run(self, controller: Controller) {
        let mut pause = FIRST_PAUSE;
        let mut last_logged = None;
        loop {
            let ended = self.answer(&controller).await;
            self.metrics.connected.set(0);
            if self.controller_listens.send_replace(false) {
                (pause, last_logged) = (FIRST_PAUSE, None);
            }
            let why = match ended {
                Ok(()) => "it ended the stream".to_owned(),
                Err(status) => format!("{:?}: {}", status.code(), status.message()),
            };
            if last_logged.as_ref() == Some(&why) {
                tracing::debug!(why, "the controller does not ask for kubelet's reports yet");
            } else {
                tracing::info!(
                    why,
                    "the controller does not ask for kubelet's reports; later attempts to connect are logged at debug level (with --safe-detach=off it serves no socket)"
                );
            }
            last_logged = Some(why);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn answer(&self, controller: &Controller) -> Result<(), tonic::Status> {
        let (send, reports) = mpsc::channel(QUEUE_LENGTH);
        let stream = ReceiverStream::new(reports);
        let mut questions = controller.client().observe(stream).await?.into_inner();
        tracing::info!("the controller may ask for kubelet's reports");
        self.metrics.connected.set(1);
        self.controller_listens.send_replace(true);
        while let Some(ask) = questions.message().await? {
            let (reporter, send) = (self.clone(), send.clone());
            tokio::spawn(async move {
                let read = reporter.read_reports(&ask.instance_id);
                let outcome = match tokio::time::timeout(READ_TIMEOUT, read).await {
                    Ok(Ok(nodes)) => {
                        // An error means that the stream has ended, so nobody waits for the report.
                        let _ = send.send(Report { ask: ask.ask, nodes }).await;
                        "told"
                    }
                    Ok(Err(error)) => {
                        tracing::warn!(%error, instance = ask.instance_id, "a Node object could not be read: nothing is reported");
                        "failed"
                    }
                    Err(_) => "late",
                };
                Metrics::count(&reporter.metrics.kubelet_reports, outcome);
            });
        }
        Ok(())
    }

    /// Returns the reports of all Node objects of the instance, each read from the API server; the
    /// table only tells which objects these are.
    ///
    /// # Errors
    /// The API server's error.
    pub async fn read_reports(&self, instance: &str) -> Result<Vec<Node>, kube::Error> {
        if !self.tables.nodes.is_complete() {
            return Err(kube::Error::Service("the nodes have not been listed yet".into()));
        }
        let is_of_instance =
            |row: &NodeRow| self.tables.instance_of(row).as_deref() == Some(instance);
        let mut nodes = Vec::new();
        for listed in self.tables.nodes.filter(is_of_instance) {
            let Some(object) = self.api.get_opt(&listed.name).await? else {
                continue;
            };
            let row = NodeRow::from_node(&object)?;
            let csi_node = match row.lacks_provider_id {
                true => self.csi_nodes.get_opt(&row.name).await?.and_then(Watched::row),
                false => None,
            };
            nodes.push(self.node_report(object, row, csi_node.as_deref()));
        }
        Ok(nodes)
    }

    fn node_report(&self, object: core::Node, row: NodeRow, csi_node: Option<&CsiNodeRow>) -> Node {
        let status = object.status.unwrap_or_default();
        let age = self.ages.age(&row.name);
        let attached = status.volumes_attached.into_iter().flatten();
        let csi_node_id = csi_node.and_then(|csi_node| csi_node.instance_of(&row.uid));
        Node {
            provider_id: object.spec.and_then(|spec| spec.provider_id).unwrap_or_default(),
            csi_node_id: csi_node_id.unwrap_or_default().to_owned(),
            ready: row.node.ready == Readiness::Ready,
            lease_age_ms: age.and_then(|age| u64::try_from(age.as_millis()).ok()),
            volumes_in_use: status.volumes_in_use.unwrap_or_default(),
            volumes_attached: attached.map(|volume| volume.name).collect(),
            boot_id: row.node.boot,
            name: row.name,
        }
    }
}
