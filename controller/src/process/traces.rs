//! Traces over OTLP: a span for each CSI call and one for each EC2 call, with EC2's request id. Off
//! unless the environment or `--enable-otel-tracing` asks for it.
//!
//! The exported spans are those that the log has anyway (`rpc`, `ec2`): [`collect`] turns them into
//! records on a bounded queue, and [`export`] sends the queued records every few seconds. When the
//! collector does not answer, records are lost, but no CSI call fails.

mod collect;
mod export;
mod record;

use std::collections::BTreeMap;
use std::time::Duration;

pub use collect::Collect;
pub use export::Exporter;
use record::Record;
use tokio::sync::mpsc;

/// The protocol of the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC, as the Go driver exports; port 4317 by convention.
    Grpc,
    /// Protobuf over HTTP; port 4318 by convention.
    HttpProtobuf,
}

/// The destination of traces, from the variables of the OpenTelemetry specification ("OTLP Exporter
/// Configuration", "General SDK Configuration").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSettings {
    /// The protocol.
    pub protocol: Protocol,
    /// The complete address of the requests.
    pub address: String,
    /// Headers of each request; they may hold a secret.
    pub headers: Vec<(String, String)>,
    /// How long a request may take.
    pub timeout: Duration,
    /// The attributes of the resource: `service.name` and what the operator adds.
    pub resource: Vec<(String, String)>,
}

impl TraceSettings {
    /// Reads the variables; `None` when nothing asks for traces. `is_requested` is
    /// `--enable-otel-tracing`.
    ///
    /// # Errors
    /// One line that names the variable.
    pub fn read(
        is_requested: bool,
        environment: &BTreeMap<String, String>,
    ) -> Result<Option<Self>, String> {
        let variable = |name: &str| {
            environment.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
        };
        // The variable for traces alone wins over the one for all signals.
        let signal_or_all = |what: &str| {
            let (own, all) =
                (format!("OTEL_EXPORTER_OTLP_TRACES_{what}"), format!("OTEL_EXPORTER_OTLP_{what}"));
            variable(&own).or_else(|| variable(&all))
        };
        let is_off = variable("OTEL_SDK_DISABLED").is_some_and(|v| v.eq_ignore_ascii_case("true"))
            || variable("OTEL_TRACES_EXPORTER") == Some("none")
            || variable("OTEL_TRACES_SAMPLER").is_some_and(|s| s.ends_with("always_off"));
        if is_off || !(is_requested || signal_or_all("ENDPOINT").is_some()) {
            return Ok(None);
        }
        let protocol = match signal_or_all("PROTOCOL") {
            None | Some("grpc") => Protocol::Grpc,
            Some("http/protobuf") => Protocol::HttpProtobuf,
            Some(other) => {
                return Err(format!(
                    "OTEL_EXPORTER_OTLP_PROTOCOL: {other:?} is not one of grpc, http/protobuf"
                ));
            }
        };
        let base = signal_or_all("ENDPOINT").unwrap_or(match protocol {
            Protocol::Grpc => "http://localhost:4317",
            Protocol::HttpProtobuf => "http://localhost:4318",
        });
        if !(base.starts_with("http://") || base.starts_with("https://")) {
            return Err(format!(
                "OTEL_EXPORTER_OTLP_ENDPOINT: {base:?} is not an http:// or https:// URL"
            ));
        }
        let base = base.trim_end_matches('/');
        let address = match (protocol, variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")) {
            (Protocol::Grpc, _) => {
                format!("{base}/opentelemetry.proto.collector.trace.v1.TraceService/Export")
            }
            // The variable for traces holds the complete address, the one for all signals its
            // beginning.
            (Protocol::HttpProtobuf, Some(whole)) => whole.to_owned(),
            (Protocol::HttpProtobuf, None) => format!("{base}/v1/traces"),
        };
        let milliseconds = signal_or_all("TIMEOUT")
            .map(|text| {
                text.parse().map_err(|_| {
                    format!("OTEL_EXPORTER_OTLP_TIMEOUT: {text:?} is not a number of milliseconds")
                })
            })
            .transpose()?;
        let mut resource = pairs("OTEL_RESOURCE_ATTRIBUTES", variable("OTEL_RESOURCE_ATTRIBUTES"))?;
        if let Some(name) = variable("OTEL_SERVICE_NAME") {
            resource.retain(|(key, _)| key != "service.name");
            resource.push(("service.name".to_owned(), name.to_owned()));
        } else if !resource.iter().any(|(key, _)| key == "service.name") {
            resource.push(("service.name".to_owned(), "ebs-csi-controller".to_owned()));
        }
        Ok(Some(Self {
            protocol,
            address,
            headers: pairs("OTEL_EXPORTER_OTLP_HEADERS", signal_or_all("HEADERS"))?,
            timeout: Duration::from_millis(milliseconds.unwrap_or(10_000)),
            resource,
        }))
    }
}

/// Parses `key=value,key=value`.
fn pairs(variable: &str, text: Option<&str>) -> Result<Vec<(String, String)>, String> {
    text.unwrap_or_default()
        .split(',')
        .filter(|entry| !entry.trim().is_empty())
        .map(|entry| {
            let (key, value) = entry
                .split_once('=')
                // The value may be a secret, so the message leaves it out.
                .ok_or_else(|| format!("{variable}: an entry is not key=value"))?;
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        })
        .collect()
}

/// The most records that wait for the exporter, about 1 MiB. Further ones are dropped.
const QUEUE_LENGTH: usize = 2048;

/// Creates the layer that collects spans and the exporter that sends them.
pub fn channel(settings: TraceSettings) -> (Collect, Exporter) {
    let (records, queue) = mpsc::channel::<Record>(QUEUE_LENGTH);
    (Collect::new(records), Exporter::new(settings, queue))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        is_requested: bool,
        variables: &[(&str, &str)],
    ) -> Result<Option<TraceSettings>, String> {
        let environment = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        TraceSettings::read(is_requested, &environment)
    }

    #[test]
    fn traces_are_off_unless_requested_and_not_disabled() {
        assert_eq!(read(false, &[]), Ok(None));
        assert_eq!(read(false, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]), Ok(None));
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317");
        for is_off in [
            ("OTEL_SDK_DISABLED", "true"),
            ("OTEL_TRACES_EXPORTER", "none"),
            ("OTEL_TRACES_SAMPLER", "always_off"),
        ] {
            assert_eq!(read(true, &[endpoint, is_off]), Ok(None), "{is_off:?}");
        }
    }

    #[test]
    fn otlp_address_follows_opentelemetry_specification() {
        let grpc = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
        let endpoint = |url| ("OTEL_EXPORTER_OTLP_ENDPOINT", url);
        let http = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");
        let http_for_traces = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf");
        let whole = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:1/exactly");
        let rows = [
            (true, vec![], format!("http://localhost:4317{grpc}")),
            (false, vec![endpoint("https://c:4317/")], format!("https://c:4317{grpc}")),
            (true, vec![http], "http://localhost:4318/v1/traces".to_owned()),
            (
                false,
                vec![http_for_traces, endpoint("http://c:1/otlp")],
                "http://c:1/otlp/v1/traces".to_owned(),
            ),
            (false, vec![http, endpoint("http://other"), whole], "http://c:1/exactly".to_owned()),
        ];
        for (is_requested, variables, address) in rows {
            let settings = read(is_requested, &variables).unwrap().unwrap();
            assert_eq!(settings.address, address, "{variables:?}");
        }
    }

    #[test]
    fn resource_headers_and_timeout_are_read() {
        let variables = [
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a, k8s.cluster=prod"),
            ("OTEL_SERVICE_NAME", "ebs"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer x"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
        ];
        let settings = read(true, &variables).unwrap().unwrap();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(settings.resource, [pair("k8s.cluster", "prod"), pair("service.name", "ebs")]);
        assert_eq!(settings.headers, [pair("authorization", "Bearer x")]);
        assert_eq!(settings.timeout, Duration::from_millis(250));
    }

    #[test]
    fn unusable_otel_setting_is_named_without_its_secret() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "c:4317"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "hunter2"),
        ] {
            let why = read(true, &[(name, value)]).unwrap_err();
            assert!(why.contains(name) && !why.contains("hunter2"), "{why}");
        }
    }
}
