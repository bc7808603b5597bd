//! Command line and environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use clap::{ArgAction, Parser, ValueEnum};
use ebs_csi_proto::Endpoint;
use ebs_csi_proto::observe::LogFormat;

use crate::ec2::{Action, Rate};

/// What Probe says about AWS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProbeAws {
    /// Not ready until the first successful check; later failures show in /readyz, metric and log.
    Startup,
    /// Not ready whenever the last check failed.
    Always,
    /// Ready as soon as the process serves.
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

type Rates = BTreeMap<Action, Rate>;

/// The CSI Controller service for Amazon EBS. Serves CSI Controller and Identity on a socket and holds the AWS credentials.
///
/// Environment: AWS_REGION, AWS_EC2_ENDPOINT, and what the AWS SDK reads (credentials, AWS_ENDPOINT_URL*, AWS_USE_FIPS_ENDPOINT, proxies).
#[derive(Debug, Parser)]
#[command(
    name = "ebs-csi-controller",
    disable_version_flag = true,
    args_override_self = true
)]
struct Flags {
    /// The CSI socket: unix:///path or tcp://address:port.
    #[arg(long, value_name = "URL", default_value = "unix://tmp/csi.sock")]
    endpoint: Endpoint,
    /// Serve /metrics, /healthz and /readyz here (":3301"); empty: not at all.
    #[arg(long, value_name = "ADDRESS", default_value = "")]
    http_endpoint: String,
    /// Certificate for the HTTP endpoint: not offered, see the error.
    #[arg(long, value_name = "FILE", default_value = "")]
    metrics_cert_file: String,
    /// Key for the HTTP endpoint: not offered, see the error.
    #[arg(long, value_name = "FILE", default_value = "")]
    metrics_key_file: String,
    /// What Probe says about AWS.
    #[arg(long, value_enum, value_name = "WHEN", default_value = "startup")]
    probe_aws: ProbeAws,
    /// How long calls that are running may go on after SIGTERM.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = duration)]
    drain_timeout: Duration,
    /// Tags for everything that is made: key=value,key=value.
    #[arg(long, value_name = "TAGS", default_value = "")]
    extra_tags: String,
    /// Tags for volumes that are made: key=value,key=value.
    #[arg(long, value_name = "TAGS", default_value = "")]
    extra_volume_tags: String,
    /// The cluster's id, put into tags.
    #[arg(long, value_name = "ID", default_value = "")]
    k8s_tag_cluster_id: String,
    /// Leave an invalid tag out instead of refusing the volume.
    #[arg(long, value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    warn_on_invalid_tag: bool,
    /// How long a resize and a modification of one volume wait for each other.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    modify_volume_request_handler_timeout: Duration,
    /// Accept volume handles that begin with local-ebs://.
    #[arg(long, value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    enable_node_local_volumes: bool,
    /// Added to the user agent.
    #[arg(long, value_name = "TEXT", default_value = "")]
    user_agent_extra: String,
    /// Request rates that AWS granted this account, where they differ from EC2's documented ones: ACTION=CAPACITY/REFILL, separated by
    /// commas; "all" for every action.
    #[arg(long, value_name = "RATES", default_value = "", value_parser = rates)]
    ec2_request_rates: Rates,
    /// Log level: up to 3 info, 4 and 5 debug, above trace.
    #[arg(long = "v", short = 'v', value_name = "LEVEL", default_value_t = 2)]
    verbosity: u8,
    /// Log lines as text or JSON.
    #[arg(long, value_enum, default_value = "text")]
    logging_format: Format,
    /// Print the version as JSON.
    #[arg(long, action = ArgAction::SetTrue)]
    version: bool,
    #[command(flatten)]
    without_meaning: WithoutMeaning,
}

/// Flags of the Go driver that are accepted so that its manifests keep working, and that have no meaning here.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Accepted, without a meaning here")]
struct WithoutMeaning {
    #[arg(long, value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    batching: Option<bool>,
    #[arg(long, value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    deprecated_metrics: Option<bool>,
    #[arg(long, value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    enable_otel_tracing: Option<bool>,
    #[arg(long, value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    aws_sdk_debug_log: Option<bool>,
    #[arg(long, value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    logtostderr: Option<bool>,
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<String>,
    #[arg(long, value_name = "LIST", value_parser = metadata_sources)]
    metadata_sources: Option<String>,
    #[arg(long, value_name = "PATTERNS")]
    vmodule: Option<String>,
    #[arg(long, value_name = "DURATION")]
    log_flush_frequency: Option<String>,
    #[arg(long, value_name = "SIZE")]
    log_json_info_buffer_size: Option<String>,
    #[arg(long, value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    log_json_split_stream: Option<bool>,
    #[arg(long, value_name = "SIZE")]
    log_text_info_buffer_size: Option<String>,
    #[arg(long, value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    log_text_split_stream: Option<bool>,
}

impl WithoutMeaning {
    fn given(&self) -> Vec<(&'static str, &'static str)> {
        let rows = [
            (
                "batching",
                self.batching.is_some(),
                "calls to EC2 are always shared",
            ),
            (
                "deprecated-metrics",
                self.deprecated_metrics == Some(true),
                "only the current metric names are served",
            ),
            (
                "enable-otel-tracing",
                self.enable_otel_tracing == Some(true),
                "traces are not exported",
            ),
            (
                "aws-sdk-debug-log",
                self.aws_sdk_debug_log == Some(true),
                "use --v=5, or RUST_LOG for the SDK's own events",
            ),
            (
                "logtostderr",
                self.logtostderr.is_some(),
                "the log is always on standard error",
            ),
            (
                "kubeconfig",
                self.kubeconfig.is_some(),
                "the controller does not talk to Kubernetes",
            ),
            (
                "metadata-sources",
                self.metadata_sources.is_some(),
                "the Region comes from AWS_REGION, the AWS profile or instance metadata",
            ),
            ("vmodule", self.vmodule.is_some(), "use RUST_LOG"),
            (
                "log-flush-frequency",
                self.log_flush_frequency.is_some(),
                "the log is not buffered",
            ),
            (
                "log-json-info-buffer-size",
                self.log_json_info_buffer_size.is_some(),
                "the log is not buffered",
            ),
            (
                "log-json-split-stream",
                self.log_json_split_stream.is_some(),
                "the log is one stream",
            ),
            (
                "log-text-info-buffer-size",
                self.log_text_info_buffer_size.is_some(),
                "the log is not buffered",
            ),
            (
                "log-text-split-stream",
                self.log_text_split_stream.is_some(),
                "the log is one stream",
            ),
        ];
        rows.into_iter()
            .filter(|(_, given, _)| *given)
            .map(|(name, _, why)| (name, why))
            .collect()
    }
}

/// The checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where CSI is served.
    pub endpoint: Endpoint,
    /// Where metrics and health are served.
    pub http: Option<SocketAddr>,
    /// What Probe says about AWS.
    pub probe_aws: ProbeAws,
    /// How long calls may go on after SIGTERM.
    pub drain: Duration,
    /// `--extra-tags`, not checked yet.
    pub extra_tags: String,
    /// `--extra-volume-tags`, not checked yet.
    pub extra_volume_tags: String,
    /// `--k8s-tag-cluster-id`.
    pub cluster_id: Option<String>,
    /// `--warn-on-invalid-tag`.
    pub warn_on_invalid_tag: bool,
    /// `--modify-volume-request-handler-timeout`.
    pub modify_window: Duration,
    /// `--enable-node-local-volumes`.
    pub node_local_volumes: bool,
    /// Name in the user agent.
    pub execution_environment: String,
    /// Log level.
    pub verbosity: u8,
    /// Log format.
    pub log_format: LogFormat,
    /// `--ec2-request-rates`.
    pub rates: BTreeMap<Action, Rate>,
    /// `AWS_REGION`.
    pub region: Option<String>,
    /// `AWS_EC2_ENDPOINT`, else what the SDK takes for EC2 from the environment.
    pub ec2_endpoint: Option<String>,
    /// What the SDK takes for STS from the environment.
    pub sts_endpoint: Option<String>,
    /// Whether there are AWS profile files.
    pub profile_files: bool,
    /// Flags that were given and have no meaning, each with what stands in its place.
    pub without_meaning: Vec<(&'static str, &'static str)>,
}

/// Why the process ends before it starts.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// Print this on standard output and end well.
    Say(String),
    /// The command line is wrong (exit 64): one line.
    Usage(String),
}

/// The version, as `GetPluginInfo` reports it.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

impl Config {
    /// Reads the command line (without the program's name) and the environment.
    ///
    /// # Errors
    /// [`Stop`].
    pub fn read(
        arguments: impl IntoIterator<Item = OsString>,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, Stop> {
        let named = std::iter::once(OsString::from("ebs-csi-controller")).chain(arguments);
        let flags = Flags::try_parse_from(named).map_err(|error| stop(&error))?;
        if flags.version {
            return Err(Stop::Say(version()));
        }
        let usage = |flag: &str, why: &str| Stop::Usage(format!("--{flag}: {why}"));
        if !flags.metrics_cert_file.is_empty() || !flags.metrics_key_file.is_empty() {
            return Err(usage(
                "metrics-cert-file",
                "the HTTP endpoint is served without TLS; leave out this flag and --metrics-key-file, or put a TLS proxy before it",
            ));
        }
        if flags.modify_volume_request_handler_timeout.is_zero() {
            return Err(usage(
                "modify-volume-request-handler-timeout",
                "must be longer than 0",
            ));
        }
        let http = match flags.http_endpoint.as_str() {
            "" => None,
            address => Some(socket_address(address).map_err(|why| usage("http-endpoint", &why))?),
        };
        let text = |value: String| (!value.is_empty()).then_some(value);
        let variable = |name: &str| environment.get(name).cloned().and_then(text);
        // As the SDK reads them (AWS SDKs reference, "Service-specific endpoints").
        let ignored = variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")
            .is_some_and(|v| v.eq_ignore_ascii_case("true"));
        let sdk_endpoint = |name: &str| {
            variable(name)
                .or_else(|| variable("AWS_ENDPOINT_URL"))
                .filter(|_| !ignored)
        };
        let mut execution_environment = format!("aws-ebs-csi-driver-{VERSION}");
        if !flags.user_agent_extra.is_empty() {
            execution_environment = format!("{execution_environment}-{}", flags.user_agent_extra);
        }
        Ok(Self {
            endpoint: flags.endpoint,
            http,
            probe_aws: flags.probe_aws,
            drain: flags.drain_timeout,
            extra_tags: flags.extra_tags,
            extra_volume_tags: flags.extra_volume_tags,
            cluster_id: text(flags.k8s_tag_cluster_id),
            warn_on_invalid_tag: flags.warn_on_invalid_tag,
            modify_window: flags.modify_volume_request_handler_timeout,
            node_local_volumes: flags.enable_node_local_volumes,
            execution_environment,
            verbosity: flags.verbosity,
            log_format: match flags.logging_format {
                Format::Text => LogFormat::Text,
                Format::Json => LogFormat::Json,
            },
            rates: flags.ec2_request_rates,
            region: variable("AWS_REGION"),
            ec2_endpoint: variable("AWS_EC2_ENDPOINT")
                .or_else(|| sdk_endpoint("AWS_ENDPOINT_URL_EC2")),
            sts_endpoint: sdk_endpoint("AWS_ENDPOINT_URL_STS"),
            profile_files: profile_files(environment),
            without_meaning: flags.without_meaning.given(),
        })
    }
}

/// Whether a variable names a profile file or the home directory holds some that can be read.
fn profile_files(environment: &BTreeMap<String, String>) -> bool {
    ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"]
        .iter()
        .any(|name| environment.contains_key(*name))
        || environment
            .get("HOME")
            .is_some_and(|home| Path::new(home).join(".aws").is_dir())
}

/// Help goes out whole; an error is cut to its first line.
fn stop(error: &clap::Error) -> Stop {
    if !error.use_stderr() {
        return Stop::Say(error.to_string());
    }
    let text = error.to_string();
    let line = text
        .lines()
        .next()
        .unwrap_or("bad command line")
        .trim_start_matches("error: ");
    Stop::Usage(line.to_owned())
}

fn version() -> String {
    format!(
        "{{\n  \"driverVersion\": \"{VERSION}\",\n  \"gitCommit\": \"{}\",\n  \"buildDate\": \"{}\",\n  \"compiler\": \"rustc\",\n  \"platform\": \"{}/{}\"\n}}\n",
        option_env!("EBS_CSI_GIT_COMMIT").unwrap_or("unknown"),
        option_env!("EBS_CSI_BUILD_DATE").unwrap_or("unknown"),
        std::env::consts::OS,
        std::env::consts::ARCH,
    )
}

/// The words that Go's flag package takes for booleans.
fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("give true or false".to_owned()),
    }
}

/// A duration as Go writes it: `2s`, `1m30s`, `500ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let bad = || "give a duration such as 2s, 500ms or 1m30s".to_owned();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut seconds = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(bad)?;
        let number: f64 = rest[..digits].parse().map_err(|_| bad())?;
        rest = &rest[digits..];
        let unit = rest
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(rest.len());
        seconds += number
            * match &rest[..unit] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" => 1e-6,
                "ns" => 1e-9,
                _ => return Err(bad()),
            };
        rest = &rest[unit..];
    }
    if text.is_empty() {
        return Err(bad());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| bad())
}

/// `AttachVolume=50/5,all=100/20`; a later entry wins over an earlier one.
fn rates(text: &str) -> Result<Rates, String> {
    let mut rates = BTreeMap::new();
    for entry in text.split(',').filter(|entry| !entry.is_empty()) {
        let bad = || format!("{entry:?} is not ACTION=CAPACITY/REFILL with numbers of 1 or more");
        let (name, numbers) = entry.split_once('=').ok_or_else(bad)?;
        let (capacity, refill) = numbers.split_once('/').ok_or_else(bad)?;
        let number = |text: &str| {
            text.parse::<u32>()
                .ok()
                .filter(|n| *n >= 1)
                .map(f64::from)
                .ok_or_else(bad)
        };
        let rate = Rate {
            capacity: number(capacity)?,
            refill: number(refill)?,
        };
        let before = rates.len();
        rates.extend(
            Action::ALL
                .into_iter()
                .filter(|a| name == "all" || a.name() == name)
                .map(|a| (a, rate)),
        );
        if rates.len() == before && name != "all" && !Action::ALL.iter().any(|a| a.name() == name) {
            return Err(format!(
                "{name:?} is not an EC2 action that the controller calls"
            ));
        }
    }
    Ok(rates)
}

fn metadata_sources(text: &str) -> Result<String, String> {
    for source in text.split(',') {
        let source = source.trim().to_lowercase();
        if !["imds", "kubernetes", "metadata-labeler"].contains(&source.as_str()) {
            return Err(format!(
                "{source:?} is not one of imds, kubernetes, metadata-labeler"
            ));
        }
    }
    Ok(text.to_owned())
}

/// `:3301` is that port on all addresses, as Go reads it.
fn socket_address(text: &str) -> Result<SocketAddr, String> {
    let bad = || format!("{text:?} is not an address; give :PORT, 127.0.0.1:PORT or [::1]:PORT");
    match text.strip_prefix(':') {
        Some(port) => Ok(SocketAddr::from((
            Ipv6Addr::UNSPECIFIED,
            port.parse().map_err(|_| bad())?,
        ))),
        None => text.parse().map_err(|_| bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> Result<Config, Stop> {
        Config::read(arguments.iter().map(OsString::from), &BTreeMap::new())
    }

    #[test]
    fn the_command_line_of_the_go_drivers_chart_is_understood() {
        let config = read(&[
            "--endpoint=unix:///var/lib/csi/sockets/pluginproxy/csi.sock",
            "--batching=true",
            "--logging-format=json",
            "--user-agent-extra=helm",
            "--v=2",
            "--extra-tags=team=storage",
            "--k8s-tag-cluster-id=prod",
            "--warn-on-invalid-tag",
            "--http-endpoint=0.0.0.0:3301",
            "--modify-volume-request-handler-timeout=1m30s",
            "--aws-sdk-debug-log=false",
            "--metadata-sources=imds, kubernetes",
        ])
        .unwrap();
        assert_eq!(
            config.endpoint,
            Endpoint::Unix("/var/lib/csi/sockets/pluginproxy/csi.sock".into())
        );
        assert_eq!(config.log_format, LogFormat::Json);
        assert_eq!(
            config.execution_environment,
            format!("aws-ebs-csi-driver-{VERSION}-helm")
        );
        assert_eq!(config.cluster_id.as_deref(), Some("prod"));
        assert!(config.warn_on_invalid_tag);
        assert_eq!(config.modify_window, Duration::from_secs(90));
        let names: Vec<_> = config
            .without_meaning
            .iter()
            .map(|(name, _)| *name)
            .collect();
        assert_eq!(names, ["batching", "metadata-sources"]);
    }

    #[test]
    fn the_defaults_are_those_of_the_go_driver() {
        let config = read(&[]).unwrap();
        assert_eq!(config.endpoint, Endpoint::Unix("/tmp/csi.sock".into()));
        assert_eq!(
            (config.http, config.modify_window),
            (None, Duration::from_secs(2))
        );
        assert!(
            !config.warn_on_invalid_tag
                && !config.node_local_volumes
                && config.cluster_id.is_none()
        );
    }

    #[test]
    fn a_bad_flag_is_one_line_that_names_it() {
        let rows = [
            (vec!["--no-such-flag"], "--no-such-flag"),
            (vec!["--endpoint=ftp://x"], "--endpoint"),
            (vec!["--http-endpoint=nowhere"], "--http-endpoint"),
            (
                vec!["--modify-volume-request-handler-timeout=0"],
                "--modify-volume-request-handler-timeout",
            ),
            (
                vec!["--modify-volume-request-handler-timeout=soon"],
                "--modify-volume-request-handler-timeout",
            ),
            (
                vec!["--warn-on-invalid-tag=perhaps"],
                "--warn-on-invalid-tag",
            ),
            (vec!["--metadata-sources=tea"], "--metadata-sources"),
            (vec!["--volume-attach-limit=3"], "--volume-attach-limit"),
            (vec!["--metrics-cert-file=x"], "--metrics-cert-file"),
            (vec!["--probe-aws=maybe"], "--probe-aws"),
            (vec!["stray"], "stray"),
        ];
        for (arguments, name) in rows {
            match read(&arguments) {
                Err(Stop::Usage(line)) => {
                    assert!(line.contains(name) && line.lines().count() == 1, "{line}");
                }
                other => panic!("{arguments:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn granted_request_rates_are_read() {
        let config = read(&["--ec2-request-rates=all=1000/100,AttachVolume=150/15"]).unwrap();
        assert_eq!(config.rates.len(), Action::ALL.len());
        assert_eq!(
            config.rates[&Action::AttachVolume],
            Rate {
                capacity: 150.0,
                refill: 15.0
            }
        );
        for bad in [
            "AttachVolume",
            "AttachVolume=5",
            "AttachVolume=0/1",
            "AttachVolume=-1/1",
            "Attach=1/1",
        ] {
            assert!(rates(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn help_and_version_are_said() {
        assert!(matches!(read(&["--help"]), Err(Stop::Say(text)) if text.contains("--extra-tags")));
        assert!(
            matches!(read(&["--version"]), Err(Stop::Say(text)) if text.contains("driverVersion"))
        );
    }

    #[test]
    fn go_durations_are_read() {
        let rows = [
            ("2s", Some(2000)),
            ("1m30s", Some(90_000)),
            ("500ms", Some(500)),
            ("1.5s", Some(1500)),
            ("1h", Some(3_600_000)),
            ("0", Some(0)),
            ("", None),
            ("2", None),
            ("s", None),
            ("-2s", None),
            ("2 s", None),
            ("1e99h", None),
        ];
        for (text, want) in rows {
            assert_eq!(
                duration(text).ok(),
                want.map(Duration::from_millis),
                "{text:?}"
            );
        }
    }
}
