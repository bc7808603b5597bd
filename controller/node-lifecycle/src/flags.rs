//! The command line, checked.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use ebs_csi_proto::observe::LogFormat;
use ebs_csi_safe_detach::lifecycle::{FailoverMode, FenceWhen};

/// The version, as the driver's other processes report it.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// What failover does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Failover {
    /// Nothing: kubelet's reports go to the controller, and that is all.
    Off,
    /// A pod is deleted by force when every volume of it is proved free.
    ProveFirst,
    /// A pod that Kubernetes has asked to end is deleted by force; the controller refuses the
    /// detach when it is not safe.
    Kep,
}

impl Failover {
    /// Returns the mode of the steps; `None` when no step is computed.
    pub const fn mode(self) -> Option<FailoverMode> {
        match self {
            Self::Off => None,
            Self::ProveFirst => Some(FailoverMode::ProveFirst),
            Self::Kep => Some(FailoverMode::Kep),
        }
    }
}

/// How much the controller must have proved before a volume leaves a node: its `--safe-detach`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SafeDetach {
    Off,
    Ec2Only,
    Enforce,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LoggingFormat {
    Text,
    Json,
}

/// What is done to an instance that runs while its node is not Ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fence {
    /// Nothing: a person decides.
    Off,
    /// It is stopped.
    Stop,
    /// It is terminated.
    Terminate,
}

/// Whether something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// It is done.
    On,
    /// It is left alone.
    Off,
}

/// What EC2 must say of an instance before it is fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FenceWhenFlag {
    /// Its status check or its host's fails: it hangs, or its host has failed.
    Impaired,
    /// That it runs, whatever its checks say: one that is only cut off is fenced, too.
    Lost,
}

impl FenceWhenFlag {
    /// Returns the condition of the fence.
    pub const fn to_condition(self) -> FenceWhen {
        match self {
            Self::Impaired => FenceWhen::Impaired,
            Self::Lost => FenceWhen::Lost,
        }
    }
}

/// The Kubernetes side of a node's death and return.
#[derive(Debug, Parser)]
#[command(name = "ebs-csi-node-lifecycle", version = VERSION)]
struct Flags {
    /// The controller's socket for this process.
    #[arg(
        long,
        value_name = "unix:///PATH",
        default_value = "unix:///var/lib/csi/safe-detach/safe-detach.sock"
    )]
    safe_detach_endpoint: String,
    /// What is done when a node dies.
    #[arg(long, value_enum, default_value_t = Failover::ProveFirst)]
    failover: Failover,
    /// The controller's --safe-detach. Kep needs enforce.
    #[arg(long, value_enum, value_name = "MODE")]
    safe_detach: Option<SafeDetach>,
    /// Have the controller stop or terminate the instance of a node that carries the label
    /// ebs.csi.aws.com/fence=true and has not been Ready for long, while EC2 says that it runs, so
    /// that its pods can move. The controller needs --safe-detach-fence, too.
    #[arg(long, value_enum, default_value_t = Fence::Off)]
    fence: Fence,
    /// What EC2 must say of such an instance, which runs.
    #[arg(long, value_enum, default_value_t = FenceWhenFlag::Impaired)]
    fence_when: FenceWhenFlag,
    /// How long this process must have seen such a node not Ready.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(5..))]
    fence_after_seconds: u32,
    /// Whether the startup taint ebs.csi.aws.com/agent-not-ready is taken from nodes where the
    /// driver is ready.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    onboarding: Switch,
    /// Whether the facts about its node (zone, region, instance, type) that a node-agent's pod
    /// lacks are written to the pod, as annotations.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    node_facts: Switch,
    /// Whether the annotation ebs.csi.aws.com/draining of a node-agent's pod follows the taints by
    /// which its node is drained.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    drain_annotation: Switch,
    /// Namespaces of the node-agents' pods; unset: that of --namespace.
    #[arg(long, value_name = "NAMESPACE,...", value_delimiter = ',')]
    node_namespaces: Vec<String>,
    /// Namespace of the leader election's lease and of the kill switch.
    #[arg(long, env = "POD_NAMESPACE", default_value = "kube-system")]
    namespace: String,
    /// Who this process is among its replicas; unset: the host's name.
    #[arg(long, env = "POD_NAME")]
    identity: Option<String>,
    /// How long a leader that is not heard of keeps its place.
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u16).range(5..=300))]
    lease_duration_seconds: u16,
    /// How often the controller is asked about nodes that are suspect.
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=60))]
    query_interval_seconds: u16,
    /// Where metrics and health are served (`:8085`, `127.0.0.1:8085`); empty: nowhere.
    #[arg(long, value_name = "ADDRESS", default_value = "")]
    http_endpoint: String,
    /// A kubeconfig file; unset: the pod's service account.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Log format.
    #[arg(long, value_enum, default_value = "text")]
    logging_format: LoggingFormat,
    /// Log level: up to 3 info, 4 and 5 debug, above that trace.
    #[arg(long = "v", value_name = "LEVEL", default_value_t = 2)]
    verbosity: u8,
}

/// The checked command line.
#[derive(Clone, Debug)]
pub struct Config {
    /// The controller's socket.
    pub socket: PathBuf,
    /// The mode of failover.
    pub failover: Failover,
    /// How the instance of a lost node is treated.
    pub fence: Fence,
    /// What EC2 must report about the instance.
    pub fence_when: FenceWhen,
    /// How long the node must have been lost before.
    pub fence_after: Duration,
    /// Whether the startup taint is removed.
    pub onboarding: Switch,
    /// Whether node-agents' pods get missing facts about their nodes.
    pub node_facts: Switch,
    /// Whether node-agents' pods are annotated while their nodes are drained.
    pub drain_annotation: Switch,
    /// The namespaces of the node-agents' pods.
    pub node_namespaces: Vec<String>,
    /// The namespace of the Lease and of the kill switch.
    pub namespace: String,
    /// This process's name among its replicas.
    pub identity: String,
    /// How long a silent leader keeps the Lease.
    pub lease_duration: Duration,
    /// The interval between two queries of the controller.
    pub query_interval: Duration,
    /// The address of the metrics.
    pub http_address: Option<SocketAddr>,
    /// The kubeconfig file, instead of the service account.
    pub kubeconfig: Option<PathBuf>,
    /// Log format.
    pub log_format: LogFormat,
    /// Log level.
    pub verbosity: u8,
}

/// Why the process ends before it starts.
#[derive(Debug, PartialEq, Eq)]
pub enum EarlyExit {
    /// Print this text on standard output and exit with success.
    Print(String),
    /// The command line is wrong (exit 64): one line.
    Usage(String),
}

impl Config {
    /// Parses the command line, without the program's name.
    ///
    /// # Errors
    /// [`EarlyExit`].
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, EarlyExit> {
        let command_line =
            std::iter::once(OsString::from("ebs-csi-node-lifecycle")).chain(arguments);
        let flags = Flags::try_parse_from(command_line).map_err(|error| early_exit(&error))?;
        if flags.failover == Failover::Kep && flags.safe_detach != Some(SafeDetach::Enforce) {
            return Err(EarlyExit::Usage(
                "--failover=kep needs --safe-detach=enforce, here and in the controller: otherwise a node that runs and is cut off loses its volumes while it writes to them"
                    .to_owned(),
            ));
        }
        let socket = flags
            .safe_detach_endpoint
            .strip_prefix("unix://")
            .filter(|path| path.starts_with('/') && path.len() < 108)
            .ok_or_else(|| {
                EarlyExit::Usage(format!(
                    "--safe-detach-endpoint {:?} cannot be used; give unix:///path, up to 107 bytes",
                    flags.safe_detach_endpoint
                ))
            })?;
        let http_address = match flags.http_endpoint.as_str() {
            "" => None,
            address => {
                let full_address = match address.strip_prefix(':') {
                    Some(port) => format!("[::]:{port}"),
                    None => address.to_owned(),
                };
                let parsed = full_address.parse().map_err(|_| {
                    EarlyExit::Usage(format!(
                        "--http-endpoint {address:?} is not an address; give :PORT or IP:PORT"
                    ))
                })?;
                Some(parsed)
            }
        };
        let identity = match flags.identity.filter(|name| !name.is_empty()) {
            Some(name) => name,
            None => hostname(),
        };
        Ok(Self {
            socket: socket.into(),
            failover: flags.failover,
            fence: flags.fence,
            fence_when: flags.fence_when.to_condition(),
            fence_after: Duration::from_secs(flags.fence_after_seconds.into()),
            onboarding: flags.onboarding,
            node_facts: flags.node_facts,
            drain_annotation: flags.drain_annotation,
            node_namespaces: match flags.node_namespaces {
                none if none.is_empty() => vec![flags.namespace.clone()],
                mut some => {
                    some.sort();
                    some.dedup();
                    some
                }
            },
            namespace: flags.namespace,
            identity,
            lease_duration: Duration::from_secs(flags.lease_duration_seconds.into()),
            query_interval: Duration::from_secs(flags.query_interval_seconds.into()),
            http_address,
            kubeconfig: flags.kubeconfig.filter(|path| !path.as_os_str().is_empty()),
            log_format: match flags.logging_format {
                LoggingFormat::Text => LogFormat::Text,
                LoggingFormat::Json => LogFormat::Json,
            },
            verbosity: flags.verbosity,
        })
    }
}

fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "node-lifecycle".to_owned(),
        name => name.to_owned(),
    }
}

/// Returns the whole text of the help; shortens an error to its first line.
pub(crate) fn early_exit(error: &clap::Error) -> EarlyExit {
    if !error.use_stderr() {
        return EarlyExit::Print(error.to_string());
    }
    let text = error.to_string();
    let line = text.lines().next().unwrap_or("bad command line");
    EarlyExit::Usage(line.trim_start_matches("error: ").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> Result<Config, EarlyExit> {
        Config::read(arguments.iter().map(OsString::from))
    }

    #[test]
    fn default_is_prove_first_without_http_or_fence() {
        let config = read(&[]).unwrap();
        assert_eq!(config.failover, Failover::ProveFirst);
        assert_eq!(config.http_address, None);
        assert_eq!(config.onboarding, Switch::On);
        assert_eq!(config.fence, Fence::Off);
        assert_eq!(config.fence_when, FenceWhen::Impaired);
        assert_eq!(config.fence_after, Duration::from_secs(300));
        assert_eq!(config.lease_duration, Duration::from_secs(15));
    }

    #[test]
    fn node_namespaces_default_to_own_namespace() {
        assert_eq!(read(&["--namespace=x"]).unwrap().node_namespaces, ["x"]);
        let given = read(&["--namespace=x", "--node-namespaces=b,a,b"]).unwrap();
        assert_eq!(given.node_namespaces, ["a", "b"]);
    }

    #[test]
    fn invalid_flag_is_refused_in_one_line() {
        for arguments in [
            ["--safe-detach-endpoint=tcp://127.0.0.1:1"],
            ["--safe-detach-endpoint=unix://relative"],
            ["--http-endpoint=localhost"],
            ["--failover=force"],
            ["--failover=kep"],
            ["--fence-when=always"],
            ["--lease-duration-seconds=1"],
            ["--no-such-flag"],
        ] {
            let Err(EarlyExit::Usage(line)) = read(&arguments) else {
                panic!("{arguments:?} was taken");
            };
            assert!(!line.is_empty() && !line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn kep_needs_enforce() {
        let with = |mode: &str| read(&["--failover=kep", &format!("--safe-detach={mode}")]);
        assert!(with("off").is_err() && with("ec2-only").is_err());
        assert_eq!(with("enforce").unwrap().failover, Failover::Kep);
        assert!(read(&["--failover=prove-first", "--safe-detach=ec2-only"]).is_ok());
    }

    #[test]
    fn http_endpoint_port_alone_binds_all_addresses() {
        let config = read(&["--http-endpoint=:8085"]).unwrap();
        assert_eq!(config.http_address, Some("[::]:8085".parse().unwrap()));
    }
}
