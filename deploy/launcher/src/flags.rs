//! Which process accepts which flag. Modes `node` and `all` split their command line by this table.

/// The processes that flags belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// ebs-csi-controller.
    Controller,
    /// ebs-csi-node-agent.
    NodeAgent,
    /// ebs-csi-mount-helper.
    MountHelper,
    /// This program.
    Launcher,
}

/// One flag, by its name without hyphens.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// The flag's name.
    pub name: &'static str,
    /// Whether the flag is a switch. A switch stands alone or has its value behind `=`; other flags
    /// also take the next argument as their value.
    pub switch: bool,
    /// The processes that know the flag.
    pub known_by: &'static [Process],
}

use Process::{Controller, Launcher, MountHelper, NodeAgent};

const fn value(name: &'static str, known_by: &'static [Process]) -> Flag {
    Flag { name, switch: false, known_by }
}

const fn switch(name: &'static str, known_by: &'static [Process]) -> Flag {
    Flag { name, switch: true, known_by }
}

/// All flags of the driver's processes that may appear on one command line.
pub const FLAGS: &[Flag] = &[
    value("endpoint", &[Launcher]),
    value("runtime-dir", &[Launcher]),
    switch("help", &[Launcher]),
    switch("version", &[Launcher]),
    // Two processes cannot share one address: it goes to the controller in mode all and to the
    // node-agent in mode node.
    value("http-endpoint", &[Launcher]),
    value("metrics-cert-file", &[Controller, NodeAgent]),
    value("metrics-key-file", &[Controller, NodeAgent]),
    switch("enable-otel-tracing", &[Controller, NodeAgent]),
    value("kubeconfig", &[Controller, NodeAgent]),
    value("metadata-sources", &[Controller, NodeAgent]),
    value("v", &[Controller, NodeAgent]),
    value("vmodule", &[Controller, NodeAgent]),
    value("logging-format", &[Controller, NodeAgent]),
    value("log-flush-frequency", &[Controller, NodeAgent]),
    value("log-json-info-buffer-size", &[Controller]),
    switch("log-json-split-stream", &[Controller]),
    value("log-text-info-buffer-size", &[Controller]),
    switch("log-text-split-stream", &[Controller]),
    switch("logtostderr", &[Controller, NodeAgent]),
    value("user-agent-extra", &[Controller]),
    switch("aws-sdk-debug-log", &[Controller]),
    value("extra-tags", &[Controller]),
    value("extra-volume-tags", &[Controller]),
    value("k8s-tag-cluster-id", &[Controller]),
    switch("warn-on-invalid-tag", &[Controller]),
    switch("batching", &[Controller]),
    value("modify-volume-request-handler-timeout", &[Controller]),
    switch("deprecated-metrics", &[Controller]),
    switch("enable-node-local-volumes", &[Controller]),
    switch("enable-volume-health", &[Controller, NodeAgent]),
    value("snapshot-takeover-wait", &[Controller]),
    value("safe-detach", &[Controller]),
    value("safe-detach-endpoint", &[Controller]),
    value("safe-detach-peers", &[Controller]),
    value("safe-detach-fence", &[Controller]),
    value("safe-detach-fence-limit", &[Controller]),
    value("safe-detach-failover", &[Controller]),
    value("feature-gates", &[Controller]),
    value("probe-aws", &[Controller]),
    value("drain-timeout", &[Controller]),
    value("ec2-request-rates", &[Controller]),
    value("ec2-max-request-rates", &[Controller]),
    value("volume-attach-limit", &[NodeAgent]),
    value("reserved-volume-attachments", &[NodeAgent]),
    switch("legacy-xfs", &[NodeAgent]),
    switch("windows-host-process", &[NodeAgent]),
    value("csi-mount-point-prefix", &[NodeAgent]),
    value("kubelet-registration-path", &[NodeAgent]),
    value("plugin-registration-path", &[NodeAgent]),
    value("node-facts-file", &[NodeAgent]),
    value("node-facts-timeout", &[NodeAgent]),
    value("grace-period", &[NodeAgent]),
    value("helper-key-file", &[NodeAgent]),
    value("kubelet-root", &[MountHelper]),
    value("paths", &[MountHelper]),
    value("grace", &[MountHelper]),
    value("untrusted-images", &[MountHelper]),
    value("disks-without-serial", &[MountHelper]),
    value("copied-mounts", &[MountHelper]),
    value("nodev-nosuid", &[MountHelper]),
    value("tool-deadline", &[MountHelper]),
    value("log-format", &[MountHelper]),
    value("vsock-key-file", &[MountHelper]),
    value("vsock-peers", &[MountHelper]),
    switch("guest-disks", &[MountHelper]),
    switch("sandbox", &[MountHelper]),
    switch("allow-missing-landlock", &[MountHelper]),
    switch("allow-private-mounts", &[MountHelper]),
];

/// Returns the flag of that name.
pub fn find(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flag_is_listed_once_with_its_processes() {
        for (index, flag) in FLAGS.iter().enumerate() {
            assert!(!flag.known_by.is_empty(), "{}", flag.name);
            assert!(FLAGS[..index].iter().all(|other| other.name != flag.name), "{}", flag.name);
        }
    }
}
