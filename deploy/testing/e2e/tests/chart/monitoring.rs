//! Metrics Services, dashboards and alerts: that they name what exists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use ebs_csi_e2e::dashboards::{boards, panels, queries};
use ebs_csi_e2e::metrics::{self, of_sample, served};
use ebs_csi_e2e::program::output;
use ebs_csi_e2e::repository::{self, read, root, texts};
use serde_json::Value;

use crate::{MONITORS, array, each, find, helm, pods, render, yaml};

fn promtool() -> Option<PathBuf> {
    repository::prepared("promtool")
}

const PARTS: [&str; 5] = ["controller", "ec2", "node-lifecycle", "node", "volume"];

fn rules_of(groups: &Value) -> impl Iterator<Item = &Value> {
    array(&groups["groups"]).iter().flat_map(|it| array(&it["rules"]))
}

fn alerts() -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for part in PARTS {
        let rules = yaml(&format!("deploy/install/manifests/{part}-alerts.yaml"));
        for rule in rules_of(&rules) {
            let name = rule["alert"].as_str().expect("a name").to_owned();
            assert!(all.insert(name.clone(), rule.clone()).is_none(), "{name}");
        }
    }
    assert!(all.len() >= 21, "{}", all.len());
    all
}

/// The Go driver's chart names the Services after its containers; scrape configurations know them.
#[test]
fn each_metrics_service_reaches_a_declared_port() {
    let Some(helm) = helm() else { return };
    let mut seen = BTreeSet::new();
    each(&helm, |set, objects| {
        for service in objects.iter().filter(|it| it["kind"] == "Service") {
            let name = service["metadata"]["name"].as_str().expect("a name");
            let at = format!("{set}: {name}");
            let spec = &service["spec"];
            let app = spec["selector"]["app"].as_str().expect("an app");
            let of_pod = pods(objects);
            let (_, pod) = of_pod.iter().find(|(it, _)| *it == app).expect("its pods");
            let target = &spec["ports"][0]["targetPort"];
            let containers = array(&pod["containers"]).iter();
            let mut ports = containers.flat_map(|it| array(&it["ports"]));
            let is_open = ports.any(|it| it["containerPort"] == *target);
            assert!(is_open, "{at}: no container serves {target}");
            // A scraper of endpoints takes this port in the place of the Service's.
            let annotation = &service["metadata"]["annotations"]["prometheus.io/port"];
            assert_eq!(*annotation, target.to_string(), "{at}");
            seen.insert(name.to_owned());
            if let Some(monitor) = find(objects, "ServiceMonitor", name) {
                let wanted = monitor["spec"]["selector"]["matchLabels"].as_object();
                let labels = &service["metadata"]["labels"];
                for (label, value) in wanted.expect("labels") {
                    assert_eq!(labels[label], *value, "{at}: {label}");
                }
                let port = &monitor["spec"]["endpoints"][0]["port"];
                assert_eq!(*port, spec["ports"][0]["name"], "{at}");
                let namespace = &service["metadata"]["namespace"];
                let watched = &monitor["spec"]["namespaceSelector"]["matchNames"][0];
                assert_eq!(watched, namespace, "{at}");
            }
        }
    });
    let controller = "ebs-csi-controller";
    for part in ["provisioner", "attacher", "resizer", "snapshotter", "volumemodifier"] {
        assert!(seen.contains(&format!("{controller}-{part}")), "{part}");
    }
    for name in [controller, "ebs-csi-controller-node-lifecycle", "ebs-csi-node"] {
        assert!(seen.contains(name), "{name}");
    }
}

fn metrics(text: &str) -> BTreeSet<&str> {
    // `aws_ebs_csi_{read,write}_…` and `…_api_*` are abbreviations.
    metrics::named(text).filter(|word| !word.ends_with('_')).collect()
}

#[test]
fn dashboards_query_only_served_metrics() {
    let served = served();
    let mut shown = BTreeSet::new();
    for (file, board) in boards() {
        for query in queries(&board) {
            let named = metrics(query);
            assert!(!named.is_empty(), "{file}: {query}");
            for name in named {
                let metric = of_sample(&served, name);
                shown.insert(metric.unwrap_or_else(|| panic!("{file}: {name}")).to_owned());
            }
        }
        // Variables name metrics, too.
        for name in metrics(&board["templating"].to_string()) {
            assert!(of_sample(&served, name).is_some(), "{file}: {name} is not served");
        }
    }
    // Every metric is on a dashboard, but for those that only count scrapes, and the Go driver's
    // names for the same counts.
    let is_needed = |name: &str| !name.contains("_collector_") && !name.starts_with("cloud");
    let hidden: Vec<_> =
        served.keys().filter(|name| !shown.contains(*name) && is_needed(name)).collect();
    assert!(hidden.is_empty(), "on no dashboard: {hidden:?}");
}

#[test]
fn alert_rules_name_only_served_metrics() {
    let served = served();
    assert_eq!(of_sample(&served, "aws_ebs_csi_operations_total"), None);
    let mut seen = 0;
    for (file, text) in texts("deploy/install/chart/alerts", ".yaml") {
        for name in metrics(&text) {
            assert!(of_sample(&served, name).is_some(), "{file}: {name}");
            seen += 1;
        }
    }
    assert!(seen >= 10, "{seen}");
}

#[test]
fn dashboards_have_own_ids_and_fit_grid() {
    let mut uids = BTreeSet::new();
    for (file, board) in boards() {
        let uid = board["uid"].as_str().expect("a uid").to_owned();
        assert_eq!(format!("{uid}.json"), format!("ebs-csi-{file}"));
        assert!(uids.insert(uid), "{file}");
        let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
        for panel in panels(&board) {
            let title = panel["title"].as_str().expect("a title");
            assert!(ids.insert(panel["id"].as_i64().expect("an id")), "{file}: {title}");
            let of = |key: &str| panel["gridPos"][key].as_i64().expect("a place");
            assert!(of("x") + of("w") <= 24, "{file}: {title}");
            for x in of("x")..of("x") + of("w") {
                for y in of("y")..of("y") + of("h") {
                    assert!(cells.insert((x, y)), "{file}: {title} lies over another panel");
                }
            }
        }
    }
    assert!(uids.len() >= 3, "{uids:?}");
}

/// One Prometheus may hold several clusters, and several releases of the chart. A series without
/// the label `cluster` is shown with `All`, which an empty label matches, too.
#[test]
fn dashboards_select_cluster_and_job() {
    let selected = "{cluster=~\"$cluster\",job=~\"$job\"";
    for (file, board) in boards() {
        let variables = array(&board["templating"]["list"]);
        let variable = |name: &str| {
            let found = variables.iter().find(|it| it["name"] == name);
            found.unwrap_or_else(|| panic!("{file}: no variable {name}"))
        };
        for name in ["cluster", "job"] {
            let it = variable(name);
            assert_eq!(
                (&it["allValue"], &it["includeAll"]),
                (&".*".into(), &true.into()),
                "{file}"
            );
        }
        let job = variable("job")["query"]["query"].as_str().unwrap_or_default();
        assert!(job.contains("cluster=~\"$cluster\"") && job.ends_with(", job)"), "{file}: {job}");
        for query in queries(&board) {
            let named = metrics::named(query).filter(|word| !word.ends_with('_')).count();
            assert_eq!(query.matches(selected).count(), named, "{file}: {query}");
        }
    }
}

#[test]
fn dashboards_are_rendered_as_labelled_config_maps() {
    let Some(helm) = helm() else { return };
    let none = render(&helm, &[]);
    let is_board = |it: &&Value| {
        let name = it["metadata"]["name"].as_str().unwrap_or_default();
        name.starts_with("ebs-csi-dashboard-")
    };
    assert_eq!(none.iter().filter(is_board).count(), 0);
    let values =
        "dashboards.enabled=true,dashboards.namespace=grafana,dashboards.labels.team=storage";
    let objects = render(&helm, &["--set", values]);
    let boards = boards();
    assert_eq!(objects.iter().filter(is_board).count(), boards.len());
    for (file, board) in boards {
        let name = format!("ebs-csi-dashboard-{}", file.trim_end_matches(".json"));
        let map = find(&objects, "ConfigMap", &name).expect("a ConfigMap");
        assert_eq!(map["metadata"]["namespace"], "grafana", "{name}");
        assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1", "{name}");
        assert_eq!(map["metadata"]["labels"]["team"], "storage", "{name}");
        let carried = map["data"][format!("ebs-csi-{file}")].as_str();
        let carried: Value = serde_json::from_str(carried.expect("the file")).expect("JSON");
        assert_eq!(carried, board, "{name}");
    }
}

#[test]
fn each_alert_has_runbook_and_vice_versa() {
    let alerts = alerts();
    for (name, rule) in &alerts {
        let page = rule["annotations"]["runbook"].as_str().expect("a runbook");
        let paragraph = format!("**{name}**");
        assert!(read(page).contains(&paragraph), "{page}: no {paragraph}");
        let labels = rule["labels"]["severity"].as_str().unwrap_or_default();
        assert!(["critical", "warning"].contains(&labels), "{name}: {labels}");
    }
    let chart = "deploy/install/chart/README.md";
    let docs = texts("deploy/docs", ".md")
        .into_iter()
        .map(|(name, text)| (format!("deploy/docs/{name}"), text));
    for (page, text) in docs.chain([(chart.to_owned(), read(chart))]) {
        for name in text.split("**").filter(|it| it.starts_with("EBS")) {
            let is_alert = name.chars().all(char::is_alphanumeric);
            let rule = alerts.get(name).filter(|_| is_alert);
            let rule = rule.unwrap_or_else(|| panic!("{page}: {name} is no alert"));
            let runbook = rule["annotations"]["runbook"].as_str();
            assert_eq!(runbook, Some(page.as_str()), "{name}");
        }
    }
}

/// Renders the rules with these values.
fn with_rules(helm: &Path, values: &str) -> Vec<Value> {
    let rules = "prometheusRule.enabled=true,controller.enableMetrics=true,node.enableMetrics=true";
    render(helm, &[&["--set", rules, "--set", values][..], &MONITORS].concat())
}

#[test]
fn runbook_url_follows_base_url_value() {
    let Some(helm) = helm() else { return };
    for base in ["", "https://git.example.com/ebs/"] {
        let values = "prometheusRule.labels.team=storage,prometheusRule.runbookBaseUrl";
        let objects = with_rules(&helm, &format!("{values}={base}"));
        let mut seen = 0;
        for part in PARTS {
            let name = format!("ebs-csi-{part}");
            let rule = find(&objects, "PrometheusRule", &name).expect("a PrometheusRule");
            assert_eq!(rule["metadata"]["labels"]["team"], "storage");
            for rule in rules_of(&rule["spec"]) {
                let notes = &rule["annotations"];
                let page = notes["runbook"].as_str().expect("a runbook");
                let url = (!base.is_empty()).then(|| format!("https://git.example.com/ebs/{page}"));
                assert_eq!(notes["runbook_url"].as_str(), url.as_deref());
                seen += 1;
            }
        }
        assert_eq!(seen, alerts().len());
    }
}

#[test]
fn severities_of_alerts_follow_values() {
    let Some(helm) = helm() else { return };
    let severities = |values: &str| -> BTreeSet<String> {
        let objects = with_rules(&helm, values);
        let rules = objects.iter().filter(|it| it["kind"] == "PrometheusRule");
        let of = |rule: &Value| rule["labels"]["severity"].as_str().expect("a severity").to_owned();
        rules.flat_map(|it| rules_of(&it["spec"])).map(of).collect()
    };
    for (values, expected) in [
        ("nameOverride=", ["critical", "warning"]),
        ("prometheusRule.severities.critical=page", ["page", "warning"]),
        ("prometheusRule.severities.warning=ticket", ["critical", "ticket"]),
        ("prometheusRule.severities.warning=null", ["critical", "warning"]),
    ] {
        assert_eq!(severities(values), expected.map(str::to_owned).into(), "{values}");
    }
}

fn alert_tests() -> BTreeMap<String, String> {
    texts("deploy/install/manifests/alert-tests", ".yaml")
}

#[test]
fn each_alert_has_firing_and_silent_case() {
    let (mut fires, mut stays_silent) = (BTreeSet::new(), BTreeSet::new());
    for (file, text) in alert_tests() {
        let tests: Value = serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{file}: {e}"));
        let cases = array(&tests["tests"]).iter();
        for case in cases.flat_map(|it| array(&it["alert_rule_test"])) {
            let name = case["alertname"].as_str().expect("a name").to_owned();
            match array(&case["exp_alerts"]).is_empty() {
                true => stays_silent.insert(name),
                false => fires.insert(name),
            };
        }
    }
    let all: BTreeSet<String> = alerts().into_keys().collect();
    assert_eq!(fires, all);
    assert_eq!(stays_silent, all);
}

#[test]
fn alerts_fire_as_their_tests_say() {
    let Some(promtool) = promtool() else { return };
    for file in alert_tests().into_keys() {
        let path = root().join("deploy/install/manifests/alert-tests").join(&file);
        let tested = output(Command::new(&promtool).args(["test", "rules"]).arg(path));
        tested.unwrap_or_else(|why| panic!("{file}: {why}"));
    }
    // A rule that never fires fails its tests.
    let directory = tempfile::tempdir().expect("a directory");
    let rules = read("deploy/install/manifests/node-alerts.yaml").replace("== 0", "== 2");
    std::fs::write(directory.path().join("node-alerts.yaml"), rules).expect("the rules");
    let tests = read("deploy/install/manifests/alert-tests/node.yaml").replace("../", "");
    let file = directory.path().join("node.yaml");
    std::fs::write(&file, tests).expect("the tests");
    assert!(output(Command::new(&promtool).args(["test", "rules"]).arg(file)).is_err());
}
