//! The flags and lists of the chart agree with the programs'.

use std::collections::BTreeSet;

use ebs_csi_e2e::program;
use ebs_csi_sandbox::binaries::for_test;
use serde_json::Value;

use crate::{array, containers, each, helm, pods, read};

pub(crate) fn words<'a>(text: &'a str, from: &str, to: &str) -> BTreeSet<&'a str> {
    let rest = text.split_once(from).unwrap_or_else(|| panic!("no {from}")).1;
    let inside = rest.split_once(to).unwrap_or_else(|| panic!("no {to}")).0;
    inside
        .split(|c: char| c.is_whitespace() || c == '"' || c == ',' || c == '|')
        .filter(|word| !word.is_empty())
        .collect()
}

#[test]
fn chart_lists_match_those_in_program_sources() {
    let define = |file: &str, name: &str| {
        let text = read(&format!("deploy/install/chart/templates/{file}"));
        let from = format!("{{{{- define \"{name}\" -}}}}");
        let found = words(&text, &from, "{{- end");
        found.into_iter().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let environment = toml::from_str(&read("policy/environment.toml")).expect("TOML");
    assert_eq!(define("_notes.tpl", "ebs.keptVariables"), kept_by("controller", &environment));

    let settings = read("mount-helper/src/settings.rs");
    let help = settings.split_once("const HELP").expect("HELP").1;
    let help = help.split_once("\";").expect("its end").0;
    let mut flags: BTreeSet<String> = help
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("--"))
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect();
    // The flags that the chart sets itself, and the flags that end the process.
    for own in ["listen", "help", "version"] {
        assert!(flags.remove(own), "{own}");
    }
    assert_eq!(define("_node.tpl", "ebs.helperFlags"), flags);
}

/// Returns the beginnings of the variables that a process keeps.
fn kept_by(profile: &str, environment: &toml::Table) -> BTreeSet<String> {
    let words = |row: &toml::Value, key: &str| -> Vec<String> {
        let all = row[key].as_array().expect("a list").iter();
        all.map(|word| word.as_str().expect("a text").to_owned()).collect()
    };
    let rows = environment["kept"].as_array().expect("rows").iter();
    let own = rows.filter(|row| words(row, "profiles").iter().any(|name| name == profile));
    own.flat_map(|row| words(row, "begins")).collect()
}

#[test]
fn programs_accept_all_chart_flags() {
    let Some(helm) = helm() else { return };
    let programs = [
        "ebs-csi-controller",
        "ebs-csi-node-lifecycle",
        "ebs-csi-node-agent",
        "ebs-csi-mount-helper",
    ];
    let Some(binaries) = for_test(&programs) else { return };
    let mut tried = BTreeSet::new();
    each(&helm, |set, objects| {
        for (name, pod) in pods(objects) {
            for (container, it) in containers(pod) {
                let program = match (container, name) {
                    ("mount-helper", _) => "ebs-csi-mount-helper",
                    ("preflight", "ebs-csi-preflight-cluster") => "ebs-csi-node-lifecycle",
                    ("preflight" | "give-directories", _) => "ebs-csi-node-agent",
                    ("ebs-plugin", "ebs-csi-controller") => "ebs-csi-controller",
                    ("ebs-plugin", _) => "ebs-csi-node-agent",
                    _ => continue,
                };
                let mut line: Vec<String> = array(&it["args"])
                    .iter()
                    .filter_map(Value::as_str)
                    .map(|word| {
                        word.replace("$(SAFE_DETACH_GATE)", "true")
                            .replace("$(SAFE_DETACH_MODE)", "enforce")
                            .replace("$(FAILOVER)", "kep")
                    })
                    .collect();
                // A program prints its help only when all arguments before `--help` are valid.
                line.push("--help".to_owned());
                let mut lines = vec![line];
                let hook = array(&it["lifecycle"]["preStop"]["exec"]["command"]);
                if let Some((path, words)) = hook.split_first() {
                    assert_eq!(path, &format!("/usr/bin/{program}"));
                    let mut words: Vec<String> =
                        words.iter().filter_map(|it| it.as_str().map(str::to_owned)).collect();
                    words.push("--help".to_owned());
                    lines.push(words);
                }
                for line in lines {
                    if !tried.insert((program, line.clone())) {
                        continue;
                    }
                    let words: Vec<&str> = line.iter().map(String::as_str).collect();
                    let path = binaries.path(program).expect("a program");
                    let ended = program::run(program::bare(&path, &words, &[]));
                    assert_eq!(ended.status, Some(0), "{set}: {program} {words:?}: {ended:?}");
                }
            }
        }
    });
    assert!(tried.len() >= 12, "{}", tried.len());
}

#[test]
fn sidecars_accept_all_chart_flags() {
    let Some(helm) = helm() else { return };
    let built = helm.with_file_name("../kubernetes");
    let mut tried = BTreeSet::new();
    each(&helm, |set, objects| {
        for (_, pod) in pods(objects) {
            for (container, it) in containers(pod) {
                let program = built.join(container);
                if !program.exists() {
                    continue;
                }
                let mut line: Vec<&str> =
                    array(&it["args"]).iter().filter_map(Value::as_str).collect();
                line.push("--version");
                if tried.insert((container.to_owned(), line.join(" "))) {
                    let ended = program::run(program::bare(&program, &line, &[]));
                    assert_eq!(ended.status, Some(0), "{set}: {container} {line:?}: {ended:?}");
                }
            }
        }
    });
    if tried.is_empty() {
        println!("skipped: no sidecar; ./deploy/testing/clusters/programs/prepare builds them");
    }
}
