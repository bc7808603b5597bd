//! `deploy/docs/metrics.md`: the metrics of each process, from a page on which each has a sample.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ebs_csi_sandbox::binaries::Binaries;

use crate::{assert_current, cell, printed};

/// One metric as it is served.
#[derive(Debug, Default)]
struct Metric {
    kind: String,
    labels: Vec<String>,
    help: String,
}

/// The processes that serve metrics, and where.
const PROCESSES: [(&str, &str); 3] = [
    (
        "controller",
        "Container `ebs-plugin` of the Deployment, port 3301; a Service with `controller.enableMetrics`.",
    ),
    (
        "node-lifecycle",
        "Container `node-lifecycle` of the Deployment, port 3308; a Service with\n`controller.enableMetrics`. Those that are *of the leader* count there alone.",
    ),
    (
        "node-agent",
        "Container `ebs-plugin` of the DaemonSet, port 9808; a Service with `node.enableMetrics`. The\nmetrics of a volume's NVMe controller have the names of the Go driver's.",
    ),
];

fn programs() -> Option<Binaries> {
    crate::programs(&PROCESSES.map(|(process, _)| process))
}

/// Returns the metrics of a process, by the names of the text format.
fn metrics_of(binaries: &Binaries, process: &str) -> BTreeMap<String, Metric> {
    let page = printed(binaries, process, &["metrics"]);
    let mut all: BTreeMap<String, Metric> = BTreeMap::new();
    let mut name = String::new();
    let mut help = String::new();
    for line in page.lines().filter(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            rest.split_once(' ').unwrap().1.trim_end_matches('.').clone_into(&mut help);
        } else if let Some((family, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            name = format!("{family}{suffix}");
            let metric = Metric { kind: kind.to_owned(), help: help.clone(), ..Metric::default() };
            assert!(all.insert(name.clone(), metric).is_none(), "{name} twice");
        } else if let Some((_, rest)) = line.split_once('{')
            && let Some((labels, _)) = rest.rsplit_once('}')
        {
            let metric = all.get_mut(&name).expect("its type");
            let names = labels.split("\",").filter_map(|label| Some(label.split_once('=')?.0));
            let known = names.filter(|name| *name != "le").map(str::to_owned);
            metric.labels = known.collect();
        }
    }
    assert!(all.len() >= 20, "{process}: {}", all.len());
    all
}

/// Returns a help text in Markdown: flags are code.
fn with_marked_flags(help: &str) -> String {
    let mark = |word: &str| {
        let end = word.find([';', ',']).unwrap_or(word.len());
        let (flag, rest) = word.split_at(end);
        if flag.starts_with("--") { format!("`{flag}`{rest}") } else { word.to_owned() }
    };
    help.split(' ').map(mark).collect::<Vec<_>>().join(" ")
}

fn render(binaries: &Binaries) -> String {
    let mut out = String::from(
        "# Metrics\n\n\
         For operators: the metrics that each process serves at `/metrics`, in the text format of\n\
         Prometheus or, when asked for, as OpenMetrics. A histogram has the series `_bucket`, `_sum` and\n\
         `_count`. The mount-helper serves nothing. Alerts over these metrics, with what to do:\n\
         [controller](safe-detach.md#alerts-of-the-controller-and-what-to-do),\n\
         [node-lifecycle](node-lifecycle.md#alerts-and-what-to-do),\n\
         [node-agent](node-agent.md#alerts-and-what-to-do), [EC2 and\n\
         volumes](operate.md#alerts-and-what-to-do). The chart's dashboards show all but those that count\n\
         scrapes and the older names.\n\n\
         Generated from what `PROGRAM metrics` prints by\n\
         `UPDATE_GENERATED=1 cargo test --workspace --test operator_pages`.\n",
    );
    for (name, container) in PROCESSES {
        let metrics = metrics_of(binaries, name);
        let _ = write!(
            out,
            "\n## {name}\n\n{container}\n\n| Metric | Kind | Labels | Meaning |\n|---|---|---|---|\n"
        );
        for (name, metric) in metrics {
            let labels: Vec<String> = metric.labels.iter().map(|it| format!("`{it}`")).collect();
            let Metric { kind, help, .. } = &metric;
            let help = cell(&with_marked_flags(help));
            let _ = writeln!(out, "| `{name}` | {kind} | {} | {help} |", labels.join(", "));
        }
    }
    out
}

#[test]
fn flags_that_metrics_name_exist() {
    let Some(binaries) = programs() else { return };
    let mut named = 0;
    for (process, _) in PROCESSES {
        let offered = printed(&binaries, process, &["--help"]);
        let metrics = metrics_of(&binaries, process);
        let help = metrics.values().flat_map(|metric| metric.help.split([' ', ';', ',']));
        for flag in help.filter(|word| word.starts_with("--")) {
            assert!(offered.contains(flag), "{process}: {flag}");
            named += 1;
        }
    }
    assert!(named >= 8, "{named}");
}

#[test]
fn metrics_page_matches_programs() {
    let Some(binaries) = programs() else { return };
    assert_current("deploy/docs/metrics.md", &render(&binaries));
}
