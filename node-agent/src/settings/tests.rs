//! Tests of the settings.

use super::*;
use ebs_csi_proto::program;

fn status(exit: &Exit) -> u8 {
    match exit {
        Exit::Failure { status, .. } => *status,
        other => panic!("{other:?}"),
    }
}

fn check(line: &str, environment: &[(&str, &str)]) -> Result<Settings, Exit> {
    let flags =
        program::parse::<flags::CommandLine>(line.split_whitespace().map(Into::into))?.serve;
    let environment = |name: &str| {
        environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    };
    Settings::check(flags, &environment)
}

#[test]
fn invalid_setting_names_flag_and_sets_exit_status() {
    for (line, flag, exit) in [
        ("--endpoint /csi.sock", "--endpoint", 64),
        ("--helper tcp://127.0.0.1:1", "--helper", 64),
        ("--helper vsock://3:5000", "--helper-key-file", 64),
        ("--helper vsock://3:5000 --helper-key-file /no/key", "/no/key", 78),
        ("--metadata-sources imds,dmi", "--metadata-sources", 64),
        ("--volume-attach-limit=-2", "--volume-attach-limit", 64),
        ("--volume-attach-limit=1001", "--volume-attach-limit", 64),
        (
            "--volume-attach-limit=1 --reserved-volume-attachments=0",
            "--reserved-volume-attachments",
            64,
        ),
        ("--kubelet-registration-path=csi.sock", "--kubelet-registration-path", 64),
        (
            "--kubelet-registration-path=/c --plugin-registration-path=r",
            "--plugin-registration-path",
            64,
        ),
        ("--http-endpoint 80", "--http-endpoint", 64),
        ("--logging-format yaml", "--logging-format", 64),
        ("--windows-host-process", "Windows", 78),
        ("--metrics-cert-file /c", "TLS", 78),
    ] {
        let error = check(line, &[]).unwrap_err();
        assert!(error.to_string().contains(flag), "{line}: {error}");
        assert_eq!(status(&error), exit, "{line}");
    }
}

#[test]
fn go_driver_node_flags_are_accepted_or_refused() {
    // Flag, exit status of a refusal (0: accepted), and whether the log reports that the flag
    // has no effect.
    for (flag, exit, without_effect) in [
        ("--endpoint=unix:///csi/csi.sock", 0, false),
        ("--kubeconfig=/k", 0, true),
        ("--http-endpoint=0.0.0.0:3302", 0, false),
        ("--metrics-cert-file=/c", 78, false),
        ("--metrics-key-file=/k", 78, false),
        ("--enable-otel-tracing", 0, true),
        ("--enable-otel-tracing=false", 0, false),
        ("--metadata-sources=imds,kubernetes", 0, false),
        ("--metadata-sources= IMDS , metadata-labeler", 0, false),
        ("--volume-attach-limit=25", 0, false),
        ("--volume-attach-limit=-1", 0, false),
        ("--reserved-volume-attachments=2", 0, false),
        ("--reserved-volume-attachments=-1", 0, false),
        ("--legacy-xfs", 0, false),
        ("--legacy-xfs=true", 0, false),
        ("--windows-host-process=false", 0, false),
        ("--windows-host-process=true", 78, false),
        ("--csi-mount-point-prefix=/var/lib/kubelet/plugins/x/", 0, true),
        ("--v=2", 0, false),
        ("--vmodule=a=1", 0, true),
        ("--logging-format=text", 0, false),
        ("--logging-format=json", 0, false),
        ("--log-flush-frequency=5s", 0, true),
        ("--logtostderr=true", 0, true),
    ] {
        let serve = program::parse::<flags::CommandLine>([flag.into()]).unwrap().serve;
        let outcome = Settings::check(serve, &|_| None);
        assert_eq!(outcome.as_ref().map_or_else(status, |_| 0), exit, "{flag}");
        if let Ok(settings) = outcome {
            assert_eq!(!settings.ignored.is_empty(), without_effect, "{flag}");
        }
    }
}

#[test]
fn only_variables_without_effect_are_reported() {
    let set = [
        "AWS_REGION",
        "DISABLE_TAINT_WATCHER",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "https_proxy",
        "CSI_NODE_NAME",
        "AWS_EC2_METADATA_DISABLED",
        "KUBERNETES_SERVICE_HOST",
        "PATH",
    ];
    let reported = variables_without_effect(set.map(str::to_owned));
    assert_eq!(reported, set[..4]);
}

#[test]
fn hyperpod_node_is_refused_with_exit_78() {
    let name = "hyperpod-i-0123456789abcdef0";
    let error = check("", &[("CSI_NODE_NAME", name)]).unwrap_err();
    assert!(error.to_string().contains("HyperPod"), "{error}");
    assert_eq!(status(&error), 78);
}

/// AWS_EC2_METADATA_DISABLED disables IMDS, --metadata-sources gives the order, and
/// metadata-labeler means kubernetes.
#[test]
fn imds_is_skipped_when_disabled_or_unlisted() {
    let disabled = check("", &[("AWS_EC2_METADATA_DISABLED", "true")]).unwrap();
    assert!(disabled.sources.imds.is_err());
    let usual = check("--metadata-sources=Kubernetes", &[("CSI_NODE_NAME", "n")]).unwrap();
    assert!(usual.sources.imds.is_ok());
    assert_eq!(usual.sources.order, [Source::Kubernetes]);
    let labeler = check("--metadata-sources=kubernetes,metadata-labeler,imds", &[]).unwrap();
    assert_eq!(labeler.sources.order, [Source::Kubernetes, Source::Imds]);
}

#[test]
fn only_wider_settings_change_digest_in_force() {
    for (line, expected) in [
        ("", &[][..]),
        ("--endpoint=unix:/csi/other.sock", &[]),
        ("--node-facts-file=/facts/labels --http-endpoint=:1", &[]),
        ("--endpoint=tcp://127.0.0.1:1", &["--endpoint=tcp://127.0.0.1:1"]),
        ("--plugin-registration-path=/etc", &["--plugin-registration-path=/etc"]),
        ("--node-facts-file=/etc --node-facts-file=/facts/labels", &["--node-facts-file=/etc"]),
    ] {
        let wider = check(line, &[]).unwrap().wider;
        assert_eq!(wider, expected, "{line}");
        let digest = setting::digest_in_force(&ebs_csi_policy::PRODUCTION, &wider);
        assert_eq!(digest == ebs_csi_policy::PRODUCTION.digest, expected.is_empty());
    }
}

/// The policy's table has a row for each flag.
#[test]
fn policy_knows_what_each_flag_permits() {
    let command = <flags::CommandLine as clap::CommandFactory>::command();
    let mut flags: Vec<_> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
    flags.sort_unstable();
    let rows = setting::SETTINGS.iter().filter(|row| row.program == "node-agent");
    let mut known: Vec<_> = rows.map(|row| &row.flag[2..]).collect();
    known.extend(["help", "version"]);
    known.sort_unstable();
    known.retain(|name| flags.contains(name) || !["help", "version"].contains(name));
    assert_eq!(known, flags);
}
