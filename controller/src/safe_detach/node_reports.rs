//! Asks what a node knows of a volume, through the observers that read Node objects and ask
//! node-agents.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebs_csi_ec2::Timestamp;
use ebs_csi_proto::lock;
use ebs_csi_proto::safe_detach::agent::State as AgentState;
use ebs_csi_proto::safe_detach::{self as wire, Ask, Node, Report};
use ebs_csi_safe_detach::{
    Agent, AgentAnswer, AttachTime, Fact, KernelState, NodeEvidence, NodeReport, OldAgents,
    node_evidence,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::request::Pair;

/// How long a detach waits for an answer. The call's own deadline is usually later; the next call
/// asks again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The most unread questions to one observer. An observer that has this many gets no more.
const MAX_UNREAD_QUESTIONS: usize = 1024;

/// The open questions, and the observers that can answer them. Clones share their state.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeReports {
    state: Arc<Mutex<State>>,
    old_agents: OldAgents,
}

#[derive(Debug, Default)]
struct State {
    /// The last number of a question or observer; each number is used once.
    last_number: u64,
    open_questions: HashMap<u64, oneshot::Sender<Vec<Node>>>,
    observers: HashMap<u64, mpsc::Sender<Ask>>,
}

/// A connected observer, which answers questions until the connection ends.
#[derive(Debug)]
pub(super) struct Observer {
    reports: NodeReports,
    number: u64,
}

/// A question, which closes on drop.
struct Question {
    reports: NodeReports,
    number: u64,
    answer: oneshot::Receiver<Vec<Node>>,
}

impl NodeReports {
    pub(crate) fn new(old_agents: OldAgents) -> Self {
        Self { old_agents, ..Self::default() }
    }

    /// Returns what the node knows of the volume, which EC2 attached at the time `since`, read
    /// after this call began; `Unknown` without an answer.
    pub(crate) async fn read(&self, pair: &Pair, since: Option<AttachTime>) -> Fact<NodeEvidence> {
        let Some(mut question) = self.send_question(pair, since) else {
            return Fact::Unknown;
        };
        let asked_at = Instant::now();
        let nodes = match tokio::time::timeout(ANSWER_TIMEOUT, &mut question.answer).await {
            Ok(Ok(nodes)) => nodes,
            // Nobody answered in time, or every observer that could have answered has left.
            Ok(Err(_)) | Err(_) => return Fact::Unknown,
        };
        let node_reports: Vec<_> = nodes.into_iter().map(report).collect();
        node_evidence(
            &node_reports,
            &pair.node,
            &pair.volume,
            since,
            asked_at.elapsed(),
            self.old_agents,
        )
    }

    /// Sends the question; `None` when no observer accepts it.
    fn send_question(&self, pair: &Pair, since: Option<AttachTime>) -> Option<Question> {
        let at = |at: AttachTime| Timestamp { seconds: at.seconds, nanoseconds: at.nanoseconds };
        let mut state = lock(&self.state);
        state.last_number += 1;
        let number = state.last_number;
        let question = Ask {
            ask: number,
            instance_id: pair.node.to_string(),
            volume_id: pair.volume.to_string(),
            // As in the publish context, by which the node knows the attachment.
            attached_at: since.map(|since| at(since).to_string()).unwrap_or_default(),
        };
        let accepted = state
            .observers
            .values()
            .filter(|observer| observer.try_send(question.clone()).is_ok())
            .count();
        if accepted == 0 {
            return None;
        }
        let (answer_sender, answer) = oneshot::channel();
        state.open_questions.insert(number, answer_sender);
        Some(Question { reports: self.clone(), number, answer })
    }

    /// Registers a new observer, and returns it with the stream of its questions.
    pub(super) fn observe(&self) -> (Observer, mpsc::Receiver<Ask>) {
        let (questions, receiver) = mpsc::channel(MAX_UNREAD_QUESTIONS);
        let mut state = lock(&self.state);
        state.last_number += 1;
        let number = state.last_number;
        state.observers.insert(number, questions);
        let reports = self.clone();
        (Observer { reports, number }, receiver)
    }
}

impl Observer {
    /// Passes on an answer. An answer to a closed question, or to none, is dropped.
    pub(super) fn report(&self, report: Report) {
        let answer_sender = lock(&self.reports.state).open_questions.remove(&report.ask);
        if let Some(answer_sender) = answer_sender {
            // The asker may have just given up.
            let _ = answer_sender.send(report.nodes);
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        lock(&self.reports.state).observers.remove(&self.number);
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        lock(&self.reports.state).open_questions.remove(&self.number);
    }
}

fn report(node: Node) -> NodeReport {
    NodeReport {
        provider_id: node.provider_id,
        csi_node_id: node.csi_node_id,
        ready: node.ready,
        lease_age: node.lease_age_ms.map(Duration::from_millis),
        in_use: node.volumes_in_use,
        attached: node.volumes_attached,
        boot_id: node.boot_id,
        created: node.created,
        // An observer of an earlier release asks no agents.
        agent: node.agent.map_or(Agent::WithoutPage, agent),
    }
}

fn agent(agent: wire::Agent) -> Agent {
    let state = match agent.state() {
        AgentState::Unspecified => return Agent::Silent,
        AgentState::WithoutPage => return Agent::WithoutPage,
        AgentState::Held => KernelState::Held,
        AgentState::Busy => KernelState::Busy,
        AgentState::Free => KernelState::Free,
        AgentState::NoDisk => KernelState::NoDisk,
    };
    let wire::Agent { instance_id: instance, boot_id, promised, .. } = agent;
    Agent::Answered(AgentAnswer { instance, boot_id, state, promised })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::tests::pair;

    fn node() -> Node {
        Node {
            provider_id: "aws:///us-east-1a/i-0aaaaaaaaaaaaaaa1".to_owned(),
            ready: true,
            lease_age_ms: Some(0),
            ..Node::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_report_with_matching_number_answers_question() {
        let reports = NodeReports::default();
        assert_eq!(reports.read(&pair(), None).await, Fact::Unknown, "nobody to ask");
        let (observer, mut questions) = reports.observe();
        let waiting = tokio::spawn({
            let reports = reports.clone();
            async move { reports.read(&pair(), None).await }
        });
        let question = questions.recv().await.unwrap();
        assert_eq!(question.instance_id, pair().node.as_str());
        // Answers to an earlier question, to a later one, and to none.
        for number in [question.ask - 1, question.ask + 1, 0] {
            observer.report(Report { ask: number, nodes: vec![node()] });
        }
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        observer.report(Report { ask: question.ask, nodes: vec![node()] });
        assert_eq!(waiting.await.unwrap(), Fact::Present(NodeEvidence::ReleasedByKubelet));
        // An observer that does not answer, and one that has left.
        assert_eq!(reports.read(&pair(), None).await, Fact::Unknown);
        drop(observer);
        assert_eq!(reports.read(&pair(), None).await, Fact::Unknown);
        assert!(lock(&reports.state).open_questions.is_empty());
    }
}
