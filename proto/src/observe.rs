//! One log line for each finished RPC, and the setup of logging for all processes.
//!
//! The line has the method, the outcome and the duration. Handlers add what they know about the
//! request (`volume.id`, `node.id`) to the current span with [`record_field`]. Requests are printed
//! at debug level only, by a `Debug` implementation that cannot print a field which the spec marks
//! `csi_secret`.

mod json;

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use clap::Args;
use tonic::Code;
use tower::Service;
use tracing::{Instrument, Span, field};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer as _, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Replaces a secret in `Debug` output: prints only the number of entries.
pub struct Stripped(pub usize);

impl fmt::Debug for Stripped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{} stripped}}", self.0)
    }
}

/// Prints a volume context without the tokens of pods that kubelet puts there
/// (`csi.storage.k8s.io/serviceAccount.tokens`).
pub struct VolumeContext<'a>(pub &'a HashMap<String, String>);

impl fmt::Debug for VolumeContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_token = |key: &str| key.to_ascii_lowercase().ends_with("serviceaccount.tokens");
        let mut map = f.debug_map();
        for (key, value) in self.0 {
            match is_token(key) {
                true => map.entry(key, &Stripped(1)),
                false => map.entry(key, value),
            };
        }
        map.finish()
    }
}

/// Prints the beginning of a value's `Debug` output, at most [`MAX_REQUEST`] bytes.
pub struct Shortened<'a, T>(pub &'a T);

impl<T: fmt::Debug> fmt::Debug for Shortened<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = Limited { f, left: MAX_REQUEST };
        write!(rest, "{:?}", self.0)
    }
}

/// A formatter that takes so many bytes, and drops what follows.
struct Limited<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
    left: usize,
}

impl fmt::Write for Limited<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let written = beginning(text, self.left);
        self.left = if written.len() < text.len() { 0 } else { self.left - written.len() };
        self.f.write_str(written)
    }
}

/// Text or JSON lines (`--logging-format`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// One readable line for each event.
    #[default]
    Text,
    /// One JSON object for each event, with the keys of Kubernetes' components.
    Json,
}

/// The flags of the log, the same for every program.
#[derive(Args, Clone, Copy, Debug)]
pub struct LogFlags {
    /// Log level: up to 3 info, 4 and 5 debug, above that trace.
    #[arg(long = "v", short = 'v', value_name = "LEVEL", default_value_t = 2)]
    pub v: u8,
    /// Log lines as text or JSON.
    #[arg(long, value_enum, default_value = "text")]
    pub logging_format: LogFormat,
}

impl Default for LogFlags {
    /// Text at the level info, which a program without these flags writes.
    fn default() -> Self {
        Self { v: 2, logging_format: LogFormat::Text }
    }
}

/// Libraries whose debug events `--v` does not enable.
const LIBRARIES_AT_INFO: [&str; 9] = [
    "h2",
    "hyper",
    "hyper_util",
    "tower",
    "aws_config",
    "aws_runtime",
    "aws_smithy_runtime",
    "aws_sdk_ec2",
    "aws_sdk_sts",
];

/// Installs the process's log on standard error.
///
/// The level counts as in Kubernetes components. `RUST_LOG`, when set, takes precedence. A second
/// call has no effect.
pub fn init_log(flags: LogFlags) {
    init_log_with_layer(flags, "", None);
}

/// A further layer that receives spans and events, regardless of the log's level.
pub type ExtraLayer =
    Box<dyn tracing_subscriber::Layer<tracing_subscriber::Registry> + Send + Sync>;

/// Installs the log as [`init_log`] does, with a further layer. `levels` are further levels by
/// crate (`aws_config=debug,…`); libraries that log too much or log credentials have the level
/// `info` otherwise.
pub fn init_log_with_layer(flags: LogFlags, levels: &str, layer: Option<ExtraLayer>) {
    let rust_log = std::env::var("RUST_LOG").ok();
    let filter = filter(rust_log.as_deref(), flags.v, levels);
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let all = tracing_subscriber::registry().with(layer);
    let _ = match flags.logging_format {
        LogFormat::Text => all.with(log.with_ansi(false).with_filter(filter)).try_init(),
        LogFormat::Json => {
            all.with(log.json().event_format(json::KubernetesJson).with_filter(filter)).try_init()
        }
    };
}

/// Returns levels, for everything or for a crate or module (`info,h2=debug`): those of `rust_log`
/// when it is valid, otherwise those of `verbosity` and `levels`.
///
/// The filter holds levels only, unlike an `EnvFilter`, which also filters by the fields of spans:
/// its regular expressions cost each process memory.
fn filter(rust_log: Option<&str>, verbosity: u8, levels: &str) -> Targets {
    if let Some(Ok(rust_log)) = rust_log.filter(|text| !text.is_empty()).map(str::parse) {
        return rust_log;
    }
    let level = match verbosity {
        0..=3 => LevelFilter::INFO,
        4 | 5 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let crate_levels: Targets = levels.parse().unwrap_or_default();
    Targets::new()
        .with_targets(LIBRARIES_AT_INFO.map(|name| (name, LevelFilter::INFO)))
        .with_targets(crate_levels)
        .with_default(level)
}

/// The longest value in a log line, in bytes: longer than every id and name that is valid.
const MAX_VALUE: usize = 512;
/// The longest printed request, in bytes.
const MAX_REQUEST: usize = 16 * 1024;

/// Returns the beginning of a text, at most `bytes` long.
pub(crate) fn beginning(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// Adds a value to the log line of the current RPC; a long one is cut. Keys: `volume.id`,
/// `snapshot.id`, `node.id`, `request.name`, `ec2.request_id`.
pub fn record_field(key: &'static str, value: &str) {
    Span::current().record(key, beginning(value, MAX_VALUE));
}

/// A service that creates a span for each RPC and writes its line.
#[derive(Clone, Debug)]
pub struct Observed<S>(pub S);

static NEXT_RPC_ID: AtomicU64 = AtomicU64::new(1);

impl<S, B, R> Service<http::Request<B>> for Observed<S>
where
    S: Service<http::Request<B>, Response = http::Response<R>>,
    S::Future: Send + 'static,
    S::Error: fmt::Display + Send + 'static,
    R: Send + 'static,
{
    type Response = http::Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let method = request.uri().path().trim_start_matches('/').to_owned();
        let span = tracing::info_span!(
            "rpc",
            method,
            id = NEXT_RPC_ID.fetch_add(1, Ordering::Relaxed),
            volume.id = field::Empty,
            snapshot.id = field::Empty,
            node.id = field::Empty,
            request.name = field::Empty,
            ec2.request_id = field::Empty,
        );
        let is_frequent_check = method.ends_with("Identity/Probe")
            || method.ends_with("GetCapabilities")
            || method.ends_with("Health/Check");
        let started = Instant::now();
        let response = self.0.call(request);
        Box::pin(
            async move {
                let answer = response.await;
                let milliseconds = milliseconds(started.elapsed());
                match &answer {
                    // A unary error is an answer without a body: its status is in the headers.
                    Ok(response) => match status_of(response.headers()) {
                        (Code::Ok, _) if is_frequent_check => {
                            tracing::debug!(milliseconds, outcome = "OK", "rpc")
                        }
                        (Code::Ok, _) => tracing::info!(milliseconds, outcome = "OK", "rpc"),
                        (code, text) => {
                            tracing::warn!(milliseconds, outcome = ?code, error = %text, "rpc")
                        }
                    },
                    Err(e) => {
                        tracing::warn!(milliseconds, outcome = "TRANSPORT", error = %e, "rpc")
                    }
                }
                answer
            }
            .instrument(span),
        )
    }
}

/// Returns milliseconds, rounded to a thousandth: further digits are binary rounding noise.
fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

fn status_of(headers: &http::HeaderMap) -> (Code, String) {
    match tonic::Status::from_header_map(headers) {
        Some(status) => (status.code(), status.message().to_owned()),
        None => (Code::Ok, String::new()),
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use std::time::Duration;

    use super::{MAX_REQUEST, Shortened, beginning, filter, milliseconds};
    use crate::csi;

    #[test]
    fn log_levels_follow_rust_log_else_verbosity() {
        let ours = "ebs_csi_controller::serve";
        for (rust_log, verbosity, levels, target, level, written) in [
            (None, 2, "", ours, Level::INFO, true),
            (None, 2, "", ours, Level::DEBUG, false),
            (None, 4, "", ours, Level::DEBUG, true),
            (None, 4, "", ours, Level::TRACE, false),
            (None, 7, "", ours, Level::TRACE, true),
            (None, 7, "", "h2::codec", Level::DEBUG, false),
            (None, 7, "", "h2::codec", Level::INFO, true),
            (None, 2, "aws_config=debug", "aws_config", Level::DEBUG, true),
            (None, 2, "aws_config=debug", ours, Level::INFO, true),
            (Some(""), 2, "", ours, Level::INFO, true),
            (Some("warn"), 7, "", ours, Level::INFO, false),
            (Some("warn,h2=trace"), 2, "", "h2::codec", Level::TRACE, true),
            (Some("h2=loud"), 2, "", ours, Level::INFO, true),
        ] {
            assert_eq!(
                filter(rust_log, verbosity, levels).would_enable(target, &level),
                written,
                "{rust_log:?} {verbosity} {levels} {target} {level}"
            );
        }
    }

    #[test]
    fn durations_round_to_thousandths_of_millisecond() {
        for (nanoseconds, written) in [
            (46_219, "0.046"),
            (320_655, "0.321"),
            (2_458_696, "2.459"),
            (1_000_000, "1.0"),
            (61_234_567_890, "61234.568"),
        ] {
            let duration = Duration::from_nanos(nanoseconds);
            assert_eq!(format!("{:?}", milliseconds(duration)), written);
        }
    }

    #[test]
    fn debug_output_hides_csi_secrets() {
        let secrets = [("key".to_owned(), "hunter2".to_owned())].into();
        let printed = format!(
            "{:?}",
            csi::CreateVolumeRequest { name: "pvc-1".to_owned(), secrets, ..Default::default() }
        );
        assert!(printed.contains("pvc-1") && printed.contains("{1 stripped}"), "{printed}");
        assert!(!printed.contains("hunter2"), "{printed}");
    }

    #[test]
    fn debug_output_hides_tokens_of_volume_context() {
        const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";
        let volume_context: std::collections::HashMap<String, String> =
            [(TOKENS, "hunter2"), ("blocksize", "4096")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into();
        let context = || volume_context.clone();
        let publish =
            csi::NodePublishVolumeRequest { volume_context: context(), ..Default::default() };
        let stage = csi::NodeStageVolumeRequest { volume_context: context(), ..Default::default() };
        let attach =
            csi::ControllerPublishVolumeRequest { volume_context: context(), ..Default::default() };
        let validate = csi::ValidateVolumeCapabilitiesRequest {
            volume_context: context(),
            ..Default::default()
        };
        for printed in [
            format!("{publish:?}"),
            format!("{stage:?}"),
            format!("{attach:?}"),
            format!("{validate:?}"),
        ] {
            assert!(printed.contains("4096") && !printed.contains("hunter2"), "{printed}");
        }
    }

    #[test]
    fn long_request_is_printed_in_part() {
        let volume_id = "x".repeat(3_000_000);
        let request = csi::NodeUnstageVolumeRequest { volume_id, ..Default::default() };
        let printed = format!("{:?}", Shortened(&request));
        assert!(printed.starts_with("NodeUnstageVolumeRequest { volume_id: \"xxx"));
        assert_eq!(printed.len(), MAX_REQUEST);
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(beginning("aää", 4), "aä");
        assert_eq!(beginning("aä", 9), "aä");
    }
}
