//! The settings from the command line and the environment, checked before anything is opened.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use ebs_csi_policy::setting;
use ebs_csi_proto::Endpoint;
use ebs_csi_proto::observe::LogFlags;
use ebs_csi_proto::program::{Exit, HttpFlags};

use crate::attach_limit::SlotSettings;
use crate::facts::{Source, Sources, dmi, imds};
use crate::helper::Target;
use crate::node::Options;
use crate::registration;

pub mod flags;

use flags::Serve;

/// Prefix of the names of SageMaker HyperPod nodes.
const HYPERPOD: &str = "hyperpod-";

/// Variables that the Go driver reads on a node and that have no effect here. A name that ends in
/// `_` stands for all names with that prefix. Variables that Kubernetes itself sets in every
/// container are not among them.
const WITHOUT_EFFECT: [&str; 10] = [
    "AWS_REGION",
    "AWS_USE_FIPS_ENDPOINT",
    "CONTAINER_SANDBOX_MOUNT_POINT",
    "DISABLE_TAINT_WATCHER",
    "GODEBUG",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "KUBECONFIG",
    "NO_PROXY",
    "OTEL_",
];

/// Returns the names of the environment's variables that have no effect here.
pub fn variables_without_effect(names: impl IntoIterator<Item = String>) -> Vec<String> {
    names
        .into_iter()
        .filter(|name| {
            let upper = name.to_ascii_uppercase();
            WITHOUT_EFFECT
                .iter()
                .any(|known| upper == *known || (known.ends_with('_') && upper.starts_with(known)))
        })
        .collect()
}

/// Checked settings of serving.
#[derive(Debug)]
pub struct Settings {
    /// The CSI socket.
    pub endpoint: Endpoint,
    /// The mount-helper.
    pub helper: Target,
    /// The uid of the agent's pod (`POD_UID`); empty when the agent was not told.
    pub pod_uid: String,
    /// Where to register with kubelet; `None` leaves the registration to the stock registrar.
    pub registration: Option<registration::RegistrationTarget>,
    /// The sources of the node's facts.
    pub sources: Sources,
    /// The options of the service.
    pub options: Options,
    /// The address for the metrics, if they are served.
    pub http: HttpFlags,
    /// The grace period of running calls at the end of the process.
    pub grace: Duration,
    /// The format and verbosity of the log.
    pub log: LogFlags,
    /// Given flags that have no effect.
    pub ignored: Vec<&'static str>,
    /// The settings that permit more than the policy does without them.
    pub wider: Vec<String>,
}

fn wrong(flag: &str, why: impl Display) -> Exit {
    Exit::usage(format_args!("{flag}: {why}"))
}

/// Refuses a setting that requests something that this driver does not offer.
fn not_offered(flag: &str, why: &str) -> Exit {
    Exit::setting(format_args!("{flag} is not offered: {why}"))
}

/// Looks up an environment variable by name.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Settings {
    /// Checks the flags and the environment.
    ///
    /// # Errors
    /// [`Exit`] for the first setting that cannot be used.
    pub fn check(flags: Serve, environment: Environment<'_>) -> Result<Self, Exit> {
        if flags.ignored.windows() {
            return Err(not_offered(
                "--windows-host-process",
                "Windows nodes are not supported; keep their present driver",
            ));
        }
        if flags.ignored.metrics_cert_file.is_some() || flags.ignored.metrics_key_file.is_some() {
            return Err(not_offered(
                "--metrics-cert-file",
                "metrics are served as plain HTTP; bind --http-endpoint to loopback and let a proxy add TLS",
            ));
        }
        let slot_settings =
            slot_settings(flags.volume_attach_limit, flags.reserved_volume_attachments)?;
        if environment("CSI_NODE_NAME").is_some_and(|name| name.starts_with(HYPERPOD)) {
            return Err(not_offered(
                "CSI_NODE_NAME",
                "SageMaker HyperPod nodes are not supported: their volumes are attached by another service; keep their present driver",
            ));
        }
        Ok(Self {
            wider: wider(&flags),
            endpoint: flags.endpoint,
            helper: Target::read(&flags.helper, flags.helper_key_file.as_deref())?,
            pod_uid: environment("POD_UID").unwrap_or_default(),
            registration: registration(
                &flags.kubelet_registration_path,
                flags.plugin_registration_path,
            )?,
            sources: Sources {
                order: order(&flags.metadata_sources)?,
                imds: imds_address(environment),
                dmi: PathBuf::from(dmi::DIRECTORY),
                files: flags.node_facts_file,
                timeout: Duration::from_secs(flags.node_facts_timeout),
            },
            options: Options {
                slot_settings,
                legacy_xfs: flags.legacy_xfs,
                volume_health: flags.enable_volume_health,
            },
            http: flags.http,
            grace: Duration::from_secs(flags.grace_period),
            log: flags.log,
            ignored: flags.ignored.names(),
        })
    }
}

/// Returns the settings that permit more than the policy does without them.
fn wider(flags: &Serve) -> Vec<String> {
    let mut given = vec![
        ("--helper", flags.helper.clone()),
        ("--endpoint", flags.endpoint.to_string()),
        ("--plugin-registration-path", flags.plugin_registration_path.display().to_string()),
    ];
    let facts = flags.node_facts_file.iter().map(|file| file.display().to_string());
    given.extend(facts.map(|file| ("--node-facts-file", file)));
    let given: Vec<_> = given.iter().map(|(flag, value)| (*flag, value.as_str())).collect();
    setting::wider("node-agent", &given)
}

/// Parses both values as the stock registrar parses its flags of these names.
fn registration(
    endpoint: &str,
    directory: PathBuf,
) -> Result<Option<registration::RegistrationTarget>, Exit> {
    if endpoint.is_empty() {
        return Ok(None);
    }
    let endpoint = PathBuf::from(endpoint);
    for (flag, path) in
        [("--kubelet-registration-path", &endpoint), ("--plugin-registration-path", &directory)]
    {
        if !path.is_absolute() {
            return Err(wrong(flag, format!("{path:?} is not an absolute path")));
        }
    }
    Ok(Some(registration::RegistrationTarget { directory, endpoint }))
}

fn order(words: &[String]) -> Result<Vec<Source>, Exit> {
    let mut order = Vec::new();
    for word in words {
        let source = match word.trim().to_ascii_lowercase().as_str() {
            "imds" => Source::Imds,
            // The node facts file has the counts that the labeler's labels had.
            "kubernetes" | "metadata-labeler" => Source::Kubernetes,
            _ => {
                let why = "is not a source; give imds, kubernetes, or both with a comma";
                return Err(wrong("--metadata-sources", format!("{word:?} {why}")));
            }
        };
        // A second read of the same source gives no further facts.
        if !order.contains(&source) {
            order.push(source);
        }
    }
    Ok(order)
}

fn slot_settings(limit: i64, reserved: i64) -> Result<SlotSettings, Exit> {
    let read = |flag, value: i64| match value {
        -1 => Ok(None),
        value => {
            u32::try_from(value).ok().filter(|number| *number <= 1000).map(Some).ok_or_else(|| {
                wrong(flag, format!("{value} is not a number from 0 to 1000, nor -1"))
            })
        }
    };
    let slot_settings = SlotSettings {
        limit: read("--volume-attach-limit", limit)?,
        reserved: read("--reserved-volume-attachments", reserved)?,
    };
    if slot_settings.limit.is_some() && slot_settings.reserved.is_some() {
        let why = "cannot be given together with --reserved-volume-attachments; give one of them";
        return Err(wrong("--volume-attach-limit", why));
    }
    Ok(slot_settings)
}

fn imds_address(environment: Environment<'_>) -> Result<imds::Address, String> {
    if environment("AWS_EC2_METADATA_DISABLED")
        .is_some_and(|value| value.eq_ignore_ascii_case("true"))
    {
        return Err("AWS_EC2_METADATA_DISABLED is true".to_owned());
    }
    imds::address(
        environment("AWS_EC2_METADATA_SERVICE_ENDPOINT").as_deref(),
        environment("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE").as_deref(),
    )
}

#[cfg(test)]
mod tests;
