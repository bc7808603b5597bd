//! Simulates node-lifecycle: reads, asks the controller, acts.

use ebs_csi_safe_detach::lifecycle::brake::{NodeState, admit};
use ebs_csi_safe_detach::lifecycle::{
    Claim, FailoverMode, InstanceEvidence, Intent, Node, NodeFacts, OutOfService, Pod, step,
};
use ebs_csi_safe_detach::{Fact, Power, decide, decide_instance};

use super::{Cluster, NODES};
use crate::kubernetes_objects::{INSTANCE, VOLUME, attachment};

impl Cluster {
    pub(super) fn run_node_lifecycle(&mut self) {
        let suspect = self.not_ready_since[0].is_some() || self.is_tainted();
        if !suspect || self.pod_moved {
            return;
        }
        let facts = self.facts();
        let verdict = decide_instance(&facts.instance, facts.fence);
        let instance = InstanceEvidence::new(verdict, String::new(), Fact::Unknown);
        let key = (INSTANCE.to_owned(), VOLUME.to_owned());
        let node_facts = NodeFacts {
            object: Fact::Present(Node {
                ready: self.not_ready_since[0].is_none(),
                instance: Some(INSTANCE.to_owned()),
                boot: "boot-1".to_owned(),
                out_of_service: self.taint.clone(),
                ..Node::default()
            }),
            attachments: self.attachment.map(attachment).into_iter().collect(),
            pods: self.pod.map(pod_facts).into_iter().collect(),
            volumes: [(key, decide(&facts).into())].into(),
            instances: [(INSTANCE.to_owned(), instance)].into(),
        };
        let step = step(&node_facts, FailoverMode::ProveFirst);
        let all: Vec<NodeState> = (0..NODES)
            .map(|node| NodeState {
                name: format!("node-{node}"),
                suspect: self.not_ready_since[node].is_some(),
                acted: node == 0 && self.is_tainted(),
                wanted: node == 0 && step.intents.iter().any(Intent::is_braked),
                ..NodeState::default()
            })
            .collect();
        let admitted = !admit(&all).nodes.is_empty();
        for intent in step.intents {
            if admitted || !intent.is_braked() {
                self.act(intent);
            }
        }
    }

    pub(super) fn act(&mut self, intent: Intent) {
        match intent {
            Intent::AddTaint(about) => {
                assert_eq!(self.power, Power::Stopped, "S9: {self:?}");
                self.taint = OutOfService::Ours(about);
            }
            Intent::RemoveTaint => self.taint = OutOfService::None,
            Intent::DeletePod(_) => {
                assert!(!self.mounted, "S8: {self:?}");
                self.pods_deleted += 1;
                self.pod = None;
            }
            Intent::DeleteAttachment(_) => self.attachment = Some((true, false)),
            Intent::RetryDetach(_) => {
                self.attachment = self.attachment.map(|(deleting, _)| (deleting, true));
                self.next_call = self.now;
            }
        }
    }
}

fn pod_facts(deleting: bool) -> Pod {
    Pod {
        deleting,
        claims: vec![Claim::Ours { volume: VOLUME.to_owned(), shared: false }],
        ..Pod::default()
    }
}
