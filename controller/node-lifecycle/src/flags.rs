//! The command line, checked.

use std::ffi::OsString;
use std::ops::RangeBounds;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, ValueEnum};
use ebs_csi_proto::observe::LogFlags;
use ebs_csi_proto::program::{self, Exit, HttpFlags};
use ebs_csi_safe_detach::Mode;
use ebs_csi_safe_detach::lifecycle::{self, FailoverMode};

/// The version, as the driver's other processes report it.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// What failover does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Failover {
    /// Nothing: nodes' answers go to the controller, and that is all.
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

/// Parses the controller's `--safe-detach`.
fn modes() -> impl TypedValueParser<Value = Mode> {
    PossibleValuesParser::new(Mode::ALL.map(Mode::label)).try_map(|text| text.parse::<Mode>())
}

fn seconds(range: impl RangeBounds<i64>) -> impl TypedValueParser<Value = Duration> {
    clap::value_parser!(u32).range(range).map(|seconds| Duration::from_secs(seconds.into()))
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
pub enum FenceWhen {
    /// Its status check or its host's fails: it hangs, or its host has failed.
    Impaired,
    /// That it runs, whatever its checks say: one that is only cut off is fenced, too.
    Lost,
}

impl From<FenceWhen> for lifecycle::FenceWhen {
    fn from(flag: FenceWhen) -> Self {
        match flag {
            FenceWhen::Impaired => Self::Impaired,
            FenceWhen::Lost => Self::Lost,
        }
    }
}

/// The Kubernetes side of a node's death and return.
#[derive(Clone, Debug, Parser)]
#[command(name = "ebs-csi-node-lifecycle", version = VERSION)]
pub struct Config {
    /// The controller's socket for this process.
    #[arg(
        long,
        value_name = "unix:///PATH",
        default_value = "unix:///var/lib/csi/safe-detach/safe-detach.sock"
    )]
    safe_detach_endpoint: String,
    /// The path of that socket.
    #[arg(skip)]
    pub socket: PathBuf,
    /// What is done when a node dies.
    #[arg(long, value_enum, default_value_t = Failover::ProveFirst)]
    pub failover: Failover,
    /// The controller's --safe-detach. Kep needs enforce.
    #[arg(long, value_name = "MODE", value_parser = modes())]
    safe_detach: Option<Mode>,
    /// Have the controller stop or terminate the instance of a node that carries the label
    /// ebs.csi.aws.com/fence=true and has not been Ready for long, while EC2 says that it runs, so
    /// that its pods can move. The controller needs --safe-detach-fence, too.
    #[arg(long, value_enum, default_value_t = Fence::Off)]
    pub fence: Fence,
    /// What EC2 must say of such an instance, which runs.
    #[arg(long, value_enum, default_value_t = FenceWhen::Impaired)]
    pub fence_when: FenceWhen,
    /// How long this process must have seen such a node not Ready.
    #[arg(long = "fence-after-seconds", value_name = "SECONDS", default_value = "300", value_parser = seconds(5..))]
    pub fence_after: Duration,
    /// Whether the startup taint ebs.csi.aws.com/agent-not-ready is taken from nodes where the
    /// driver is ready.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub onboarding: Switch,
    /// Whether the facts about its node (zone, region, instance, type) that a node-agent's pod
    /// lacks, and the attachment limit that EC2 tells, are written to the pod, as annotations.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub node_facts: Switch,
    /// Whether the annotation ebs.csi.aws.com/draining of a node-agent's pod follows the taints by
    /// which its node is drained.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub drain_annotation: Switch,
    /// Namespaces of the node-agents' pods; unset: that of --namespace.
    #[arg(long, value_name = "NAMESPACE,...", value_delimiter = ',')]
    pub node_namespaces: Vec<String>,
    /// Namespace of the leader election's lease and of the kill switch.
    #[arg(long, env = "POD_NAMESPACE", default_value = "kube-system")]
    pub namespace: String,
    /// Who this process is among its replicas; unset: the host's name.
    #[arg(long = "identity", value_name = "IDENTITY", env = "POD_NAME")]
    given_identity: Option<String>,
    /// This process's name among its replicas.
    #[arg(skip)]
    pub identity: String,
    /// How long a leader that is not heard of keeps its place.
    #[arg(long = "lease-duration-seconds", value_name = "SECONDS", default_value = "15", value_parser = seconds(5..=300))]
    pub lease_duration: Duration,
    /// How often the controller is asked about nodes that are suspect.
    #[arg(long = "query-interval-seconds", value_name = "SECONDS", default_value = "3", value_parser = seconds(1..=60))]
    pub query_interval: Duration,
    /// Where metrics and health are served.
    #[command(flatten)]
    pub http: HttpFlags,
    /// A kubeconfig file; unset: the pod's service account.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Level and format of the log.
    #[command(flatten)]
    pub log: LogFlags,
}

impl Config {
    /// Parses the command line, without the program's name.
    ///
    /// # Errors
    /// [`Exit`]: the help, the version, or a wrong flag.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, Exit> {
        let mut config: Self = program::parse(arguments)?;
        if config.failover == Failover::Kep && config.safe_detach != Some(Mode::Enforce) {
            return Err(Exit::usage(
                "--failover=kep needs --safe-detach=enforce, here and in the controller: otherwise a node that runs and is cut off loses its volumes while it writes to them",
            ));
        }
        let path = config.safe_detach_endpoint.strip_prefix("unix://");
        let path = path.filter(|path| path.starts_with('/') && path.len() < 108);
        let path = path.ok_or_else(|| {
            Exit::usage(format_args!(
                "--safe-detach-endpoint {:?} cannot be used; give unix:///path, up to 107 bytes",
                config.safe_detach_endpoint
            ))
        })?;
        config.socket = path.into();
        let identity = config.given_identity.take().filter(|name| !name.is_empty());
        config.identity = identity.unwrap_or_else(hostname);
        if config.node_namespaces.is_empty() {
            config.node_namespaces.push(config.namespace.clone());
        }
        config.node_namespaces.sort();
        config.node_namespaces.dedup();
        config.kubeconfig = config.kubeconfig.filter(|path| !path.as_os_str().is_empty());
        Ok(config)
    }
}

fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "node-lifecycle".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> Result<Config, Exit> {
        Config::read(arguments.iter().map(OsString::from))
    }

    #[test]
    fn default_is_prove_first_without_http_or_fence() {
        let config = read(&[]).unwrap();
        assert_eq!(config.failover, Failover::ProveFirst);
        assert_eq!(config.http.address(), None);
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
            let Err(Exit::Failure { status: 64, line }) = read(&arguments) else {
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
        assert_eq!(config.http.address(), Some("[::]:8085".parse().unwrap()));
    }
}
