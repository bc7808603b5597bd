//! Events on nodes: one for each change of what there is to say.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

/// The longest note that the API takes, in bytes.
const NOTE_LIMIT: usize = 1000;

/// What is said of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tale {
    /// Nothing proves that its volumes may leave it.
    Unproven,
    /// Its instance is off: it has our taint.
    ProvenDown,
    /// The taint was lifted.
    TaintRemoved,
    /// Pods or attachments of it were deleted.
    FailedOver,
    /// It could be acted on, and is not.
    Held,
    /// Its instance is being stopped or terminated.
    Fenced,
    /// Its instance could not be stopped or terminated.
    FenceFailed,
}

impl Tale {
    const fn reason(self) -> &'static str {
        match self {
            Self::Unproven => "SafeDetachUnproven",
            Self::ProvenDown => "NodeProvenDown",
            Self::TaintRemoved => "OutOfServiceTaintRemoved",
            Self::FailedOver => "FailoverActed",
            Self::Held => "FailoverHeld",
            Self::Fenced => "FenceRequested",
            Self::FenceFailed => "FenceFailed",
        }
    }

    const fn kind(self) -> EventType {
        match self {
            Self::Unproven | Self::ProvenDown | Self::Held | Self::Fenced | Self::FenceFailed => {
                EventType::Warning
            }
            Self::TaintRemoved | Self::FailedOver => EventType::Normal,
        }
    }
}

/// Says it, once for each change.
pub struct Teller {
    recorder: Recorder,
    last: Mutex<HashMap<String, (Tale, String)>>,
}

impl Teller {
    /// As that replica.
    pub fn new(client: Client, identity: String) -> Self {
        let reporter = Reporter {
            controller: "ebs.csi.aws.com/node-lifecycle".to_owned(),
            instance: Some(identity),
        };
        Self {
            recorder: Recorder::new(client, reporter),
            last: Mutex::default(),
        }
    }

    /// An event on the node, unless it is what was said last.
    pub async fn tell(&self, node: &str, uid: &str, tale: Tale, note: &str) {
        let note: String = note.chars().take(NOTE_LIMIT / 4).collect();
        {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            let said = (tale, note.clone());
            if last.get(node) == Some(&said) {
                return;
            }
            last.insert(node.to_owned(), said);
        }
        tracing::info!(node, reason = tale.reason(), note, "failover");
        let event = Event {
            type_: tale.kind(),
            reason: tale.reason().to_owned(),
            note: Some(note),
            action: "Failover".to_owned(),
            secondary: None,
        };
        let reference = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        if let Err(error) = self.recorder.publish(&event, &reference).await {
            tracing::warn!(node, %error, "the event could not be written");
        }
    }

    /// The nodes of which there is nothing to say any more are forgotten.
    pub fn keep_only(&self, still: impl Fn(&str) -> bool) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.retain(|node, _| still(node));
    }
}
