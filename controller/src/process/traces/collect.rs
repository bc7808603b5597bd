//! Turns the spans `rpc` and `ec2` into records.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use super::record::{CLIENT, KeyValue, Record, SERVER, Status};

/// A layer of the log that records the spans.
#[derive(Debug)]
pub struct Collect {
    records: mpsc::Sender<Record>,
    ids: Ids,
}

/// Liveness calls, which would fill a collector.
const UNRECORDED_METHODS: [&str; 3] = ["Identity/Probe", "GetCapabilities", "Health/Check"];

impl Collect {
    pub(super) fn new(records: mpsc::Sender<Record>) -> Self {
        Self { records, ids: Ids::default() }
    }
}

impl<S> Layer<S> for Collect
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else {
            return;
        };
        let kind = match span.name() {
            "rpc" => SERVER,
            "ec2" => CLIENT,
            _ => return,
        };
        let parent = span.scope().skip(1).find_map(|outer| {
            let extensions = outer.extensions();
            let record = extensions.get::<Record>()?;
            Some((record.trace_id.clone(), record.span_id.clone()))
        });
        let (trace_id, parent_span_id) = parent.unwrap_or_else(|| {
            let mut trace_id = self.ids.next();
            trace_id.extend(self.ids.next());
            (trace_id, Vec::new())
        });
        let mut record = Record {
            trace_id,
            span_id: self.ids.next(),
            parent_span_id,
            kind,
            start: now(),
            ..Record::default()
        };
        attributes.record(&mut Fields(&mut record));
        span.extensions_mut().insert(record);
    }

    fn on_record(&self, id: &Id, values: &tracing::span::Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(record) = span.extensions_mut().get_mut::<Record>()
        {
            values.record(&mut Fields(record));
        }
    }

    /// Handles the event that ends a call: records its outcome, and the time at which the caller
    /// had the answer.
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let Some(span) = context.event_span(event) else {
            return;
        };
        let mut extensions = span.extensions_mut();
        let Some(record) = extensions.get_mut::<Record>() else {
            return;
        };
        if event.metadata().fields().field("outcome").is_some() {
            event.record(&mut Fields(record));
            record.end = now();
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let record = context.span(&id).and_then(|span| span.extensions_mut().remove::<Record>());
        let Some(mut record) = record else {
            return;
        };
        if record.end == 0 {
            record.end = now();
        }
        if !UNRECORDED_METHODS.iter().any(|method| record.name.ends_with(method)) {
            // When the queue is full, the collector does not answer, and the record is lost.
            let _ = self.records.try_send(record);
        }
    }
}

struct Fields<'a>(&'a mut Record);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            // csi.v1.Controller/CreateVolume, DescribeVolumes
            "method" | "action" => value.clone_into(&mut self.0.name),
            "error" => {
                self.0.status = Some(Status { message: value.to_owned(), code: 2 });
            }
            "message" | "id" | "milliseconds" => {}
            "outcome" => self.0.attributes.push(KeyValue::new("rpc.response.status_code", value)),
            "request_id" => self.0.attributes.push(KeyValue::new("aws.request_id", value)),
            name => self.0.attributes.push(KeyValue::new(name, value)),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Ids that differ from those of every other process: hashes under a key that the standard library
/// draws from the kernel.
#[derive(Debug, Default)]
struct Ids {
    key: RandomState,
    next: AtomicU64,
}

impl Ids {
    fn next(&self) -> Vec<u8> {
        let mut hasher = self.key.build_hasher();
        hasher.write_u64(self.next.fetch_add(1, Ordering::Relaxed));
        // An id of zeros means no id.
        hasher.finish().max(1).to_be_bytes().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    fn collected(work: impl FnOnce()) -> Vec<Record> {
        let (records, mut queue) = mpsc::channel(8);
        let subscriber = tracing_subscriber::registry().with(Collect::new(records));
        tracing::subscriber::with_default(subscriber, work);
        std::iter::from_fn(|| queue.try_recv().ok()).collect()
    }

    #[test]
    fn ec2_span_is_child_of_csi_call_span() {
        let records = collected(|| {
            let rpc = tracing::info_span!(
                "rpc",
                method = "csi.v1.Controller/CreateVolume",
                volume.id = tracing::field::Empty
            );
            let _rpc = rpc.enter();
            tracing::info_span!("other").in_scope(|| {
                let ec2 = tracing::debug_span!(
                    "ec2",
                    action = "CreateVolume",
                    request_id = tracing::field::Empty,
                    error = tracing::field::Empty
                );
                ec2.record("request_id", "r-1");
                ec2.record("error", "no");
            });
            rpc.record("volume.id", "vol-1");
            tracing::warn!(outcome = "Internal", error = "no", "rpc");
        });
        let [ec2, rpc] = records.as_slice() else { panic!("{records:?}") };
        assert_eq!((rpc.name.as_str(), rpc.kind), ("csi.v1.Controller/CreateVolume", SERVER));
        assert_eq!((ec2.name.as_str(), ec2.kind), ("CreateVolume", CLIENT));
        assert_eq!((&ec2.trace_id, &ec2.parent_span_id), (&rpc.trace_id, &rpc.span_id));
        assert_eq!((rpc.trace_id.len(), rpc.span_id.len(), rpc.parent_span_id.len()), (16, 8, 0));
        assert_ne!(ec2.span_id, rpc.span_id);
        assert_eq!(ec2.attributes, [KeyValue::new("aws.request_id", "r-1")]);
        assert!(rpc.attributes.contains(&KeyValue::new("volume.id", "vol-1")));
        assert!(rpc.attributes.contains(&KeyValue::new("rpc.response.status_code", "Internal")));
        assert_eq!(ec2.status, Some(Status { message: "no".to_owned(), code: 2 }));
        assert!(rpc.end >= rpc.start && rpc.start > 0);
    }

    #[test]
    fn probe_and_other_spans_are_not_recorded() {
        let records = collected(|| {
            drop(tracing::info_span!("rpc", method = "csi.v1.Identity/Probe"));
            drop(tracing::info_span!("something", method = "else"));
        });
        assert_eq!(records, []);
    }
}
