//! Runs the harness with the smallest numbers and whatever build the tests use: each figure is
//! measured, written, and turned into a page. The tests check only numbers that are exact counts.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use ebs_csi_sandbox::binaries::for_test;
use serde_json::Value;

/// Runs the bench, whose other programs are in the same directory.
fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebs-csi-bench"));
    command.args(arguments).output().expect("ebs-csi-bench runs")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn figures(path: &Path) -> Vec<Value> {
    let results = std::fs::read_to_string(path).expect("results");
    let mut results: Value = serde_json::from_str(&results).expect("JSON");
    serde_json::from_value(results["figures"].take()).expect("figures")
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

/// Returns the figure's first row of this role.
fn first<'a>(figure: &'a Value, role: &str) -> Option<&'a Value> {
    list(&figure["rows"]).iter().find(|row| row["role"] == role)
}

/// Runs a part of the bench with these options in a directory of its own, if that is possible here.
/// Returns the figures.
fn run_part(part: &str, options: &[&str]) -> Option<Vec<Value>> {
    for_test(&[])?;
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let (out, keep) = (directory.join("out"), directory.join("keep"));
    let arguments = [part, "--quick", "--out", text(&out), "--keep", text(&keep)];
    let done = bench(&[&arguments[..], options].concat());
    assert!(done.status.success(), "{done:?}");
    let file = format!("{part}.json");
    let (whole, kept) = (figures(&out.join(&file)), figures(&keep.join(&file)));
    for (figure, kept) in whole.iter().zip(&kept) {
        let key = &figure["key"];
        for (row, kept) in list(&figure["rows"]).iter().zip(list(&kept["rows"])) {
            let samples = list(&row["samples"]).len();
            assert!(samples > 0 && row["summary"]["count"] == samples, "{key}: {}", row["label"]);
            assert_eq!(kept["summary"], row["summary"], "{key}");
            assert_eq!(kept["samples"], Value::Null, "{key}: kept samples");
        }
        assert!(first(figure, "ours").is_some(), "{key}: no row of the driver");
    }
    let page = directory.join("performance.md");
    let written = bench(&["report", "--results", text(&keep), "--page", text(&page)]);
    assert!(written.status.success(), "{written:?}");
    let page = std::fs::read_to_string(&page).expect("the page");
    for figure in &whole {
        let key = figure["key"].as_str().expect("a key");
        assert!(page.contains(&format!("<a id=\"{key}\"></a>")), "{key}");
        let chart = format!("performance/{key}.svg");
        let is_drawn = directory.join(&chart).is_file();
        assert_eq!(page.contains(&format!("({chart})")), is_drawn, "{key}");
    }
    Some(whole)
}

/// Returns the statistics of the driver's row in the figure of this key.
fn ours<'a>(figures: &'a [Value], key: &str) -> &'a Value {
    let figure = figures.iter().find(|figure| figure["key"] == key);
    let row = figure.and_then(|figure| first(figure, "ours"));
    &row.unwrap_or_else(|| panic!("no figure {key}"))["summary"]
}

fn greatest(figures: &[Value], key: &str) -> f64 {
    ours(figures, key)["greatest"].as_f64().expect("a number")
}

#[test]
fn node_bench_runs_and_loses_no_process() {
    let Some(figures) = run_part("node", &[]) else { return };
    assert_eq!(figures.len(), 20);
    assert_eq!(greatest(&figures, "node-parallel"), 0.0, "a process was lost");
}

#[test]
fn figures_of_delayed_disks_name_their_latency() {
    if !Path::new("/dev/fuse").exists() {
        println!("skipped: this kernel has no /dev/fuse");
        return;
    }
    let options = ["--only", "ext4", "--latency", "0.5ms"];
    let Some(figures) = run_part("node", &options) else { return };
    assert_eq!(figures.len(), 6);
    for figure in &figures {
        let text = |name: &str| figure[name].as_str().expect("text");
        assert!(text("key").ends_with("-ext4-0.5ms"), "{figure}");
        assert!(text("command").ends_with(" --latency 0.5ms"), "{figure}");
        assert!(first(figure, "bound").is_some(), "no bare steps: {figure}");
        assert!(figure["targets"].as_array().is_none_or(Vec::is_empty), "{figure}");
    }
}

#[test]
fn controller_bench_burst_has_no_throttles_or_retries() {
    let Some(figures) = run_part("controller", &[]) else { return };
    assert_eq!(figures.len(), 31);
    assert_eq!(greatest(&figures, "burst-attempts-10"), 1.0, "requests per create or attach");
    assert_eq!(greatest(&figures, "burst-throttled-10"), 0.0);
    assert_eq!(greatest(&figures, "burst-retried-10"), 0.0);
}

#[test]
#[expect(non_snake_case, reason = "scenarios are named by their numbers")]
fn F48_failover_is_measured_in_a_small_cluster() {
    let built = Path::new(env!("CARGO_BIN_EXE_ebs-csi-bench"));
    if !built.with_file_name("ebs-csi-node-lifecycle").exists() {
        println!(
            "skipped: ebs-csi-node-lifecycle is not built; cargo build --manifest-path controller/node-lifecycle/Cargo.toml --bins"
        );
        return;
    }
    let Some(figures) = run_part("failover", &[]) else { return };
    assert_eq!(figures.len(), 8);
    // Every node that died was tainted, emptied and admitted again, and no other node was touched;
    // otherwise the bench fails.
    assert!(ours(&figures, "failover-churn-decision")["count"] != 0);
}

/// Makes the program `NAME` of this build stand in for another driver, behind the other's command
/// line: `script` runs it as `$built`, or as `$copy`, which every user can reach. Each figure must
/// have a row of it.
fn is_measured_alongside(part: &str, only: &str, number: usize, name: &str, script: &str) {
    if for_test(&[]).is_none() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let open = |path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("mode");
    };
    open(directory.path());
    let built = Path::new(env!("CARGO_BIN_EXE_ebs-csi-bench")).with_file_name(name);
    let (program, other) = (directory.path().join(name), directory.path().join("other-driver"));
    std::fs::copy(&built, &program).expect("it is built");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = {part} ] || exit 64\nbuilt={} copy={}\n{script}\n",
        built.display(),
        program.display()
    );
    std::fs::write(&other, script).expect("a script");
    open(&other);
    let out = directory.path().join("out");
    let peer = ["--peer-bin", text(&other), "--out", text(&out)];
    let done = bench(&[&[part, "--quick", "--only", only], &peer[..]].concat());
    assert!(done.status.success(), "{done:?}");
    let figures = figures(&out.join(part).with_extension("json"));
    assert_eq!(figures.len(), number);
    for figure in &figures {
        let row = first(figure, "peer");
        assert!(row.is_some_and(|row| row["summary"]["count"] != 0), "{}", figure["key"]);
    }
}

#[test]
fn other_drivers_controller_is_measured_alongside() {
    let script = "shift\nexec $copy \"$@\"";
    is_measured_alongside("controller", "start,burst", 9, "ebs-csi-controller", script);
}

/// This driver needs two flags that the other does not: kubelet's directory, and that loop devices
/// are volumes.
#[test]
fn other_drivers_node_service_is_measured_alongside() {
    let script = "node=$(dirname \"$(dirname \"${2#--endpoint=unix://}\")\")\n\
         exec $built \"$@\" --kubelet-root=\"$node/kubelet\" --runtime-dir=\"$node/other\" --sandbox";
    is_measured_alongside("node", "memory,ext4", 7, "aws-ebs-csi-driver", script);
}

#[test]
fn unknown_measurement_is_refused_by_name() {
    for part in ["controller", "node", "failover"] {
        let done = bench(&[part, "--only", "weather", "--out", "/nonexistent"]);
        assert!(!done.status.success());
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(
            said.contains("no measurement is called weather") && said.lines().count() == 1,
            "{said}"
        );
    }
}
