//! The command line: the Go driver's flags of node mode, and ours.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use ebs_csi_proto::Endpoint;
use ebs_csi_proto::observe::LogFlags;
use ebs_csi_proto::program::HttpFlags;

/// The subcommand of the child that rehearses the confinement.
pub const REHEARSE: &str = "enter-profile";

/// Serves CSI Node and Identity; everything that needs a privilege is asked of the mount-helper.
#[derive(Debug, Parser)]
#[command(
    name = "ebs-csi-node-agent",
    version,
    disable_help_subcommand = true,
    args_conflicts_with_subcommands = true
)]
pub struct CommandLine {
    /// Serving.
    #[command(flatten)]
    pub serve: Serve,
    /// Another job than serving.
    #[command(subcommand)]
    pub job: Option<Job>,
}

/// A job beside serving.
#[derive(Debug, Subcommand)]
pub enum Job {
    /// Waits, while the node is being drained, until no volume is staged on it any more.
    PreStopHook(PreStop),
    /// Looks at the node without changing it: what the driver finds there, and what it lacks.
    Preflight(Preflight),
    /// Gives the directories of the agent's sockets to the agent's user, as root, so that the agent
    /// itself can start as that user.
    GiveDirectories(GiveDirectories),
    /// Prints a page on which each metric has a sample.
    #[command(hide = true)]
    Metrics,
    /// Confines itself like the service and ends.
    #[command(name = REHEARSE, hide = true)]
    EnterProfile,
}

/// Flags of the pre-stop hook.
#[derive(Debug, Args)]
pub struct PreStop {
    /// The mount-helper: unix:///PATH, or in a virtual machine vsock://CID:PORT or
    /// hvsock:///SOCKET:PORT.
    #[arg(long, value_name = "ADDRESS", default_value = DEFAULT_HELPER)]
    pub helper: String,
    /// The key that a mount-helper in a virtual machine has, too: 32 to 4096 bytes, mode 0400.
    #[arg(long, value_name = "FILE")]
    pub helper_key_file: Option<PathBuf>,
    /// File with the labels and annotations of the node-agent's pod; may be given several times.
    #[arg(long, value_name = "FILE")]
    pub node_facts_file: Vec<PathBuf>,
    /// The longest wait, in seconds; shorter than the pod's termination grace period.
    #[arg(long, default_value_t = 25)]
    pub timeout: u64,
    /// Kubelet's registration directory, as this process sees it.
    #[arg(long, value_name = "DIRECTORY", default_value = "/registration")]
    pub plugin_registration_path: PathBuf,
}

/// The directories that are given away.
#[derive(Debug, Args)]
pub struct GiveDirectories {
    /// The directory of the CSI socket.
    #[arg(long, value_name = "DIRECTORY", default_value = "/csi")]
    pub socket_directory: PathBuf,
    /// Kubelet's registration directory: the agent gets the directory ebs-csi in it.
    #[arg(long, value_name = "DIRECTORY", default_value = "/plugins_registry")]
    pub plugin_registration_path: PathBuf,
}

/// Flags of the look at a node.
#[derive(Debug, Args)]
pub struct Preflight {
    /// Lines of text, or one JSON object.
    #[arg(long, value_enum, default_value = "text")]
    pub output: Output,
    /// Where the node's root directory is.
    #[arg(long, value_name = "DIRECTORY", default_value = "/")]
    pub host_root: PathBuf,
    /// Kubelet's root directory on the node.
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/lib/kubelet")]
    pub kubelet_root: PathBuf,
}

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// One line for each check.
    Text,
    /// `{"runs": …, "checks": […]}`.
    Json,
}

/// Where the mount-helper listens in a pod.
const DEFAULT_HELPER: &str = "unix:///run/ebs-csi/helper.sock";

/// Flags of serving.
#[derive(Debug, Args)]
pub struct Serve {
    /// The CSI socket: unix:///path or tcp://address:port.
    #[arg(long, default_value = "unix://tmp/csi.sock")]
    pub endpoint: Endpoint,
    /// The mount-helper: unix:///PATH, or in a virtual machine vsock://CID:PORT or
    /// hvsock:///SOCKET:PORT.
    #[arg(long, value_name = "ADDRESS", default_value = DEFAULT_HELPER)]
    pub helper: String,
    /// The key that a mount-helper in a virtual machine has, too: 32 to 4096 bytes, mode 0400.
    #[arg(long, value_name = "FILE")]
    pub helper_key_file: Option<PathBuf>,
    /// The CSI socket as kubelet sees it: the agent registers itself with kubelet. Empty leaves
    /// that to a registrar beside it.
    #[arg(long, value_name = "FILE", default_value = "")]
    pub kubelet_registration_path: String,
    /// Kubelet's registration directory, as this process sees it.
    #[arg(long, value_name = "DIRECTORY", default_value = "/registration")]
    pub plugin_registration_path: PathBuf,
    /// Who knows this node, in this order: imds, kubernetes.
    #[arg(long, value_delimiter = ',', default_value = "imds,kubernetes")]
    pub metadata_sources: Vec<String>,
    /// File with the labels and annotations of the node-agent's pod; may be given several times.
    #[arg(long, value_name = "FILE")]
    pub node_facts_file: Vec<PathBuf>,
    /// Seconds that the node facts files have to say enough, before the next source is asked or the
    /// agent serves without facts.
    #[arg(long, default_value_t = 60)]
    pub node_facts_timeout: u64,
    /// Volumes that the node takes, whatever its instance type says; -1 leaves it to the type.
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    pub volume_attach_limit: i64,
    /// Attachment slots that the driver does not get; -1 counts what is attached.
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    pub reserved_volume_attachments: i64,
    /// Make XFS file systems that kernels before 5.10 can mount.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub legacy_xfs: bool,
    /// Offer the alpha calls NodeGetVolumeHealth and NodeGetStorageHealth.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub enable_volume_health: bool,
    /// Metrics and health.
    #[command(flatten)]
    pub http: HttpFlags,
    /// Seconds that running calls get when the process is told to end.
    #[arg(long, default_value_t = 10)]
    pub grace_period: u64,
    /// Level and format of the log.
    #[command(flatten)]
    pub log: LogFlags,
    /// Without effect.
    #[command(flatten)]
    pub ignored: Ignored,
}

/// Flags of the Go driver that have no meaning here. They are accepted so that its arguments need
/// no change.
#[derive(Debug, Args)]
pub struct Ignored {
    #[arg(long, hide = true)]
    kubeconfig: Option<String>,
    #[arg(long, hide = true)]
    csi_mount_point_prefix: Option<String>,
    #[arg(long, hide = true)]
    vmodule: Option<String>,
    #[arg(long, hide = true)]
    log_flush_frequency: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    logtostderr: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_otel_tracing: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    windows_host_process: Option<bool>,
    /// TLS for the metrics is not offered: refused when given, since silence would serve them in
    /// clear text.
    #[arg(long, hide = true)]
    pub(crate) metrics_cert_file: Option<String>,
    /// As above.
    #[arg(long, hide = true)]
    pub(crate) metrics_key_file: Option<String>,
}

impl Ignored {
    /// Returns the given flags that have no effect.
    pub fn names(&self) -> Vec<&'static str> {
        [
            ("--kubeconfig", self.kubeconfig.is_some()),
            ("--csi-mount-point-prefix", self.csi_mount_point_prefix.is_some()),
            ("--vmodule", self.vmodule.is_some()),
            ("--log-flush-frequency", self.log_flush_frequency.is_some()),
            ("--logtostderr", self.logtostderr == Some(true)),
            ("--enable-otel-tracing", self.enable_otel_tracing == Some(true)),
        ]
        .into_iter()
        .filter_map(|(name, given)| given.then_some(name))
        .collect()
    }

    pub(crate) fn windows(&self) -> bool {
        self.windows_host_process == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebs_csi_proto::program::{self, Exit};

    fn parse(line: &str) -> Result<CommandLine, Exit> {
        program::parse(line.split_whitespace().map(Into::into))
    }

    #[test]
    fn the_go_drivers_node_arguments_are_accepted() {
        let line = "--endpoint=unix:///csi/csi.sock --csi-mount-point-prefix=/var/lib/kubelet/plugins/ --logging-format=text \
                    --v=2 --reserved-volume-attachments=1 --metadata-sources=imds,kubernetes --legacy-xfs=true --http-endpoint=0.0.0.0:3302 \
                    --enable-otel-tracing=false --kubeconfig=/k --vmodule=a=1 --log-flush-frequency=5s --logtostderr";
        let serve = parse(line).unwrap().serve;
        assert_eq!(serve.endpoint, Endpoint::Unix("/csi/csi.sock".into()));
        assert!(serve.legacy_xfs);
        assert_eq!(serve.reserved_volume_attachments, 1);
        assert_eq!(serve.metadata_sources, ["imds", "kubernetes"]);
        assert_eq!(
            serve.ignored.names(),
            [
                "--kubeconfig",
                "--csi-mount-point-prefix",
                "--vmodule",
                "--log-flush-frequency",
                "--logtostderr"
            ]
        );
    }

    #[test]
    fn switches_accept_equals_value_or_none() {
        for (line, want) in [("", false), ("--legacy-xfs", true), ("--legacy-xfs=false", false)] {
            assert_eq!(parse(line).unwrap().serve.legacy_xfs, want, "{line}");
        }
        let negative = parse("--volume-attach-limit -1").unwrap().serve;
        assert_eq!(negative.volume_attach_limit, -1);
    }

    #[test]
    fn pre_stop_hook_parses_as_subcommand() {
        let line = parse("pre-stop-hook --timeout 3").unwrap();
        assert!(matches!(line.job, Some(Job::PreStopHook(PreStop { timeout: 3, .. }))));
        assert!(parse("serve").unwrap_err().to_string().contains("serve"));
        assert!(matches!(parse("--version"), Err(Exit::Print(_))));
    }
}
