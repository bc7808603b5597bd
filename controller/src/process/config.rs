//! The command line and the environment, checked.

mod flag_syntax;
mod flags;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::CommandFactory;
use ebs_csi_ec2::Ec2Settings;
use ebs_csi_proto::Endpoint;
use ebs_csi_proto::observe::LogFlags;
use ebs_csi_proto::program::{self, Exit, HttpFlags};

pub(crate) use flag_syntax::duration;
use flags::{Failover, Flags};

use crate::VERSION;
use crate::csi::service::ServiceSettings;
use crate::process::http::CertificateFiles;
use crate::process::probe::ProbeAws;
use crate::process::traces;
use crate::request::tags::{TagSettings, Tags};
use crate::safe_detach::{FencePermission, FenceSettings, Mode};

/// The checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where CSI is served.
    pub endpoint: Endpoint,
    /// Where metrics and health are served.
    pub http: HttpFlags,
    /// The certificate and key of the HTTP endpoint, when it is served over TLS.
    pub certificate: Option<CertificateFiles>,
    /// Whether metrics are served under their older names, too.
    pub deprecated_metrics: bool,
    /// Where traces go, if anywhere.
    pub traces: Option<traces::TraceSettings>,
    /// What Probe says about AWS.
    pub probe_aws: ProbeAws,
    /// How long calls may go on after SIGTERM.
    pub drain: Duration,
    /// `--extra-tags`, not checked yet.
    pub extra_tags: String,
    /// `--extra-volume-tags`, not checked yet.
    pub extra_volume_tags: String,
    /// The settings of the CSI service, without these tags.
    pub service: ServiceSettings,
    /// Where SafeDetach is served, and to whom.
    pub safe_detach_socket: Option<SafeDetachSocket>,
    /// Whether snapshots of several volumes at one moment are offered.
    pub group_snapshots: bool,
    /// Log levels of the AWS SDK's own events; empty when they are not wanted.
    pub sdk_levels: &'static str,
    /// Level and format of the log.
    pub log: LogFlags,
    /// The settings of the EC2 layer.
    pub ec2: Ec2Settings,
    /// Flags that were given and have no effect, each with what replaces it.
    pub without_effect: Vec<(&'static str, &'static str)>,
    /// Variables that are set and have no effect, each with what replaces it.
    pub variables_without_effect: Vec<(&'static str, &'static str)>,
}

/// The socket of SafeDetach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafeDetachSocket {
    /// A unix socket.
    pub endpoint: Endpoint,
    /// The user ids that may call.
    pub peers: Vec<u32>,
}

/// The levels that `--aws-sdk-debug-log` sets. The SDK keeps secrets out of these events, but not
/// the ids of access keys.
const SDK_DEBUG: &str = "aws_config=debug,aws_runtime=debug,aws_smithy_runtime=debug,aws_sdk_ec2=debug,aws_sdk_sts=debug";

/// Variables that the Go driver or the SDK reads and that have no effect here, each with the
/// reason.
const VARIABLES_WITHOUT_EFFECT: [(&str, &str); 3] = [
    ("AWS_SAGEMAKER_ENDPOINT", "HyperPod nodes, which it is for, are refused"),
    ("AWS_RETRY_MODE", "the driver itself decides which calls are sent again, and when"),
    ("AWS_MAX_ATTEMPTS", "the driver itself decides which calls are sent again, and when"),
];

/// Removes the word `true` after a switch: Go reads `--batching true` as the switch and an
/// argument, and the Go driver ignores arguments.
fn remove_true_after_switches(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let is_switch = |word: &OsString| {
        let name = word.to_str().and_then(|word| word.strip_prefix("--"));
        name.is_some_and(|name| {
            let command = Flags::command();
            let mut flags = command.get_arguments();
            flags.any(|flag| flag.get_long() == Some(name) && flag.is_require_equals_set())
        })
    };
    let mut kept: Vec<OsString> = Vec::new();
    for word in words {
        if !(word == "true" && kept.last().is_some_and(is_switch)) {
            kept.push(word);
        }
    }
    kept
}

impl Config {
    /// Reads the command line (without the program's name) and the environment.
    ///
    /// # Errors
    /// [`Exit`]: the help, the version, or a wrong flag.
    pub fn read(
        arguments: impl IntoIterator<Item = OsString>,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, Exit> {
        let flags: Flags = program::parse(remove_true_after_switches(arguments))?;
        if flags.version {
            return Err(Exit::Print(version()));
        }
        let usage = |flag: &str, why: &str| Exit::usage(format_args!("--{flag}: {why}"));
        if flags.modify_volume_request_handler_timeout.is_zero() {
            return Err(usage("modify-volume-request-handler-timeout", "must be longer than 0"));
        }
        if flags.safe_detach != Mode::Off && !flags.feature_gates.non_graceful_failover {
            return Err(usage(
                "safe-detach",
                "modes other than off are alpha: add --feature-gates=NonGracefulFailover=true",
            ));
        }
        if flags.safe_detach_failover == Failover::Kep && flags.safe_detach != Mode::Enforce {
            return Err(usage(
                "safe-detach-failover",
                "kep needs --safe-detach=enforce: otherwise a node that runs and is cut off loses its volumes while it writes to them",
            ));
        }
        if flags.safe_detach == Mode::Off && flags.safe_detach_fence != FencePermission::Off {
            return Err(usage("safe-detach-fence", "needs --safe-detach"));
        }
        let safe_detach_socket = match flags.safe_detach_endpoint {
            Some(Endpoint::Tcp(_)) => {
                return Err(usage("safe-detach-endpoint", "give unix:///path/safe-detach.sock"));
            }
            Some(_) if flags.safe_detach_peers.is_empty() => {
                return Err(usage("safe-detach-endpoint", "needs --safe-detach-peers"));
            }
            Some(endpoint) if endpoint == flags.endpoint => {
                return Err(usage("safe-detach-endpoint", "must not be the CSI socket"));
            }
            endpoint => endpoint
                .map(|endpoint| SafeDetachSocket { endpoint, peers: flags.safe_detach_peers }),
        };
        let certificate = match (flags.metrics_cert_file.as_str(), flags.metrics_key_file.as_str())
        {
            ("", "") => None,
            (_, "") => return Err(usage("metrics-cert-file", "needs --metrics-key-file")),
            ("", _) => return Err(usage("metrics-key-file", "needs --metrics-cert-file")),
            _ if flags.http.address().is_none() => {
                return Err(usage("metrics-cert-file", "needs --http-endpoint"));
            }
            (chain, key) => Some(CertificateFiles { chain: chain.into(), key: key.into() }),
        };
        let traces = traces::TraceSettings::read(flags.enable_otel_tracing, environment)
            .map_err(Exit::usage)?;
        let text = |value: String| (!value.is_empty()).then_some(value);
        let variable = |name: &str| environment.get(name).cloned().and_then(text);
        // The SDK's rules (AWS SDKs reference, "Service-specific endpoints").
        let ignored = variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")
            .is_some_and(|v| v.eq_ignore_ascii_case("true"));
        let sdk_endpoint = |name: &str| {
            variable(name).or_else(|| variable("AWS_ENDPOINT_URL")).filter(|_| !ignored)
        };
        let region = |name: &str| match variable(name) {
            Some(region) if !is_region(&region) => Err(Exit::usage(format_args!(
                "{name}: {region:?} is not the name of a Region; write it without blanks, as us-east-1"
            ))),
            region => Ok(region),
        };
        let mut execution_environment = format!("aws-ebs-csi-driver-{VERSION}");
        if !flags.user_agent_extra.is_empty() {
            execution_environment = format!("{execution_environment}-{}", flags.user_agent_extra);
        }
        Ok(Self {
            endpoint: flags.endpoint,
            http: flags.http,
            certificate,
            deprecated_metrics: flags.deprecated_metrics,
            traces,
            probe_aws: flags.probe_aws,
            drain: flags.drain_timeout,
            extra_tags: flags.extra_tags.join(","),
            extra_volume_tags: flags.extra_volume_tags.join(","),
            service: ServiceSettings {
                tags: TagSettings {
                    extra: Tags::new(),
                    cluster_id: text(flags.k8s_tag_cluster_id),
                    warn_on_invalid: flags.warn_on_invalid_tag,
                },
                modify_window: flags.modify_volume_request_handler_timeout,
                snapshot_takeover: flags.snapshot_takeover_wait,
                node_local_volumes: flags.enable_node_local_volumes,
                safe_detach: flags.safe_detach,
                fence: FenceSettings {
                    permission: flags.safe_detach_fence,
                    limit: flags.safe_detach_fence_limit,
                },
                old_agents: flags.safe_detach_old_agents,
                volume_health: flags.enable_volume_health,
            },
            safe_detach_socket,
            group_snapshots: flags.enable_group_snapshots,
            sdk_levels: if flags.aws_sdk_debug_log { SDK_DEBUG } else { "" },
            log: flags.log,
            ec2: Ec2Settings {
                region: region("AWS_REGION")?,
                // The Go driver's metadata-labeler reads the same labels.
                region_of_node: region("NODE_REGION")?.filter(|_| {
                    let sources = &flags.metadata_sources;
                    sources.contains("kubernetes") || sources.contains("metadata-labeler")
                }),
                ca_bundle: variable("AWS_CA_BUNDLE").map(PathBuf::from),
                ec2_endpoint: variable("AWS_EC2_ENDPOINT")
                    .or_else(|| sdk_endpoint("AWS_ENDPOINT_URL_EC2")),
                sts_endpoint: sdk_endpoint("AWS_ENDPOINT_URL_STS"),
                credentials_from: credentials_from(environment),
                profile_files: profile_files(environment),
                execution_environment,
                rates: flags.ec2_request_rates,
                max_rates: flags.ec2_max_request_rates,
                seed: seed(),
                ..Ec2Settings::default()
            },
            without_effect: flags.without_effect.given(),
            variables_without_effect: VARIABLES_WITHOUT_EFFECT
                .into_iter()
                .filter(|(name, _)| variable(name).is_some())
                .collect(),
        })
    }

    /// Returns the settings of the CSI service, with the tags of both flags.
    pub(super) fn checked_service(&self) -> Result<ServiceSettings, String> {
        let mut service = self.service.clone();
        for (flag, text) in
            [("--extra-volume-tags", &self.extra_volume_tags), ("--extra-tags", &self.extra_tags)]
        {
            let tags = TagSettings::parse_extra(text, service.tags.warn_on_invalid);
            service.tags.extra.extend(tags.map_err(|why| format!("{flag}: {why}"))?);
        }
        Ok(service)
    }
}

/// Returns a seed, so that the jitter differs between two replicas that start at once.
fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_nanos() as u64 ^ (u64::from(std::process::id()) << 32)
}

/// Returns whether the text can be the name of a Region, which becomes a part of host names.
fn is_region(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Returns whether a variable names a profile file, or the home directory has an `.aws` directory.
fn profile_files(environment: &BTreeMap<String, String>) -> bool {
    ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"]
        .iter()
        .any(|name| environment.contains_key(*name))
        || environment.get("HOME").is_some_and(|home| Path::new(home).join(".aws").is_dir())
}

/// Names the first source of the SDK's credential chain that the environment configures. The SDK's
/// chain itself decides; the text is for the reader of an error.
fn credentials_from(environment: &BTreeMap<String, String>) -> String {
    let variable = |name: &str| environment.get(name).filter(|value| !value.is_empty());
    if variable("AWS_ACCESS_KEY_ID").is_some() {
        return "the environment (AWS_ACCESS_KEY_ID)".to_owned();
    }
    if let Some(profile) = variable("AWS_PROFILE") {
        return format!("the AWS profile {profile}");
    }
    if let Some(file) = variable("AWS_WEB_IDENTITY_TOKEN_FILE") {
        let role = variable("AWS_ROLE_ARN").map_or("that AWS_ROLE_ARN should name", String::as_str);
        return format!("the web identity token {file} for the role {role}");
    }
    for name in ["AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] {
        if let Some(uri) = variable(name) {
            return format!("the container credentials at {uri}");
        }
    }
    "the AWS profile or instance metadata".to_owned()
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

#[cfg(test)]
mod tests;
