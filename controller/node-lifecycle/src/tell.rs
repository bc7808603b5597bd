//! Events: one for each change of what there is to say.
//!
//! They are written one after the other beside the rounds, so that nothing that is to be done waits for what is to be said.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;

/// The longest note that the API takes, in bytes.
const NOTE_LIMIT: usize = 1000;
/// Events that wait to be written.
const WAITING: usize = 1024;
/// Places for what is said once. What is true for longer is said at the next round when it finds none.
const KEPT_FREE: usize = 256;

/// Whom it is said of.
#[derive(Clone, Debug)]
pub enum About {
    /// A node.
    Node {
        /// Its name.
        name: String,
        /// Its object's uid; empty when that is gone.
        uid: String,
    },
    /// A VolumeAttachment.
    Attachment {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
}

impl About {
    const fn parts(&self) -> (&'static str, &'static str, &String, &String) {
        match self {
            Self::Node { name, uid } => ("v1", "Node", name, uid),
            Self::Attachment { name, uid } => ("storage.k8s.io/v1", "VolumeAttachment", name, uid),
        }
    }

    fn reference(&self) -> ObjectReference {
        let (version, kind, name, uid) = self.parts();
        ObjectReference {
            api_version: Some(version.to_owned()),
            kind: Some(kind.to_owned()),
            name: Some(name.clone()),
            uid: Some(uid.clone()),
            ..ObjectReference::default()
        }
    }
}

/// What is said of it.
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
    /// Its instance runs and may be fenced, and is left alone.
    FenceHeld,
    /// Its instance is being stopped or terminated.
    Fenced,
    /// It is stopped or terminated, as it was asked to be.
    FenceSucceeded,
    /// Its instance could not be stopped or terminated.
    FenceFailed,
    /// The attachment's end was asked for and refused.
    Refused,
    /// A person ordered the attachment's end, whatever is known.
    GlassBroken,
}

impl Tale {
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
            Self::GlassBroken => "BreakGlassUsed",
        }
    }

    /// Whether the next round says it again when it is still so.
    const fn lasts(self) -> bool {
        matches!(
            self,
            Self::Unproven | Self::Held | Self::FenceHeld | Self::Refused
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
            | Self::GlassBroken => EventType::Warning,
            Self::TaintRemoved | Self::FailedOver | Self::FenceSucceeded => EventType::Normal,
        }
    }
}

/// What was said last, by kind and name.
type Last = HashMap<(&'static str, String), (About, Tale, String)>;

/// Says it, once for each change.
#[derive(Debug)]
pub struct Teller {
    events: mpsc::Sender<(ObjectReference, Event)>,
    last: Mutex<Last>,
}

/// Writes down what was said.
pub struct Telling {
    client: Client,
    reporter: Reporter,
    events: mpsc::Receiver<(ObjectReference, Event)>,
}

impl Teller {
    /// As that replica. The events are written while [`Telling::run`] runs.
    pub fn new(client: Client, identity: String) -> (Self, Telling) {
        let reporter = Reporter {
            controller: "ebs.csi.aws.com/node-lifecycle".to_owned(),
            instance: Some(identity),
        };
        let (events, said) = mpsc::channel(WAITING);
        let last = Mutex::default();
        let telling = Telling {
            client,
            reporter,
            events: said,
        };
        (Self { events, last }, telling)
    }

    /// An event about it, unless it is what was said last.
    pub fn tell(&self, about: About, tale: Tale, note: &str) {
        let note: String = note.chars().take(NOTE_LIMIT / 4).collect();
        let (_, kind, name, _) = about.parts();
        let key = (kind, name.clone());
        let mut last = self.last();
        if let Some((_, said, text)) = last.get(&key)
            && (*said, text) == (tale, &note)
        {
            return;
        }
        let event = Event {
            type_: tale.kind(),
            reason: tale.reason().to_owned(),
            note: Some(note.clone()),
            action: "Failover".to_owned(),
            secondary: None,
        };
        let crowded = tale.lasts() && self.events.capacity() <= KEPT_FREE;
        if crowded || self.events.try_send((about.reference(), event)).is_err() {
            tracing::debug!(kind, name, reason = tale.reason(), "no place for the event");
            return;
        }
        tracing::info!(kind, name, reason = tale.reason(), note, "failover");
        last.insert(key, (about, tale, note));
    }

    /// Those of whom there is nothing to say any more are forgotten.
    pub fn keep_only(&self, still: impl Fn(&About) -> bool) {
        self.last().retain(|_, (about, _, _)| still(about));
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Telling {
    /// Writes events until nobody says anything any more.
    pub async fn run(mut self) {
        while let Some((about, event)) = self.events.recv().await {
            // A new one each time: a recorder counts an event of the same reason with its last one, and that keeps its former note.
            let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
            if let Err(error) = recorder.publish(&event, &about).await {
                tracing::warn!(name = about.name, %error, "the event could not be written");
            }
        }
    }
}
