//! Events: one for each change of the state that is reported.
//!
//! A separate task writes the events one after another, so that no act waits for an event.

use std::collections::HashMap;
use std::sync::Mutex;

use ebs_csi_proto::lock;
use ebs_csi_safe_detach::Refusal;
use ebs_csi_wire::listed_enum;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;

/// The longest note that the API accepts, in bytes.
const NOTE_LIMIT: usize = 1000;
const QUEUE_LENGTH: usize = 1024;
/// Queue places that are reserved for events which are sent only once. Other events are sent again
/// in the next round when they find no place.
const RESERVED_PLACES: usize = 256;

pub(crate) const NODE: &str = "Node";
const POD: &str = "Pod";
pub(crate) const VOLUME_ATTACHMENT: &str = "VolumeAttachment";

/// The object of an event; its kind is that of the event's reason. The namespace is empty where the
/// kind has none, and the uid is empty when the object is gone.
#[derive(Clone, Debug)]
pub(crate) struct EventSubject {
    namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl EventSubject {
    pub(crate) fn new((namespace, name): (&str, &str), uid: &str) -> Self {
        let [namespace, name, uid] = [namespace, name, uid].map(str::to_owned);
        Self { namespace, name, uid }
    }

    fn reference(&self, kind: &str) -> ObjectReference {
        let version = if kind == VOLUME_ATTACHMENT { "storage.k8s.io/v1" } else { "v1" };
        ObjectReference {
            api_version: Some(version.to_owned()),
            kind: Some(kind.to_owned()),
            namespace: Some(self.namespace.clone()).filter(|namespace| !namespace.is_empty()),
            name: Some(self.name.clone()),
            uid: Some(self.uid.clone()),
            ..ObjectReference::default()
        }
    }
}

/// What an event with a reason says, and what a person can do.
#[derive(Debug)]
struct EventRow {
    reason: &'static str,
    object: &'static str,
    type_: EventType,
    /// Whether each round sends the event again while its reason lasts.
    is_sent_each_round: bool,
    next_step: &'static str,
}

const fn lasting(reason: &'static str, object: &'static str, next_step: &'static str) -> EventRow {
    EventRow { is_sent_each_round: true, ..warning(reason, object, next_step) }
}

const fn warning(reason: &'static str, object: &'static str, next_step: &'static str) -> EventRow {
    let (type_, is_sent_each_round) = (EventType::Warning, false);
    EventRow { reason, object, type_, is_sent_each_round, next_step }
}

/// Creates the row of an event about a Node that asks for nothing.
const fn normal(reason: &'static str) -> EventRow {
    EventRow { type_: EventType::Normal, ..warning(reason, NODE, "none") }
}

listed_enum! {
    /// The content of an event.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum EventReason with fn row -> EventRow {
        /// Nothing proves that the node's volumes may leave it.
        Unproven = lasting(
            "SafeDetachUnproven",
            NODE,
            "stop or terminate the instance if it runs, or bring the node back",
        ),
        /// The node's instance is off, and the node has the driver's taint.
        ProvenDown = warning("NodeProvenDown", NODE, "none: its pods start elsewhere"),
        /// The taint was removed.
        TaintRemoved = normal("OutOfServiceTaintRemoved"),
        /// Pods or attachments of the node were deleted.
        FailedOver = normal("FailoverActed"),
        /// The node could be acted on, and is held.
        Held = lasting(
            "FailoverHeld",
            NODE,
            "find the event's word under EBSFailoverHeld in node-lifecycle.md",
        ),
        /// The node's instance runs and may be fenced, and is left alone.
        FenceHeld = lasting("FenceHeld", NODE, "stop the instance, or bring the node back"),
        /// The node's instance is being stopped or terminated.
        Fenced = warning("FenceRequested", NODE, "none: failover follows when EC2 shows it off"),
        /// The node's instance is stopped or terminated, as requested.
        FenceSucceeded = normal("FenceSucceeded"),
        /// The node's instance could not be stopped or terminated.
        FenceFailed = warning("FenceFailed", NODE, "power the instance off by hand"),
        /// The detach was requested and refused.
        Refused = lasting(
            "SafeDetachRefused",
            VOLUME_ATTACHMENT,
            "do what `status.detachError` of the VolumeAttachment says",
        ),
        /// The pod cannot start before a detach that is refused.
        PodWaits = lasting("WaitsForRefusedDetach", POD, "do what the event says"),
        /// The annotation orders the detach without evidence.
        OverrideOrdered = warning("BreakGlassUsed", VOLUME_ATTACHMENT, "none"),
        /// The node-agent's pod lacks a fact about its node, and the Node object lacks it, too.
        FactsUnknown = lasting(
            "NodeFactsUnknown",
            POD,
            "let the cloud controller manager set the Node's zone label, or let the node-agent reach instance metadata",
        ),
    }
}

impl EventReason {
    /// Returns the kind of the event's object.
    pub(crate) const fn object(self) -> &'static str {
        self.row().object
    }

    /// Returns what this process was doing.
    const fn action(self) -> &'static str {
        match self {
            Self::FactsUnknown => "Onboarding",
            _ => "Failover",
        }
    }
}

/// Returns what this process writes into Kubernetes' objects for a person: a line for each event
/// and for each refusal that it reports, with the columns divided by tabs.
pub fn rows() -> String {
    let events = EventReason::ALL.map(|event| {
        let EventRow { reason, object, type_, next_step, .. } = event.row();
        format!("event\t{reason}\t{object}\t{type_:?}\t{}\t{next_step}\n", event.meaning())
    });
    let refusals = Refusal::ALL.map(|refusal| {
        format!("refusal\t{refusal}\t{}\t{}\n", refusal.meaning(), refusal.next_step())
    });
    [events.concat(), refusals.concat()].concat()
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
        let row = reason.row();
        let (kind, name) = (row.object, subject.name.clone());
        let key = [kind.to_owned(), subject.namespace.clone(), name.clone()];
        let mut last = lock(&self.last);
        if let Some((_, last_reason, last_note)) = last.get(&key)
            && (*last_reason, last_note.as_str()) == (reason, note)
        {
            return;
        }
        let event = Event {
            type_: row.type_,
            reason: row.reason.to_owned(),
            note: Some(note.to_owned()),
            action: reason.action().to_owned(),
            secondary: None,
        };
        let is_reserved = row.is_sent_each_round && self.events.capacity() <= RESERVED_PLACES;
        if is_reserved || self.events.try_send((subject.reference(kind), event)).is_err() {
            tracing::debug!(
                kind,
                name,
                reason = row.reason,
                "the queue has no place for the event"
            );
            return;
        }
        tracing::info!(kind, name, reason = row.reason, note, "event");
        last.insert(key, (subject, reason, note.to_owned()));
    }

    /// Forgets the last events of all other objects.
    pub(crate) fn retain(&self, is_reported: impl Fn(&EventSubject, EventReason) -> bool) {
        lock(&self.last).retain(|_, (subject, reason, _)| is_reported(subject, *reason));
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
