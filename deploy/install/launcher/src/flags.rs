//! Which process accepts which flag. Modes `node` and `all` split their command line by this table.

/// The processes that flags belong to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Process {
    Controller,
    NodeAgent,
    MountHelper,
    Launcher,
}

/// Flags of one kind, by their names without hyphens.
#[derive(Debug)]
pub(crate) struct Flags {
    pub(crate) known_by: &'static [Process],
    /// Whether the flags are switches. A switch stands alone or has its value after `=`; other
    /// flags also take the next argument as their value.
    pub(crate) switch: bool,
    /// Separated by spaces.
    names: &'static str,
}

use Process::{Controller, Launcher, MountHelper, NodeAgent};

const fn values(known_by: &'static [Process], names: &'static str) -> Flags {
    Flags { known_by, switch: false, names }
}

const fn switches(known_by: &'static [Process], names: &'static str) -> Flags {
    Flags { known_by, switch: true, names }
}

/// All flags of the driver's processes that may appear on one command line.
const FLAGS: &[Flags] = &[
    // Two processes cannot share one address: http-endpoint goes to the controller in mode all and
    // to the node-agent in mode node.
    values(&[Launcher], "endpoint runtime-dir http-endpoint"),
    switches(&[Launcher], "help version"),
    values(
        &[Controller, NodeAgent],
        "metrics-cert-file metrics-key-file kubeconfig metadata-sources v vmodule \
         logging-format log-flush-frequency",
    ),
    switches(&[Controller], "enable-group-snapshots"),
    switches(&[Controller, NodeAgent], "enable-otel-tracing logtostderr enable-volume-health"),
    values(
        &[Controller],
        "log-json-info-buffer-size log-text-info-buffer-size user-agent-extra extra-tags \
         extra-volume-tags k8s-tag-cluster-id modify-volume-request-handler-timeout \
         snapshot-takeover-wait safe-detach safe-detach-endpoint safe-detach-old-agents \
         safe-detach-peers safe-detach-fence safe-detach-fence-limit safe-detach-failover \
         feature-gates probe-aws drain-timeout ec2-request-rates ec2-max-request-rates",
    ),
    switches(
        &[Controller],
        "log-json-split-stream log-text-split-stream aws-sdk-debug-log warn-on-invalid-tag \
         batching deprecated-metrics enable-node-local-volumes",
    ),
    values(
        &[NodeAgent],
        "volume-attach-limit reserved-volume-attachments csi-mount-point-prefix \
         kubelet-registration-path plugin-registration-path node-facts-file node-facts-timeout \
         grace-period helper-key-file",
    ),
    switches(&[NodeAgent], "legacy-xfs windows-host-process"),
    values(
        &[MountHelper],
        "kubelet-root paths grace untrusted-images disks-without-serial copied-mounts \
         nodev-nosuid tool-deadline log-format vsock-key-file vsock-peers",
    ),
    switches(&[MountHelper], "guest-disks sandbox allow-missing-landlock allow-private-mounts"),
];

/// Returns the flags to which the flag of that name belongs.
pub(crate) fn find(name: &str) -> Option<&'static Flags> {
    FLAGS.iter().find(|flags| flags.names.split(' ').any(|one| one == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flag_is_listed_once_with_its_processes() {
        assert!(FLAGS.iter().all(|flags| !flags.known_by.is_empty()));
        let mut names: Vec<_> = FLAGS.iter().flat_map(|flags| flags.names.split(' ')).collect();
        names.sort_unstable();
        assert_eq!(names.windows(2).find(|pair| pair[0] == pair[1]), None);
    }
}
