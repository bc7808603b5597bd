//! What the controller says of the nodes' instance types.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ebs_csi_proto::keys::{AttachLimit, NodeFact};
use ebs_csi_proto::lock;
use tonic::Code;

use crate::cluster::NodeRow;
use crate::controller_client::{Controller, Slots};

/// Pause before another question about a type of which nothing was learned.
const AGAIN: Duration = Duration::from_secs(10);

/// The types of the present nodes. Clones share their state.
#[derive(Clone, Debug, Default)]
pub(super) struct InstanceTypes(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    by_type: HashMap<String, Type>,
    /// Why the last question had no answer.
    last_failure: Option<Code>,
}

#[derive(Debug, Default)]
struct Type {
    slots: Option<Slots>,
    /// When the controller is asked again; `None` while it is being asked.
    ask_again: Option<Instant>,
}

impl InstanceTypes {
    /// Has the controller asked about those of the types that are not known, and forgets all
    /// others. Does not wait for the answer.
    pub(super) fn ask(&self, controller: &Controller, types: &BTreeSet<&str>) {
        let now = Instant::now();
        let mut known = lock(&self.0);
        known.by_type.retain(|name, _| types.contains(name.as_str()));
        let mut due = Vec::new();
        for name in types {
            let is_due =
                |of: &Type| of.slots.is_none() && of.ask_again.is_some_and(|again| again <= now);
            if known.by_type.get(*name).is_none_or(is_due) {
                due.push((*name).to_owned());
                known.by_type.insert((*name).to_owned(), Type::default());
            }
        }
        drop(known);
        if !due.is_empty() {
            let (this, controller) = (self.clone(), controller.clone());
            tokio::spawn(async move {
                let answer = controller.attach_limits(due.clone()).await;
                this.learn(&due, answer);
            });
        }
    }

    fn learn(&self, asked: &[String], answer: Result<Vec<(String, Slots)>, tonic::Status>) {
        let mut known = lock(&self.0);
        let again = Instant::now() + AGAIN;
        for name in asked {
            known.by_type.entry(name.clone()).or_default().ask_again = Some(again);
        }
        let failure = answer.as_ref().err().map(tonic::Status::code);
        let is_new = known.last_failure != failure;
        known.last_failure = failure;
        match answer {
            Ok(learned) => {
                for (name, slots) in learned {
                    tracing::info!(instance_type = name, ?slots, "EC2 says what the type takes");
                    known.by_type.entry(name).or_default().slots = Some(slots);
                }
            }
            Err(status) if is_new => tracing::info!(
                code = ?status.code(),
                text = status.message(),
                "the controller does not say how many volumes instance types take; it is asked again"
            ),
            Err(_) => {}
        }
    }

    /// Returns the limit of a node's instance, where it and its type's slots are known.
    pub(super) fn limit_of(&self, node: &NodeRow) -> Option<AttachLimit> {
        let instance = node.fact(NodeFact::Instance).parse().ok()?;
        let instance_type = node.fact(NodeFact::InstanceType);
        let slots = lock(&self.0).by_type.get(instance_type)?.slots?;
        AttachLimit::new(slots.count, slots.shared, instance_type, instance)
    }
}
