//! The command line as clap parses it.

use std::time::Duration;

use clap::{ArgAction, Parser, ValueEnum};
use ebs_csi_proto::Endpoint;
use ebs_csi_proto::observe::LogFlags;
use ebs_csi_proto::program::HttpFlags;

use super::flag_syntax::{
    Gates, Rates, boolean, duration, gates, labelled, metadata_sources, rates,
};
use crate::process::probe::ProbeAws;
use crate::safe_detach::{FencePermission, Mode, OldAgents};

/// What node-lifecycle does when a node dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Failover {
    Off,
    ProveFirst,
    Kep,
}

/// The CSI Controller service for Amazon EBS. Serves CSI Controller and Identity on a socket and
/// holds the AWS credentials.
///
/// Environment: AWS_REGION, AWS_EC2_ENDPOINT, AWS_CA_BUNDLE, what the AWS SDK reads (credentials,
/// AWS_ENDPOINT_URL*, AWS_USE_FIPS_ENDPOINT, proxies), NODE_REGION (the node's label), and OTEL_*
/// for traces.
#[derive(Debug, Parser)]
#[command(name = "ebs-csi-controller", disable_version_flag = true, args_override_self = true)]
pub(super) struct Flags {
    /// The CSI socket: unix:///path or tcp://address:port.
    #[arg(long, value_name = "URL", default_value = "unix://tmp/csi.sock")]
    pub(super) endpoint: Endpoint,
    #[command(flatten)]
    pub(super) http: HttpFlags,
    /// Serve the HTTP endpoint over TLS with this certificate chain (PEM); read again when it
    /// changes.
    #[arg(long, value_name = "FILE", default_value = "")]
    pub(super) metrics_cert_file: String,
    /// The certificate's key (PEM).
    #[arg(long, value_name = "FILE", default_value = "")]
    pub(super) metrics_key_file: String,
    /// What Probe says about AWS.
    #[arg(long, value_enum, value_name = "WHEN", default_value = "startup")]
    pub(super) probe_aws: ProbeAws,
    /// How long calls that are running may go on after SIGTERM.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = duration)]
    pub(super) drain_timeout: Duration,
    /// Tags for everything that is made: key=value,key=value. May be given several times.
    #[arg(long, value_name = "TAGS")]
    pub(super) extra_tags: Vec<String>,
    /// Tags for volumes that are made, likewise.
    #[arg(long, value_name = "TAGS")]
    pub(super) extra_volume_tags: Vec<String>,
    /// The cluster's id, put into tags.
    #[arg(long, value_name = "ID", default_value = "")]
    pub(super) k8s_tag_cluster_id: String,
    /// Leave an invalid tag out instead of refusing the volume.
    #[arg(long, value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub(super) warn_on_invalid_tag: bool,
    /// How long a resize and a modification of one volume wait for each other.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub(super) modify_volume_request_handler_timeout: Duration,
    /// How long after its start this process looks again for a snapshot that the process before it
    /// may have asked EC2 for: longer than EC2's look-ups by tag lag.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub(super) snapshot_takeover_wait: Duration,
    /// Accept volume handles that begin with local-ebs://.
    #[arg(long, value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub(super) enable_node_local_volumes: bool,
    /// How much must be proved before a volume leaves a node. Counts only with
    /// --feature-gates=NonGracefulFailover=true.
    #[arg(long, value_parser = labelled(Mode::ALL, Mode::label), value_name = "MODE", default_value = "off")]
    pub(super) safe_detach: Mode,
    /// Serve SafeDetach for node-lifecycle here: unix:///path. With --safe-detach=off this socket
    /// tells what EC2 says of instance types, and nothing else.
    #[arg(long, value_name = "URL")]
    pub(super) safe_detach_endpoint: Option<Endpoint>,
    /// User ids that may call SafeDetach, separated by commas.
    #[arg(long, value_name = "UIDS", value_delimiter = ',')]
    pub(super) safe_detach_peers: Vec<u32>,
    /// What SafeDetach may do to an instance: nothing, stop it, or stop and terminate it.
    #[arg(long, value_parser = labelled(FencePermission::ALL, FencePermission::label), value_name = "LEAVE", default_value = "off")]
    pub(super) safe_detach_fence: FencePermission,
    /// Instances that are fenced within ten minutes, at most.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(super) safe_detach_fence_limit: u32,
    /// What counts, with --safe-detach=enforce, of a node whose node-agent is older than the page
    /// that says what the kernel holds: kubelet's report, or nothing.
    #[arg(long, value_parser = labelled(OldAgents::ALL, OldAgents::label), value_name = "EVIDENCE", default_value = "kubelet-report")]
    pub(super) safe_detach_old_agents: OldAgents,
    /// What node-lifecycle does beside this process when a node dies: its --failover. Kep needs
    /// --safe-detach=enforce.
    #[arg(long, value_enum, value_name = "MODE", default_value = "off")]
    pub(super) safe_detach_failover: Failover,
    /// Feature gates: NonGracefulFailover=true|false (alpha, default false).
    #[arg(long, value_name = "GATES", default_value = "", value_parser = gates)]
    pub(super) feature_gates: Gates,
    /// Offer snapshots of several volumes at one moment (CSI GroupController).
    #[arg(long, value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub(super) enable_group_snapshots: bool,
    /// Offer the volume health calls, which are alpha in the CSI specification.
    #[arg(long, value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub(super) enable_volume_health: bool,
    /// Serve the API metrics under their older names, too.
    #[arg(long, value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub(super) deprecated_metrics: bool,
    /// Export traces by OTLP, to OTEL_EXPORTER_OTLP_ENDPOINT or localhost; setting that variable
    /// does the same.
    #[arg(long, value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub(super) enable_otel_tracing: bool,
    /// Log the AWS SDK's own events, too (without secrets, with the ids of access keys).
    #[arg(long, value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub(super) aws_sdk_debug_log: bool,
    /// Added to the user agent.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(super) user_agent_extra: String,
    /// Request rates to begin with, where they differ from EC2's documented ones:
    /// ACTION=CAPACITY/REFILL, separated by commas; "all" for every action. The controller learns
    /// from there what EC2 accepts.
    #[arg(long, value_name = "RATES", default_value = "", value_parser = rates)]
    pub(super) ec2_request_rates: Rates,
    /// Request rates that are never exceeded, written likewise, for an account that others use too.
    #[arg(long, value_name = "RATES", default_value = "", value_parser = rates)]
    pub(super) ec2_max_request_rates: Rates,
    /// Where the Region may come from besides AWS_REGION and the AWS profile: kubernetes
    /// (NODE_REGION), imds, metadata-labeler; instance metadata is always asked last.
    #[arg(long, value_name = "LIST", default_value = "imds,kubernetes", value_parser = metadata_sources)]
    pub(super) metadata_sources: String,
    #[command(flatten)]
    pub(super) log: LogFlags,
    /// Print the version as JSON.
    #[arg(long, action = ArgAction::SetTrue)]
    pub(super) version: bool,
    #[command(flatten)]
    pub(super) without_effect: WithoutEffect,
}

/// Flags of the Go driver that are accepted so that its manifests keep working, and that have no
/// meaning here.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Accepted, without a meaning here")]
pub(super) struct WithoutEffect {
    #[arg(long, value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    batching: Option<bool>,
    #[arg(long, value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    logtostderr: Option<bool>,
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<String>,
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

impl WithoutEffect {
    pub(super) fn given(&self) -> Vec<(&'static str, &'static str)> {
        let rows = [
            ("batching", self.batching.is_some(), "calls to EC2 are always shared"),
            ("logtostderr", self.logtostderr.is_some(), "the log is always on standard error"),
            ("kubeconfig", self.kubeconfig.is_some(), "the controller does not talk to Kubernetes"),
            ("vmodule", self.vmodule.is_some(), "use RUST_LOG"),
            ("log-flush-frequency", self.log_flush_frequency.is_some(), "the log is not buffered"),
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
        rows.into_iter().filter(|(_, given, _)| *given).map(|(name, _, why)| (name, why)).collect()
    }
}
