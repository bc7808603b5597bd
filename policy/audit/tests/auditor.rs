//! The auditor's binary: its output and its exit status.

use std::io::Read;
use std::process::{Command, Output};

use serde_json::Value;

fn auditor(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ebs-csi-policy"))
        .args(arguments)
        .output()
        .expect("the binary starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn bad_usage_is_one_line_and_status_64() {
    for arguments in [
        &[][..],
        &["nonsense"],
        &["audit"],
        &["audit", "--pid", "x", "--as", "broker"],
        &["audit", "--pid", "1", "--as", "nobody"],
        &["audit", "--all", "--policy", "none"],
        &["audit", "--policy", "guest"],
        &["audit", "--all", "--tree", "1"],
        &["audit", "--pid", "1", "--pid", "2", "--as", "broker"],
        &["audit", "--all", "--format", "xml"],
        &["audit", "--all", "--expect", "--paths=kubernetes"],
        &["audit", "--all", "--digests", "/nonexistent"],
        &["audit", "--all", "--as"],
        &["explain", "broker/nothing"],
        &["explain", "controller/propagation"],
        &["explain", "nobody"],
        &["show", "nobody"],
        &["show", "broker", "more"],
        &["digest", "a", "b"],
    ] {
        let output = auditor(arguments);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        assert_eq!(text(&output.stderr).lines().count(), 1, "{arguments:?}");
    }
}

#[test]
fn an_unconfined_process_deviates_from_every_profile() {
    let pid = std::process::id().to_string();
    for profile in ebs_csi_policy::profile::ALL {
        let output = auditor(&["audit", "--pid", &pid, "--as", profile.name]);
        assert_eq!(output.status.code(), Some(1), "{}", profile.name);
        let table = text(&output.stdout);
        assert!(table.contains("seccomp 0 instead of 2 (filter)"), "{table}");
    }
}

#[test]
fn tree_without_driver_is_not_seen() {
    let pid = std::process::id().to_string();
    let output = auditor(&["audit", "--tree", &pid]);
    assert_eq!(output.status.code(), Some(2));
    for words in ["not of the driver", "machine/processes cannot be seen"] {
        assert!(text(&output.stdout).contains(words), "{words}");
    }
}

#[test]
fn auditor_prints_digests_and_rule_tables() {
    let digests = text(&auditor(&["digest"]).stdout);
    for policy in ebs_csi_policy::Policy::ALL {
        assert!(digests.contains(policy.digest), "{}", policy.name);
    }
    for (what, word) in [
        ("broker", "move_mount"),
        ("tool", "BLKDISCARD"),
        ("flags", "noatime"),
        ("places", "kubernetes.io~csi"),
        ("requests", "staging_path at [Stage]"),
        ("tools", "mke2fs"),
        ("blank", "btrfs"),
    ] {
        let output = auditor(&["show", what]);
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains(word), "{what}");
    }
    assert!(text(&auditor(&["--help"]).stdout).starts_with("Usage:"));
    assert!(text(&auditor(&["--version"]).stdout).starts_with("ebs-csi-policy "));
}

/// Each rule that an answer may name is explained, with what the profile says and why.
#[test]
fn each_rule_of_audit_is_explained() {
    let pid = std::process::id().to_string();
    for profile in ebs_csi_policy::profile::ALL {
        let arguments = ["audit", "--pid", &pid, "--as", profile.name, "--format=json"];
        let report: Value = serde_json::from_slice(&auditor(&arguments).stdout).expect("JSON");
        let answers = report["processes"][0]["answers"].as_array().expect("answers");
        assert!(answers.is_sorted_by_key(|answer| answer["rule"].as_str()));
        for answer in answers {
            let rule = answer["rule"].as_str().expect("a rule");
            let output = auditor(&["explain", rule]);
            assert_eq!(output.status.code(), Some(0), "{rule}");
            let told = text(&output.stdout);
            let words = [rule, "compares  ", "expects   ", "why       "];
            assert!(words.iter().all(|word| told.contains(word)), "{told}");
        }
    }
    let broker = text(&auditor(&["explain", "broker/capabilities"]).stdout);
    assert!(broker.contains("why       CAP_SYS_ADMIN: the mount calls"), "{broker}");
    for rule in ["machine/processes", "machine/programs"] {
        assert!(text(&auditor(&["explain", rule]).stdout).starts_with(rule));
    }
    let listed = text(&auditor(&["explain", "tool"]).stdout);
    assert!(listed.contains("tool/namespaces") && !listed.contains("tool/propagation"));
}

/// The shell's further arguments stand for those of a helper.
#[test]
fn policy_of_other_disks_is_shown() {
    for (flag, name) in [("--guest-disks", "guest"), ("--sandbox", "sandbox")] {
        let mut process = Command::new("sh")
            .args(["-c", "echo runs; read line", "helper", flag])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("sh");
        // Until the shell runs, /proc does not show its arguments.
        let mut says = [0; 5];
        let output = process.stdout.as_mut().expect("a pipe");
        output.read_exact(&mut says).expect("a line");
        let pid = process.id().to_string();
        let arguments = ["audit", "--pid", &pid, "--as", "supervisor"];
        let unexpected = text(&auditor(&arguments).stdout);
        let expecting = [&arguments[..], &["--policy", name]].concat();
        let expected = text(&auditor(&expecting).stdout);
        drop(process.stdin.take());
        process.wait().expect("the end of sh");
        let policy = ebs_csi_policy::Policy::named(name).expect("a policy");
        let deviation = format!("policy {name} instead of production");
        for table in [&unexpected, &expected] {
            assert!(table.contains(policy.digest), "{table}");
        }
        assert!(unexpected.contains(&deviation), "{unexpected}");
        assert!(!expected.contains(" instead of production"), "{expected}");
    }
}
