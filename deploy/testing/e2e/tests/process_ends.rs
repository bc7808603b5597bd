//! How each program answers its command line.

use ebs_csi_e2e::program::{self, Ended};
use ebs_csi_sandbox::binaries::{Binaries, for_test};

const PROGRAMS: [&str; 7] = [
    "ebs-csi-controller",
    "ebs-csi-node-agent",
    "ebs-csi-mount-helper",
    "aws-ebs-csi-driver",
    "ebs-csi-policy",
    "ebs-csi-sandbox",
    "ec2-sim",
];

fn run(binaries: &Binaries, name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Ended {
    program::run(program::bare(&binaries.path(name).unwrap(), arguments, environment))
}

/// The minimum environment to reach flag parsing.
const ENVIRONMENT: [(&str, &str); 2] = [("AWS_REGION", "us-east-1"), ("CSI_NODE_NAME", "n")];

#[test]
fn every_program_prints_help_and_version() {
    let Some(binaries) = for_test(&PROGRAMS) else { return };
    for name in PROGRAMS {
        for flag in ["--help", "--version"] {
            let ended = run(&binaries, name, &[flag], &[]);
            assert_eq!(ended.status, Some(0), "{name} {flag}: {ended:?}");
            assert!(!ended.stdout.trim().is_empty(), "{name} {flag}: {ended:?}");
        }
    }
}

#[test]
fn bad_command_line_exits_64_with_one_line() {
    let Some(binaries) = for_test(&PROGRAMS) else { return };
    let rows: &[(&str, &[&str], &str)] = &[
        ("ebs-csi-controller", &["--no-such-flag"], "no-such-flag"),
        ("ebs-csi-controller", &["--endpoint", "ftp://x"], "endpoint"),
        ("ebs-csi-controller", &["--drain-timeout", "soon"], "soon"),
        ("ebs-csi-controller", &["surplus"], "surplus"),
        ("ebs-csi-controller", &["--volume-attach-limit=5"], ""),
        ("ebs-csi-controller", &["--v=high"], ""),
        ("ebs-csi-node-agent", &["--no-such-flag"], "no-such-flag"),
        ("ebs-csi-node-agent", &["--endpoint", "ftp://x"], "endpoint"),
        ("ebs-csi-node-agent", &["--helper", "tcp://127.0.0.1:1"], "helper"),
        ("ebs-csi-node-agent", &["--metadata-sources", "guess"], "guess"),
        ("ebs-csi-mount-helper", &[], "--listen"),
        ("ebs-csi-mount-helper", &["--no-such-flag"], "no-such-flag"),
        (
            "ebs-csi-mount-helper",
            &["--listen=unix:///x", "--kubelet-root=/a/../b"],
            "--kubelet-root",
        ),
        ("aws-ebs-csi-driver", &["conductor"], "conductor"),
        ("aws-ebs-csi-driver", &["controller", "--no-such-flag"], "no-such-flag"),
        ("aws-ebs-csi-driver", &["node", "--no-such-flag"], "no-such-flag"),
        ("ebs-csi-policy", &["audit"], ""),
        ("ebs-csi-sandbox", &["--no-such-flag"], "no-such-flag"),
        ("ec2-sim", &["serve", "--no-such-flag"], "no-such-flag"),
    ];
    let mut wrong = Vec::new();
    for (name, arguments, word) in rows {
        let ended = run(&binaries, name, arguments, &ENVIRONMENT);
        let lines = ended.stderr.trim_end().lines().count();
        if ended.status != Some(64)
            || lines != 1
            || !ended.stdout.is_empty()
            || !ended.stderr.contains(word)
        {
            wrong.push(format!("{name} {arguments:?}: {ended:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Flags that the launcher itself sets to connect the processes.
const LAUNCHER_FLAGS: [&str; 2] = ["helper", "listen"];

#[test]
fn launcher_knows_every_flag_of_its_processes() {
    let Some(binaries) = for_test(&PROGRAMS) else { return };
    let mut unknown = Vec::new();
    for name in ["ebs-csi-controller", "ebs-csi-node-agent", "ebs-csi-mount-helper"] {
        let help = run(&binaries, name, &["--help"], &[]);
        let flags: Vec<&str> = help
            .stdout
            .lines()
            .filter_map(|line| {
                let words = line.trim_start();
                let flag = words.strip_prefix("--").or_else(|| words.strip_prefix("-v, --"))?;
                flag.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'))
                    .next()
            })
            .collect();
        assert!(flags.len() > 5, "{name}: {help:?}");
        for flag in flags {
            // The launcher refuses the last argument in any case, so it starts nothing.
            let arguments = ["node", &format!("--{flag}=1"), "--no-such-flag"];
            let ended = run(&binaries, "aws-ebs-csi-driver", &arguments, &[]);
            let is_unknown = ended.stderr.contains(&format!("unknown flag --{flag};"));
            if is_unknown && !LAUNCHER_FLAGS.contains(&flag) {
                unknown.push(format!("{name} --{flag}"));
            }
        }
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}
