//! JSON lines with the keys of Kubernetes' own components (`k8s.io/component-base/logs/json`): `ts`
//! (milliseconds since 1970), `caller` (directory, file and line), `msg`, `v` (except for errors)
//! and `err`. The keys `level`, the event's fields, and the fields of the enclosing spans follow.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// Formats events for a layer whose spans are formatted by `JsonFields`.
pub(super) struct KubernetesJson;

impl<S, N> FormatEvent<S, N> for KubernetesJson
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Line::default();
        let metadata = event.metadata();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        line.add("ts", now.as_micros() as f64 / 1e3);
        line.add("caller", caller(metadata));
        let mut fields = Fields::default();
        event.record(&mut fields);
        line.add("msg", fields.message);
        if let Some(verbosity) = verbosity(*metadata.level()) {
            line.add("v", verbosity);
        }
        if let Some(error) = fields.error {
            line.add("err", error);
        }
        line.add("level", metadata.level().as_str().to_lowercase());
        for (key, value) in fields.others {
            line.add(key, value);
        }
        for span in context.event_scope().into_iter().flatten() {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<N>>();
            let fields = fields.and_then(|fields| serde_json::from_str(&fields.fields).ok());
            for (key, value) in fields.unwrap_or_else(Map::new) {
                line.add(&key, value);
            }
        }
        writeln!(writer, "{{{}}}", line.text)
    }
}

/// An object whose entries keep the order in which they are added; the first entry of a key wins.
#[derive(Default)]
struct Line {
    text: String,
    keys: Vec<String>,
}

impl Line {
    fn add(&mut self, key: &str, value: impl Into<Value>) {
        if self.keys.iter().any(|present| present == key) {
            return;
        }
        if !self.text.is_empty() {
            self.text.push(',');
        }
        let (name, value) = (Value::from(key), value.into());
        self.text.push_str(&format!("{name}:{value}"));
        self.keys.push(key.to_owned());
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    error: Option<Value>,
    others: Vec<(&'static str, Value)>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            ("error", value) => self.error = Some(value),
            (name, value) => self.others.push((name, value)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }
}

/// Returns the level as `--v` counts it; errors have none.
fn verbosity(level: Level) -> Option<u8> {
    match level {
        Level::ERROR => None,
        Level::WARN | Level::INFO => Some(0),
        Level::DEBUG => Some(4),
        Level::TRACE => Some(6),
    }
}

/// Returns the last two parts of the file's path, and the line.
fn caller(metadata: &Metadata<'_>) -> String {
    let file = metadata.file().unwrap_or_default();
    let short = match file.rmatch_indices('/').nth(1) {
        Some((slash, _)) => &file[slash + 1..],
        None => file,
    };
    format!("{short}:{}", metadata.line().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    fn line(write: impl FnOnce()) -> (String, Value) {
        let mut written = tempfile::tempfile().unwrap();
        let layer = tracing_subscriber::fmt::layer()
            .json()
            .event_format(KubernetesJson)
            .with_writer(written.try_clone().unwrap());
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, write);
        let mut text = String::new();
        written.rewind().unwrap();
        written.read_to_string(&mut text).unwrap();
        let value = serde_json::from_str(&text).unwrap();
        (text, value)
    }

    #[test]
    fn json_log_line_uses_kubernetes_keys() {
        let (text, value) = line(|| {
            let span = tracing::info_span!("rpc", id = 7, volume.id = tracing::field::Empty);
            let _inside = span.enter();
            span.record("volume.id", "vol-1");
            tracing::warn!(milliseconds = 1.5, id = 8, error = %"a \"bad\"\nday", "called {}", "x");
        });
        assert!(text.starts_with("{\"ts\":"), "{text}");
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        assert!(value["ts"].as_f64().is_some_and(|ts| ts > 1.7e12), "{text}");
        let caller = value["caller"].as_str().unwrap();
        assert!(caller.starts_with("observe/json.rs:"), "{text}");
        for (key, expected) in [
            ("msg", Value::from("called x")),
            ("v", 0.into()),
            ("err", "a \"bad\"\nday".into()),
            ("level", "warn".into()),
            ("milliseconds", 1.5.into()),
            // The event's own field takes precedence over the span's.
            ("id", 8.into()),
            ("volume.id", "vol-1".into()),
        ] {
            assert_eq!(value[key], expected, "{key}: {text}");
        }
    }

    #[test]
    fn errors_have_no_verbosity() {
        let (text, value) = line(|| tracing::error!("broken"));
        assert!(value["v"].is_null() && value["level"] == "error", "{text}");
        let (_, value) = line(|| tracing::debug!("detail"));
        assert_eq!(value["v"], 4);
    }
}
