//! Events: one for each change of the state that is reported.
//!
//! A separate task writes the events one after another, so that no act waits for an event.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;

/// The longest note that the API accepts, in bytes.
const NOTE_LIMIT: usize = 1000;
/// Most events that wait to be written.
const QUEUE_LENGTH: usize = 1024;
/// Queue places that are reserved for events which are sent only once. Other events are sent again
/// in the next round when they find no place.
const RESERVED_PLACES: usize = 256;

/// The object of an event. The uid of a node is empty when its object is gone.
#[derive(Clone, Debug)]
pub(crate) enum EventSubject {
    Node { name: String, uid: String },
    Pod { namespace: String, name: String, uid: String },
    Attachment { name: String, uid: String },
}

impl EventSubject {
    fn reference(&self) -> ObjectReference {
        let (version, kind, namespace, name, uid) = match self {
            Self::Node { name, uid } => ("v1", "Node", None, name, uid),
            Self::Pod { namespace, name, uid } => ("v1", "Pod", Some(namespace), name, uid),
            Self::Attachment { name, uid } => {
                ("storage.k8s.io/v1", "VolumeAttachment", None, name, uid)
            }
        };
        ObjectReference {
            api_version: Some(version.to_owned()),
            kind: Some(kind.to_owned()),
            namespace: namespace.cloned(),
            name: Some(name.clone()),
            uid: Some(uid.clone()),
            ..ObjectReference::default()
        }
    }
}

/// The content of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventReason {
    /// Nothing proves that the node's volumes may leave it.
    Unproven,
    /// The node's instance is off, and the node has the driver's taint.
    ProvenDown,
    /// The taint was removed.
    TaintRemoved,
    /// Pods or attachments of the node were deleted.
    FailedOver,
    /// The node could be acted on, and is held.
    Held,
    /// The node's instance runs and may be fenced, and is left alone.
    FenceHeld,
    /// The node's instance is being stopped or terminated.
    Fenced,
    /// The node's instance is stopped or terminated, as requested.
    FenceSucceeded,
    /// The node's instance could not be stopped or terminated.
    FenceFailed,
    /// The detach was requested and refused.
    Refused,
    /// The pod cannot start before a detach that is refused.
    PodWaits,
    /// A person ordered the detach without evidence.
    OverrideOrdered,
    /// The node-agent's pod lacks a fact about its node, and the Node object lacks it, too.
    FactsUnknown,
}

impl EventReason {
    const fn reason(self) -> &'static str {
        match self {
            Self::Unproven => "SafeDetachUnproven",
            Self::ProvenDown => "NodeProvenDown",
            Self::TaintRemoved => "OutOfServiceTaintRemoved",
            Self::FailedOver => "FailoverActed",
            Self::Held => "FailoverHeld",
            Self::FenceHeld => "FenceHeld",
            Self::Fenced => "FenceRequested",
            Self::FenceSucceeded => "FenceSucceeded",
            Self::FenceFailed => "FenceFailed",
            Self::Refused => "SafeDetachRefused",
            Self::PodWaits => "WaitsForRefusedDetach",
            Self::OverrideOrdered => "BreakGlassUsed",
            Self::FactsUnknown => "NodeFactsUnknown",
        }
    }

    /// Returns what this process was doing.
    const fn action(self) -> &'static str {
        match self {
            Self::FactsUnknown => "Onboarding",
            _ => "Failover",
        }
    }

    /// Returns whether each round sends the event again while its reason lasts.
    const fn is_sent_each_round(self) -> bool {
        matches!(
            self,
            Self::Unproven
                | Self::Held
                | Self::FenceHeld
                | Self::Refused
                | Self::PodWaits
                | Self::FactsUnknown
        )
    }

    const fn kind(self) -> EventType {
        match self {
            Self::Unproven
            | Self::ProvenDown
            | Self::Held
            | Self::FenceHeld
            | Self::Fenced
            | Self::FenceFailed
            | Self::Refused
            | Self::PodWaits
            | Self::OverrideOrdered
            | Self::FactsUnknown => EventType::Warning,
            Self::TaintRemoved | Self::FailedOver | Self::FenceSucceeded => EventType::Normal,
        }
    }
}

/// The last event of each object, by kind, namespace and name.
type LastEvents = HashMap<[String; 3], (EventSubject, EventReason, String)>;

/// Queues events, one for each change.
#[derive(Debug)]
pub struct EventSender {
    events: mpsc::Sender<(ObjectReference, Event)>,
    last: Mutex<LastEvents>,
}

/// Writes the queued events.
pub struct EventWriter {
    client: Client,
    reporter: Reporter,
    events: mpsc::Receiver<(ObjectReference, Event)>,
}

impl EventSender {
    /// Creates both parts for a replica with this identity. The events are written while
    /// [`EventWriter::run`] runs.
    pub fn new(client: Client, identity: String) -> (Self, EventWriter) {
        let reporter = Reporter {
            controller: "ebs.csi.aws.com/node-lifecycle".to_owned(),
            instance: Some(identity),
        };
        let (events, queued) = mpsc::channel(QUEUE_LENGTH);
        let last = Mutex::default();
        let writer = EventWriter { client, reporter, events: queued };
        (Self { events, last }, writer)
    }

    /// Queues an event about the object, unless it equals the object's last event.
    pub(crate) fn send(&self, subject: EventSubject, reason: EventReason, note: &str) {
        let note = &note[..note.floor_char_boundary(NOTE_LIMIT)];
        let reference = subject.reference();
        let kind = reference.kind.clone().unwrap_or_default();
        let name = reference.name.clone().unwrap_or_default();
        let namespace = reference.namespace.clone().unwrap_or_default();
        let key = [kind.clone(), namespace, name.clone()];
        let mut last = self.last();
        if let Some((_, last_reason, last_note)) = last.get(&key)
            && (*last_reason, last_note.as_str()) == (reason, note)
        {
            return;
        }
        let event = Event {
            type_: reason.kind(),
            reason: reason.reason().to_owned(),
            note: Some(note.to_owned()),
            action: reason.action().to_owned(),
            secondary: None,
        };
        let lacks_place = reason.is_sent_each_round() && self.events.capacity() <= RESERVED_PLACES;
        if lacks_place || self.events.try_send((reference, event)).is_err() {
            tracing::debug!(
                kind,
                name,
                reason = reason.reason(),
                "the queue has no place for the event"
            );
            return;
        }
        tracing::info!(kind, name, reason = reason.reason(), note, "event");
        last.insert(key, (subject, reason, note.to_owned()));
    }

    /// Forgets the last events of all other objects.
    pub(crate) fn retain(&self, is_reported: impl Fn(&EventSubject, EventReason) -> bool) {
        self.last().retain(|_, (subject, reason, _)| is_reported(subject, *reason));
    }

    fn last(&self) -> MutexGuard<'_, LastEvents> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventWriter {
    /// Writes events until the sender is dropped.
    pub async fn run(mut self) {
        while let Some((subject, event)) = self.events.recv().await {
            // Uses a new recorder for each event: a recorder merges an event with its last one of
            // the same reason, and the merged event keeps the former note.
            let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
            if let Err(error) = recorder.publish(&event, &subject).await {
                tracing::warn!(name = subject.name, %error, "the event could not be written");
            }
        }
    }
}
