use ebs_csi_ec2::{Action, Rate};
use ebs_csi_proto::observe::LogFormat;

use super::*;

fn read(arguments: &[&str]) -> Result<Config, Exit> {
    Config::read(arguments.iter().map(OsString::from), &BTreeMap::new())
}

/// Checks that the command line is refused by one line that contains the word.
#[track_caller]
fn assert_refused(arguments: &[&str], word: &str) {
    match read(arguments) {
        Err(Exit::Failure { status: 64, line }) => {
            assert!(line.contains(word) && line.lines().count() == 1, "{arguments:?}: {line}");
        }
        other => panic!("{arguments:?}: {other:?}"),
    }
}

fn environment(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn go_driver_chart_command_line_is_accepted() {
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
    assert_eq!(config.endpoint, Endpoint::Unix("/var/lib/csi/sockets/pluginproxy/csi.sock".into()));
    assert_eq!(config.log.logging_format, LogFormat::Json);
    assert_eq!(config.ec2.execution_environment, format!("aws-ebs-csi-driver-{VERSION}-helm"));
    assert_eq!(config.service.tags.cluster_id.as_deref(), Some("prod"));
    assert!(config.service.tags.warn_on_invalid);
    assert_eq!(config.service.modify_window, Duration::from_secs(90));
    let names: Vec<_> = config.without_effect.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["batching"]);
}

/// The default and metadata-labeler count as Kubernetes sources; imds alone does not.
#[test]
fn node_region_needs_kubernetes_metadata_source() {
    let environment = environment(&[("NODE_REGION", "eu-west-1")]);
    for (sources, counts) in [
        (None, true),
        (Some("imds,Kubernetes"), true),
        (Some("metadata-labeler"), true),
        (Some("imds"), false),
    ] {
        let flag = sources.map(|sources| OsString::from(format!("--metadata-sources={sources}")));
        let config = Config::read(flag, &environment).unwrap();
        assert_eq!(config.ec2.region_of_node.is_some(), counts, "{sources:?}");
    }
}

/// Every flag of the Go driver's controller mode, with values that it accepts, and whether the flag
/// has no effect here.
const GO_DRIVER_FLAGS: &[(&str, &[&str], bool)] = &[
    ("endpoint", &["unix:///csi/csi.sock"], false),
    ("http-endpoint", &["0.0.0.0:3301", ":3301"], false),
    ("metrics-cert-file", &["/certs/tls.crt"], false),
    ("metrics-key-file", &["/certs/tls.key"], false),
    ("enable-otel-tracing", &["true", "false"], false),
    ("kubeconfig", &["/root/.kube/config"], true),
    ("metadata-sources", &["imds,kubernetes", "metadata-labeler"], false),
    ("user-agent-extra", &["helm"], false),
    ("aws-sdk-debug-log", &["true"], false),
    ("extra-tags", &["a=b,c=d"], false),
    ("extra-volume-tags", &["a=b"], false),
    ("k8s-tag-cluster-id", &["prod"], false),
    ("warn-on-invalid-tag", &["true", "false"], false),
    ("batching", &["true", "false"], true),
    ("modify-volume-request-handler-timeout", &["2s", "500ms"], false),
    ("deprecated-metrics", &["true", "false"], false),
    ("enable-node-local-volumes", &["true", "false"], false),
    ("version", &[], false),
    ("logtostderr", &["true"], true),
    ("v", &["2", "7"], false),
    ("vmodule", &["cloud=5"], true),
    ("logging-format", &["text", "json"], false),
    ("log-flush-frequency", &["5s"], true),
    ("log-json-info-buffer-size", &["0", "1Mi"], true),
    ("log-json-split-stream", &["true"], true),
    ("log-text-info-buffer-size", &["0"], true),
    ("log-text-split-stream", &["true"], true),
];

#[test]
fn every_go_driver_controller_flag_is_accepted() {
    for (name, values, has_no_effect) in GO_DRIVER_FLAGS {
        // These flags need each other.
        let companions: &[&str] = match *name {
            "metrics-cert-file" => &["--http-endpoint=:1", "--metrics-key-file=k"],
            "metrics-key-file" => &["--http-endpoint=:1", "--metrics-cert-file=c"],
            _ => &[],
        };
        for value in *values {
            let flag = format!("--{name}={value}");
            let words: Vec<&str> =
                std::iter::once(flag.as_str()).chain(companions.iter().copied()).collect();
            let config = read(&words).unwrap_or_else(|stop| panic!("{flag}: {stop:?}"));
            let named = config.without_effect.iter().any(|(flag, _)| flag == name);
            assert_eq!(named, *has_no_effect, "{flag}");
        }
    }
    for switch in [
        "batching",
        "enable-otel-tracing",
        "aws-sdk-debug-log",
        "warn-on-invalid-tag",
        "deprecated-metrics",
        "enable-node-local-volumes",
        "logtostderr",
    ] {
        assert!(read(&[&format!("--{switch}")]).is_ok(), "{switch} alone");
    }
}

#[test]
fn region_with_blank_is_usage_error() {
    for (name, region, good) in [
        ("AWS_REGION", "us-east-1", true),
        ("AWS_REGION", "us-east-1 ", false),
        ("AWS_REGION", "us-east-1\n", false),
        ("AWS_REGION", " us-east-1", false),
        ("NODE_REGION", "us-east-1 ", false),
    ] {
        match Config::read([], &environment(&[(name, region)])) {
            Ok(_) => assert!(good, "{region:?}"),
            Err(Exit::Failure { status: 64, line }) => {
                assert!(!good && line.contains(name), "{line}")
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn only_variables_without_effect_are_reported() {
    let reported = |entries: &[(&str, &str)]| {
        let config = Config::read([], &environment(entries)).unwrap();
        let names = config.variables_without_effect.iter();
        names.map(|(name, _)| *name).collect::<Vec<_>>()
    };
    assert_eq!(
        reported(&[
            ("AWS_MAX_ATTEMPTS", "50"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_RETRY_MODE", "adaptive"),
            ("AWS_SAGEMAKER_ENDPOINT", "http://127.0.0.1:1"),
        ]),
        ["AWS_SAGEMAKER_ENDPOINT", "AWS_RETRY_MODE", "AWS_MAX_ATTEMPTS"]
    );
    // Manifests set variables from a ConfigMap that may be empty.
    let none: [&str; 0] = [];
    assert_eq!(reported(&[("AWS_SAGEMAKER_ENDPOINT", "")]), none);
}

#[test]
fn credential_source_is_described_without_key() {
    let rows: [(&[(&str, &str)], &str); 5] = [
        (&[("AWS_ACCESS_KEY_ID", "AKIASECRET")], "the environment"),
        (&[("AWS_PROFILE", "other")], "the AWS profile other"),
        (
            &[("AWS_WEB_IDENTITY_TOKEN_FILE", "/token"), ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r")],
            "/token for the role arn:aws:iam::1:role/r",
        ),
        (
            &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1")],
            "container credentials at http://169.254.170.23/v1",
        ),
        (&[], "instance metadata"),
    ];
    for (variables, want) in rows {
        let from = credentials_from(&environment(variables));
        assert!(from.contains(want) && !from.contains("AKIA"), "{from}");
    }
}

#[test]
fn the_defaults_are_those_of_the_go_driver() {
    let config = read(&[]).unwrap();
    assert_eq!(config.endpoint, Endpoint::Unix("/tmp/csi.sock".into()));
    assert_eq!(
        (config.http.address(), config.service.modify_window),
        (None, Duration::from_secs(2))
    );
    assert!(
        !config.service.tags.warn_on_invalid
            && !config.service.node_local_volumes
            && config.service.tags.cluster_id.is_none()
    );
}

#[test]
fn bad_flag_error_is_one_line_naming_flag() {
    // The value is wrong, or the flag does not exist.
    for flag in [
        "--no-such-flag",
        "--endpoint=ftp://x",
        "--http-endpoint=nowhere",
        "--modify-volume-request-handler-timeout=0",
        "--modify-volume-request-handler-timeout=soon",
        "--warn-on-invalid-tag=perhaps",
        "--metadata-sources=tea",
        "--volume-attach-limit=3",
        "--probe-aws=maybe",
        "--safe-detach-failover=kep",
        "stray",
    ] {
        assert_refused(&[flag], flag.split('=').next().unwrap());
    }
    let gate = "--feature-gates=NonGracefulFailover=true";
    let rows: [(&[&str], &str); 4] = [
        (&["--metrics-cert-file=x", "--http-endpoint=:1"], "--metrics-key-file"),
        (&["--metrics-key-file=x", "--http-endpoint=:1"], "--metrics-cert-file"),
        (&["--metrics-cert-file=x", "--metrics-key-file=y"], "--http-endpoint"),
        (&[gate, "--safe-detach=ec2-only", "--safe-detach-failover=kep"], "--safe-detach=enforce"),
    ];
    for (arguments, name) in rows {
        assert_refused(arguments, name);
    }
}

#[test]
fn boolean_flag_accepts_only_true_as_next_argument() {
    let config = read(&["--batching", "true", "--warn-on-invalid-tag", "true"]).unwrap();
    assert!(config.service.tags.warn_on_invalid);
    // Go reads this as true and ignores the word; the author of such a command line meant something
    // else.
    assert!(read(&["--batching", "false"]).is_err());
    assert!(read(&["true"]).is_err());
}

#[test]
fn repeated_tags_are_taken_together() {
    let config = read(&["--extra-tags=a=1", "--extra-tags", "b=2,a=3"]).unwrap();
    assert_eq!(config.extra_tags, "a=1,b=2,a=3");
    assert_eq!(read(&[]).unwrap().extra_tags, "");
}

#[test]
fn action_request_rate_overrides_rate_for_all() {
    let config = read(&[
        "--ec2-request-rates=all=1000/100,AttachVolume=150/15",
        "--ec2-max-request-rates=CreateVolume=50/2",
    ])
    .unwrap();
    assert_eq!(config.ec2.max_rates.len(), 1);
    assert_eq!(config.ec2.rates.len(), Action::ALL.len());
    assert_eq!(config.ec2.rates[&Action::AttachVolume], Rate { capacity: 150.0, refill: 15.0 });
}

#[test]
fn help_and_version_return_text_to_print() {
    assert!(matches!(read(&["--help"]), Err(Exit::Print(text)) if text.contains("--extra-tags")));
    assert!(
        matches!(read(&["--version"]), Err(Exit::Print(text)) if text.contains("driverVersion"))
    );
}

/// The endpoint must be a Unix socket other than the CSI socket.
#[test]
fn safe_detach_socket_needs_peers_and_path() {
    let gate = "--feature-gates=NonGracefulFailover=true";
    let (on, off) = ("--safe-detach=enforce", "--safe-detach=off");
    let socket = "--safe-detach-endpoint=unix:///csi/safe-detach.sock";
    let peers = "--safe-detach-peers=64532,0";
    let config = read(&[gate, on, socket, peers, "--safe-detach-fence=stop"]).unwrap();
    let served = config.safe_detach_socket.clone().unwrap();
    assert_eq!(served.peers, [64532, 0]);
    assert_eq!(config.service.fence.permission, FencePermission::Stop);
    assert_eq!(config.service.fence.limit, 1);
    // Instance types are asked for in every mode.
    assert!(read(&[off, socket, peers]).unwrap().safe_detach_socket.is_some());
    let refused: &[(&[&str], &str)] = &[
        (&[on], "NonGracefulFailover"),
        (&[gate, on, socket], "--safe-detach-peers"),
        (&[gate, on, "--safe-detach-endpoint=tcp://127.0.0.1:1", peers], "unix:///"),
        (&[gate, on, "--endpoint=unix:///csi/safe-detach.sock", socket, peers], "CSI socket"),
        (&["--safe-detach-fence=stop"], "needs --safe-detach"),
        (&[gate, on, "--safe-detach-fence=reboot"], "reboot"),
        (&[gate, "--safe-detach=on"], "on"),
    ];
    for (arguments, word) in refused {
        assert_refused(arguments, word);
    }
}

/// Tags of both flags are set, and both flags refuse the driver's own key `CSIVolumeName`.
#[test]
fn extra_tags_override_extra_volume_tags() {
    let settings = |flags: &[&str]| read(flags).unwrap().checked_service();
    let set = settings(&["--extra-volume-tags=a=1,b=2", "--extra-tags=b=3,c=4"]).unwrap();
    let extra: Vec<_> = set.tags.extra.iter().collect();
    let tag = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let want = [tag("a", "1"), tag("b", "3"), tag("c", "4")];
    assert!(extra.iter().copied().eq(want.iter().map(|(k, v)| (k, v))));
    for flag in ["--extra-volume-tags", "--extra-tags"] {
        let refused = settings(&[&format!("{flag}=CSIVolumeName=x")]).unwrap_err();
        assert!(refused.contains(flag) && refused.contains("CSIVolumeName"), "{refused}");
        let both = format!("{flag}=CSIVolumeName=x,a=1");
        let lenient = settings(&[&both, "--warn-on-invalid-tag"]).unwrap();
        assert_eq!(lenient.tags.extra.keys().collect::<Vec<_>>(), ["a"], "{flag}");
    }
}
