//! The operator's page names every flag of the program, and no others.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

/// Returns a file of `deploy`.
fn deployed(path: &str) -> String {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").expect("tests are run by cargo");
    std::fs::read_to_string(PathBuf::from(here).join("../deploy").join(path)).expect(path)
}

fn page() -> String {
    deployed("docs/node-agent.md")
}

fn words<'a>(text: &'a str, start: &str) -> BTreeSet<&'a str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'))
        .filter(|word| {
            let rest = word.strip_prefix(start);
            rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic()))
        })
        .collect()
}

#[test]
fn documented_flags_match_agent_flags_exactly() {
    let help = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_ebs-csi-node-agent"))
            .args(arguments)
            .env_clear()
            .output()
            .expect("the program");
        String::from_utf8(output.stdout).expect("text")
    };
    let serve = help(&["--help"]);
    let jobs = ["pre-stop-hook", "preflight", "give-directories"].map(|job| help(&[job, "--help"]));
    let page = page();
    let documented = words(&page, "--");
    // These flags are hidden from the help, because they do nothing or are refused.
    let hidden = [
        "--kubeconfig",
        "--csi-mount-point-prefix",
        "--vmodule",
        "--log-flush-frequency",
        "--logtostderr",
        "--enable-otel-tracing",
        "--windows-host-process",
        "--metrics-cert-file",
        "--metrics-key-file",
    ];
    let mut offered = words(&serve, "--");
    for job in &jobs {
        offered.extend(words(job, "--"));
    }
    offered.extend(hidden);
    for own in ["--help", "--version"] {
        offered.remove(own);
    }
    assert_eq!(documented, offered);
}

#[test]
fn alerts_use_served_metrics_and_have_runbook_entry() {
    let served = ebs_csi_node_agent::http_endpoint::example_page();
    let rules = deployed("install/manifests/node-alerts.yaml");
    let runbook = page();
    let mut alerts = 0;
    for rule in rules.split("- alert: ").skip(1) {
        alerts += 1;
        let name = rule.lines().next().unwrap_or_default().trim();
        assert!(runbook.contains(&format!("**{name}**")), "{name}");
        let expression = rule.split("expr: ").nth(1).expect("an expression");
        let series = words(expression, "ebs_csi_node_agent_");
        assert!(!series.is_empty(), "{name}");
        for series in series {
            let line = format!("# TYPE {series} ");
            assert!(served.contains(&line), "{name}: {series} is not served");
        }
    }
    assert_eq!(alerts, 1);
}
