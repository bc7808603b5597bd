//! `deploy/docs/metrics.md`: the metrics of each process, from the code that registers or writes
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use syn::Expr;
use syn::visit::{self, Visit};

use crate::registrations::{Registrations, fields, subject};
use crate::source::{last, literal, parse, rust_files};
use crate::{assert_current, cell, root};

/// One metric as it is served in the text format.
#[derive(Debug)]
struct Metric {
    kind: String,
    labels: Vec<String>,
    help: String,
}

/// The metrics of one process, by name.
type Metrics = BTreeMap<String, Metric>;

/// Returns the metrics that a crate registers with the Prometheus client.
fn registered(folder: &str) -> Metrics {
    let files: Vec<syn::File> = rust_files(folder).iter().map(|path| parse(path)).collect();
    let mut labels = BTreeMap::new();
    for file in &files {
        for (name, fields) in fields(file) {
            labels.insert(name, fields.into_keys().collect::<Vec<_>>());
        }
    }
    let mut all = Metrics::new();
    for file in &files {
        let registrations = Registrations::of(file);
        for (name, help, kind, label_set) in registrations.found {
            let is_collected = kind == "ConstCounter";
            let (name, kind) = match kind.as_str() {
                "Counter" | "ConstCounter" => (format!("{name}_total"), "counter"),
                "Gauge" => (name, "gauge"),
                "Histogram" => (name, "histogram"),
                other => panic!("{name}: the kind {other} is not known"),
            };
            let labels = match label_set {
                Some(set) => labels.get(&set).cloned().expect("a set of labels"),
                None if is_collected => registrations.pairs.clone(),
                None => Vec::new(),
            };
            let kind = kind.to_owned();
            let metric = Metric { kind, labels, help };
            assert!(all.insert(name.clone(), metric).is_none(), "{name} twice");
        }
    }
    all
}

/// Finds what a function writes: calls of `head` with a name, a kind and a help text, each followed
/// by the format strings of the metric's samples. A name or help may be a variable that was bound
/// to a literal, or stand in an array of tuples that a loop passes through.
#[derive(Default)]
struct Written {
    variables: BTreeMap<String, String>,
    /// The tuples of literals of the loop or the constant in which `head` is called.
    tuples: BTreeMap<String, Vec<Vec<String>>>,
    found: Vec<(String, Metric)>,
    /// How many of `found` the last call of `head` gave, which get the labels that follow.
    latest: usize,
    /// Labels of strings that samples take as `{label}` or `{labels}`.
    shared: Vec<String>,
    /// Labels of the `info` metric.
    info: Vec<String>,
}

/// Returns the names before `="` in a format string, without the bound of a histogram's bucket.
fn labels_in(format: &str) -> Vec<String> {
    let mut found = Vec::new();
    let parts: Vec<&str> = format.split("=\"").collect();
    for part in parts.iter().take(parts.len() - 1) {
        let name: String =
            part.chars().rev().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let name: String = name.chars().rev().collect();
        if !name.is_empty() && name != "le" {
            found.push(name);
        }
    }
    found
}

/// Returns the leading literals of the tuples of an array.
fn tuples(expression: &Expr) -> Option<Vec<Vec<String>>> {
    let Expr::Array(array) = expression else { return None };
    let rows = array.elems.iter().map(|element| match element {
        Expr::Tuple(it) => it.elems.iter().map_while(literal).collect(),
        _ => Vec::new(),
    });
    Some(rows.collect())
}

impl Written {
    fn value(&self, argument: Option<&Expr>) -> Option<String> {
        let argument = argument?;
        literal(argument).or_else(|| self.variables.get(&subject(argument)).cloned())
    }

    /// The rows that a loop passes through, and the names that it gives to their parts.
    fn pass(&mut self, names: &[String], rows: &[Vec<String>], body: &syn::Block) {
        for row in rows {
            for (name, value) in names.iter().zip(row) {
                self.variables.insert(name.clone(), value.clone());
            }
            self.visit_block(body);
        }
    }
}

impl<'ast> Visit<'ast> for Written {
    fn visit_item_const(&mut self, it: &'ast syn::ItemConst) {
        if let Some(rows) = tuples(&it.expr) {
            self.tuples.insert(it.ident.to_string(), rows);
        }
    }

    fn visit_local(&mut self, it: &'ast syn::Local) {
        if let (syn::Pat::Ident(name), Some(init)) = (&it.pat, &it.init)
            && let Some(text) = literal(&init.expr)
        {
            self.variables.insert(name.ident.to_string(), text);
        }
        visit::visit_local(self, it);
    }

    fn visit_expr_for_loop(&mut self, it: &'ast syn::ExprForLoop) {
        let rows = match &*it.expr {
            Expr::Path(of) => self.tuples.get(&last(&of.path)).cloned(),
            other => tuples(other),
        };
        let names: Vec<String> = match &*it.pat {
            syn::Pat::Tuple(it) => it
                .elems
                .iter()
                .map(|part| match part {
                    syn::Pat::Ident(name) => name.ident.to_string(),
                    _ => String::new(),
                })
                .collect(),
            _ => Vec::new(),
        };
        match rows {
            Some(rows) => self.pass(&names, &rows, &it.body),
            None => visit::visit_expr_for_loop(self, it),
        }
    }

    fn visit_expr_call(&mut self, it: &'ast syn::ExprCall) {
        visit::visit_expr_call(self, it);
        if subject(&it.func) != "head" {
            return;
        }
        let [name, kind, help] = [1, 2, 3].map(|at| self.value(it.args.get(at)));
        let name = name.expect("a name that can be read");
        let kind = kind.unwrap_or_else(|| panic!("{name}: no kind"));
        let help = help.unwrap_or_else(|| panic!("{name}: no help"));
        let help = help.trim_end_matches('.').to_owned();
        let labels = Vec::new();
        self.found.push((name, Metric { kind, labels, help }));
        self.latest = self.found.len() - 1;
    }

    fn visit_expr_method_call(&mut self, it: &'ast syn::ExprMethodCall) {
        visit::visit_expr_method_call(self, it);
        if it.method == "info" && it.args.len() == 2 {
            self.info.extend(it.args.first().and_then(literal));
        }
    }

    fn visit_macro(&mut self, it: &'ast syn::Macro) {
        for token in it.tokens.clone() {
            let text = syn::parse_str::<syn::LitStr>(&token.to_string());
            let Ok(text) = text.map(|it| it.value()) else { continue };
            let labels = labels_in(&text);
            if it.path.is_ident("format") {
                if !labels.is_empty() {
                    self.shared = labels;
                }
                continue;
            }
            let shared = ["{{{label}", "{{{labels}"].iter().any(|it| text.contains(it));
            let labels = if shared { self.shared.clone() } else { labels };
            if let Some((_, metric)) = self.found.get_mut(self.latest) {
                for label in labels {
                    if !metric.labels.contains(&label) {
                        metric.labels.push(label);
                    }
                }
            }
        }
    }
}

/// Returns the metrics that the node-agent writes.
fn written() -> Metrics {
    let mut all = Metrics::new();
    let mut info = BTreeSet::new();
    for (file, prefix) in [
        ("node-agent/src/metrics.rs", ""),
        ("node-agent/src/http_endpoint/nvme_metrics.rs", "aws_ebs_csi_"),
    ] {
        let mut written = Written::default();
        written.visit_file(&parse(&root().join(file)));
        assert!(written.found.len() >= 5, "{file}: {}", written.found.len());
        for (name, metric) in written.found {
            let name = format!("{prefix}{name}");
            assert!(all.insert(name.clone(), metric).is_none(), "{name} twice");
        }
    }
    for path in rust_files("node-agent/src") {
        let mut written = Written::default();
        if !path.ends_with("metrics.rs") && !path.ends_with("nvme_metrics.rs") {
            written.visit_file(&parse(&path));
        }
        info.extend(written.info);
    }
    let process = all.get_mut("ebs_csi_node_agent_info").expect("the info");
    process.labels = info.into_iter().collect();
    all
}

/// The processes that serve metrics, with their metrics.
fn processes() -> [(&'static str, &'static str, Metrics); 3] {
    [
        (
            "controller",
            "Container `ebs-plugin` of the Deployment, port 3301; a Service with `controller.enableMetrics`.",
            registered("controller/src"),
        ),
        (
            "node-lifecycle",
            "Container `node-lifecycle` of the Deployment, port 3308; a Service with\n`controller.enableMetrics`. Those that are *of the leader* count there alone.",
            registered("controller/node-lifecycle/src"),
        ),
        (
            "node-agent",
            "Container `ebs-plugin` of the DaemonSet, port 9808; a Service with `node.enableMetrics`. The\nmetrics of a volume's NVMe controller have the names of the Go driver's.",
            written(),
        ),
    ]
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

fn render() -> String {
    let mut out = String::from(
        "# Metrics\n\n\
         For operators: the metrics that each process serves at `/metrics`, in the text format of\n\
         Prometheus or, when asked for, as OpenMetrics. A histogram has the series `_bucket`, `_sum` and\n\
         `_count`. The mount-helper serves nothing. Alerts over these metrics, with what to do:\n\
         [controller](safe-detach.md#alerts-of-the-controller-and-what-to-do),\n\
         [node-lifecycle](node-lifecycle.md#alerts-and-what-to-do),\n\
         [node-agent](node-agent.md#alerts-and-what-to-do).\n\n\
         Generated from the source by\n\
         `UPDATE_GENERATED=1 cargo test --workspace --test operator_pages`.\n",
    );
    for (name, where_, metrics) in processes() {
        let _ = write!(
            out,
            "\n## {name}\n\n{where_}\n\n| Metric | Kind | Labels | Meaning |\n|---|---|---|---|\n"
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
    let flags = [
        "controller/src/process/config/flags.rs",
        "controller/node-lifecycle/src/flags.rs",
        "node-agent/src/settings/flags.rs",
    ];
    let mut named = 0;
    for ((process, _, metrics), file) in processes().iter().zip(flags) {
        let fields: BTreeSet<String> =
            fields(&parse(&root().join(file))).into_values().flatten().map(|it| it.0).collect();
        let help = metrics.values().flat_map(|metric| metric.help.split([' ', ';', ',']));
        for flag in help.filter_map(|word| word.strip_prefix("--")) {
            assert!(fields.contains(&flag.replace('-', "_")), "{process}: --{flag}");
            named += 1;
        }
    }
    assert!(named >= 8, "{named}");
}

#[test]
fn metrics_page_matches_source() {
    assert_current("deploy/docs/metrics.md", &render());
}
