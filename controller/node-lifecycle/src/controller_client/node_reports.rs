//! What nodes know of volumes: the controller asks about a volume at an instance, and this process
//! reads the Node object from the API server, then asks the node's agent, and answers. Where only
//! the node's promise can free the volume, it requests the promise; the controller asks again.
//!
//! Every replica does so for the controller in its own pod, whichever replica leads.

use std::sync::Arc;
use std::time::Duration;

use ebs_csi_proto::safe_detach::agent::State;
use ebs_csi_proto::safe_detach::{Ask, Node, Report};
use ebs_csi_safe_detach::{
    Agent, AgentAnswer, AttachTime, Fact, KernelState, NodeEvidence, NodeReport, OldAgents,
    node_evidence,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use kube::Api;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

use super::agent_page::{AgentPages, NodeAgent};
use super::promise_requests::PromiseRequests;
use crate::cluster::{AgentPodRow, CsiNodeRow, LeaseAges, NodeRow, Table, Watched};
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

/// Answers the controller's questions about nodes.
#[derive(Clone)]
pub struct NodeReports {
    context: Context,
    ages: Arc<LeaseAges>,
    pages: AgentPages,
    promises: PromiseRequests,
    /// Whether the controller's stream of questions is open.
    pub controller_listens: watch::Sender<bool>,
}

impl NodeReports {
    /// Creates the reporter from its parts; `pods` are the node-agents' pods, by namespace.
    pub fn new(
        context: &Context,
        ages: Arc<LeaseAges>,
        pods: Vec<Arc<Table<AgentPodRow>>>,
    ) -> Self {
        Self {
            pages: AgentPages::new(pods.clone()),
            promises: PromiseRequests::new(context, pods),
            context: context.clone(),
            ages,
            controller_listens: watch::Sender::new(false),
        }
    }

    /// Returns the task that takes off requests for promises that nobody needs any more.
    pub(crate) fn promises(&self) -> PromiseRequests {
        self.promises.clone()
    }

    /// Answers for ever; opens the stream again when it ends.
    ///
    /// A controller with safe detach off never asks: that is logged once, and the attempts become
    /// less and less frequent.
    pub async fn run(self) {
        tokio::spawn(self.pages.clone().wait_for_page());
        let mut pause = FIRST_PAUSE;
        let mut last_logged = None;
        loop {
            let ended = self.answer().await;
            self.context.metrics.connected.set(0);
            if self.controller_listens.send_replace(false) {
                (pause, last_logged) = (FIRST_PAUSE, None);
            }
            let why = match ended {
                Ok(()) => "it ended the stream".to_owned(),
                Err(status) => format!("{:?}: {}", status.code(), status.message()),
            };
            if last_logged.as_ref() == Some(&why) {
                tracing::debug!(why, "the controller does not ask for nodes' answers yet");
            } else {
                tracing::info!(
                    why,
                    "the controller does not ask for nodes' answers; later attempts to connect are logged at debug level (with --safe-detach=off it never asks)"
                );
            }
            last_logged = Some(why);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn answer(&self) -> Result<(), tonic::Status> {
        let (send, reports) = mpsc::channel(QUEUE_LENGTH);
        let stream = ReceiverStream::new(reports);
        let mut questions = self.context.controller.client().observe(stream).await?.into_inner();
        tracing::info!("the controller may ask for nodes' answers");
        self.context.metrics.connected.set(1);
        self.controller_listens.send_replace(true);
        while let Some(ask) = questions.message().await? {
            let (reporter, send) = (self.clone(), send.clone());
            tokio::spawn(async move {
                let read = reporter.read_reports(&ask.instance_id);
                let outcome = match tokio::time::timeout(READ_TIMEOUT, read).await {
                    Ok(Ok(mut nodes)) => {
                        let agent = reporter.ask_agent(&mut nodes, &ask).await;
                        let wants_promise = wants_promise(&nodes, &ask);
                        // An error means that the stream has ended, so nobody waits for the report.
                        let _ = send.send(Report { ask: ask.ask, nodes }).await;
                        if wants_promise && let NodeAgent::WithPage(pod, _) = &agent {
                            let attached_at = &ask.attached_at;
                            reporter.promises.request(pod, &ask.volume_id, attached_at).await;
                        }
                        "answered"
                    }
                    Ok(Err(error)) => {
                        tracing::warn!(%error, instance = ask.instance_id, "a Node object could not be read: nothing is reported");
                        "failed"
                    }
                    Err(_) => "late",
                };
                Metrics::count(&reporter.context.metrics.node_answers, outcome);
            });
        }
        Ok(())
    }

    /// Asks the agent of the only node about the volume; fills in its answer, and returns the
    /// agent. The Node object has been read before, so that nothing which kubelet began before the
    /// agent's answer is overlooked.
    async fn ask_agent(&self, nodes: &mut [Node], ask: &Ask) -> NodeAgent {
        let [node] = nodes else { return NodeAgent::Unknown };
        // A controller of an earlier release asks about no volume.
        if ask.volume_id.is_empty() {
            return NodeAgent::Unknown;
        }
        let agent = self.pages.agent_of(&node.name);
        node.agent = Some(self.pages.ask(&agent, &ask.volume_id, &ask.attached_at).await);
        agent
    }

    /// Returns what is known of a volume at an instance whose Node objects were read, to tell
    /// whether another attempt to detach it can succeed.
    pub(crate) async fn evidence(
        &self,
        mut nodes: Vec<Node>,
        instance: &str,
        volume: &str,
    ) -> Fact<NodeEvidence> {
        let ask = Ask {
            instance_id: instance.to_owned(),
            volume_id: volume.to_owned(),
            ..Ask::default()
        };
        self.ask_agent(&mut nodes, &ask).await;
        evidence_about(&nodes, &ask)
    }

    /// Returns the reports of all Node objects of the instance, each read from the API server; the
    /// table only tells which objects these are.
    ///
    /// # Errors
    /// The API server's error.
    pub async fn read_reports(&self, instance: &str) -> Result<Vec<Node>, kube::Error> {
        let Context { client, tables, .. } = &self.context;
        if !tables.nodes.is_complete() {
            return Err(kube::Error::Service("the nodes have not been listed yet".into()));
        }
        let api: Api<core::Node> = Api::all(client.clone());
        let csi_nodes: Api<Watched<CsiNodeRow>> = Api::all(client.clone());
        let is_of_instance = |row: &NodeRow| tables.instance_of(row).as_deref() == Some(instance);
        let mut nodes = Vec::new();
        for listed in tables.nodes.filter(is_of_instance) {
            let Some(object) = api.get_opt(&listed.name).await? else {
                continue;
            };
            let row = NodeRow::from_node(&object)?;
            let csi_node = match row.lacks_provider_id {
                true => csi_nodes.get_opt(&row.name).await?.and_then(Watched::row),
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
        let created = object.metadata.creation_timestamp.map(|created| created.0.as_second());
        let csi_node_id = csi_node.and_then(|csi_node| csi_node.instance_of(&row.uid));
        Node {
            provider_id: object.spec.and_then(|spec| spec.provider_id).unwrap_or_default(),
            csi_node_id: csi_node_id.unwrap_or_default().to_owned(),
            ready: row.node.ready,
            lease_age_ms: age.and_then(|age| u64::try_from(age.as_millis()).ok()),
            volumes_in_use: status.volumes_in_use.unwrap_or_default(),
            volumes_attached: attached.map(|volume| volume.name).collect(),
            boot_id: row.node.boot,
            created,
            // The agent is asked later.
            agent: None,
            name: row.name,
        }
    }
}

/// Returns what the reports say of the volume of a question.
pub(crate) fn evidence_about(nodes: &[Node], ask: &Ask) -> Fact<NodeEvidence> {
    let (Ok(instance), Ok(volume)) = (ask.instance_id.parse(), ask.volume_id.parse()) else {
        return Fact::Unknown;
    };
    let since = ask.attached_at.parse::<Timestamp>().ok().map(|at| AttachTime {
        seconds: at.as_second(),
        nanoseconds: u32::try_from(at.subsec_nanosecond()).unwrap_or_default(),
    });
    let reports: Vec<NodeReport> = nodes.iter().map(report).collect();
    let old_agents = OldAgents::KubeletReport;
    node_evidence(&reports, &instance, &volume, since, Duration::ZERO, old_agents)
}

fn wants_promise(nodes: &[Node], ask: &Ask) -> bool {
    // The promise is about an attachment, which only its time names.
    !ask.attached_at.is_empty()
        && evidence_about(nodes, ask) == Fact::Present(NodeEvidence::PromiseNeeded)
}

fn report(node: &Node) -> NodeReport {
    NodeReport {
        provider_id: node.provider_id.clone(),
        csi_node_id: node.csi_node_id.clone(),
        boot_id: node.boot_id.clone(),
        created: node.created,
        ready: node.ready,
        lease_age: node.lease_age_ms.map(Duration::from_millis),
        in_use: node.volumes_in_use.clone(),
        attached: node.volumes_attached.clone(),
        agent: node.agent.as_ref().map_or(Agent::Silent, |agent| {
            let state = match agent.state() {
                State::Unspecified => return Agent::Silent,
                State::WithoutPage => return Agent::WithoutPage,
                State::Held => KernelState::Held,
                State::Busy => KernelState::Busy,
                State::Free => KernelState::Free,
                State::NoDisk => KernelState::NoDisk,
            };
            Agent::Answered(AgentAnswer {
                instance: agent.instance_id.clone(),
                boot_id: agent.boot_id.clone(),
                state,
                promised: agent.promised,
            })
        }),
    }
}

#[cfg(test)]
mod tests {
    use ebs_csi_proto::safe_detach as wire;

    use super::*;

    fn ask() -> Ask {
        Ask {
            ask: 1,
            instance_id: "i-0123456789abcdef0".to_owned(),
            volume_id: "vol-0123456789abcdef0".to_owned(),
            attached_at: "2026-01-01T00:00:00Z".to_owned(),
        }
    }

    fn node(state: State) -> Node {
        let instance_id = ask().instance_id;
        Node {
            provider_id: format!("aws:///us-east-1a/{instance_id}"),
            boot_id: "boot-1".to_owned(),
            ready: true,
            lease_age_ms: Some(1),
            created: Some(0),
            agent: Some(wire::Agent {
                state: state.into(),
                instance_id,
                boot_id: "boot-1".to_owned(),
                promised: false,
            }),
            ..Node::default()
        }
    }

    /// A wanted volume that is free, or one at a young node, needs the promise; nothing else does.
    #[test]
    fn promise_is_requested_only_where_it_can_free() {
        let wanted = || vec!["x^vol-0123456789abcdef0".to_owned()];
        let rows: [(bool, Node); 7] = [
            (false, node(State::Free)),
            (true, Node { volumes_in_use: wanted(), ..node(State::Free) }),
            (true, Node { created: Some(1_767_225_600), ..node(State::Free) }),
            (true, node(State::NoDisk)),
            (false, Node { volumes_in_use: wanted(), ..node(State::Held) }),
            (false, Node { volumes_attached: wanted(), ..node(State::Free) }),
            (false, Node { volumes_in_use: wanted(), ..node(State::WithoutPage) }),
        ];
        for (wants, node) in rows {
            assert_eq!(wants_promise(std::slice::from_ref(&node), &ask()), wants, "{node:?}");
        }
        let timeless = Ask { attached_at: String::new(), ..ask() };
        assert!(!wants_promise(&[node(State::NoDisk)], &timeless));
    }

    #[test]
    fn agent_of_earlier_release_leaves_kubelets_report() {
        let about = |node: Node| evidence_about(&[node], &ask());
        let old = || node(State::WithoutPage);
        assert_eq!(about(old()), Fact::Present(NodeEvidence::ReleasedByKubelet));
        assert_eq!(about(Node { ready: false, ..old() }), Fact::Present(NodeEvidence::NotReady));
        assert_eq!(about(Node { lease_age_ms: None, ..old() }), Fact::Unknown);
        assert_eq!(about(Node { provider_id: String::new(), ..old() }), Fact::Unknown);
        assert_eq!(about(Node { agent: None, ..old() }), Fact::Unknown, "nobody was asked");
        assert_eq!(about(node(State::Unspecified)), Fact::Unknown);
        assert_eq!(evidence_about(&[], &ask()), Fact::Absent);
    }
}
