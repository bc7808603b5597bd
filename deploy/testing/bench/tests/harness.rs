//! Runs the harness with the smallest numbers and whatever build the tests use: each figure is
//! measured, written, and turned into a page. The tests check only numbers that are exact counts.

use std::path::{Path, PathBuf};
use std::process::Command;

use ebs_csi_bench::report::figure::Role;
use ebs_csi_bench::report::results::Results;
use ebs_csi_bench::report::summary::Summary;
use ebs_csi_sandbox::binaries::for_test;

/// Returns a command that runs the bench. The other programs are in the same directory.
fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebs-csi-bench"));
    command.args(arguments);
    command
}

fn run(part: &str, options: &[&str], directory: &Path) -> Option<Results> {
    for_test(&[])?;
    let (out, keep) = (directory.join("out"), directory.join("keep"));
    let path = |path: &PathBuf| path.to_string_lossy().into_owned();
    let done = bench(&[part, "--quick", "--out", &path(&out), "--keep", &path(&keep)])
        .args(options)
        .output()
        .expect("ebs-csi-bench runs");
    assert!(
        done.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    let whole = Results::read(&out.join(format!("{part}.json"))).expect("results");
    let kept = Results::read(&keep.join(format!("{part}.json"))).expect("kept results");
    for (figure, kept) in whole.figures.iter().zip(&kept.figures) {
        for (row, kept) in figure.rows.iter().zip(&kept.rows) {
            assert!(row.summary.count > 0, "{}: no samples of {}", figure.key, row.label);
            assert_eq!(row.summary.count, row.samples.len(), "{}: samples", figure.key);
            assert_eq!(kept.summary, row.summary, "{}", figure.key);
            assert!(kept.samples.is_empty(), "{}: kept samples", figure.key);
        }
        assert!(figure.first(Role::Ours).is_some(), "{}: no row of the driver", figure.key);
    }
    let page = directory.join("performance.md");
    let written = bench(&["report", "--results", &path(&keep), "--page", &path(&page)])
        .status()
        .expect("ebs-csi-bench runs");
    assert!(written.success());
    let text = std::fs::read_to_string(&page).expect("the page");
    for figure in &whole.figures {
        let key = &figure.key;
        assert!(text.contains(&format!("<a id=\"{key}\"></a>")), "{key}");
        let link = format!("(performance/{key}.svg)");
        let chart = directory.join(format!("performance/{key}.svg"));
        assert_eq!(text.contains(&link), chart.is_file(), "{key}");
    }
    Some(whole)
}

/// Runs a part of the bench in a directory of its own, if that is possible here.
fn run_part(part: &str) -> Option<Results> {
    run(part, &[], tempfile::tempdir().expect("a directory").path())
}

fn ours(results: &Results, key: &str) -> Summary {
    let figure = results.figures.iter().find(|figure| figure.key == key);
    let row = figure.and_then(|figure| figure.first(Role::Ours));
    row.unwrap_or_else(|| panic!("no figure {key}")).summary
}

fn greatest(results: &Results, key: &str) -> f64 {
    ours(results, key).greatest
}

#[test]
fn node_bench_runs_and_loses_no_process() {
    let Some(results) = run_part("node") else { return };
    assert_eq!(results.figures.len(), 20);
    assert_eq!(greatest(&results, "node-parallel"), 0.0, "a process was lost");
}

#[test]
fn figures_of_delayed_disks_name_their_latency() {
    if !Path::new("/dev/fuse").exists() {
        println!("skipped: this kernel has no /dev/fuse");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let options = ["--only", "ext4", "--latency", "0.5ms"];
    let Some(results) = run("node", &options, directory.path()) else { return };
    assert_eq!(results.figures.len(), 6);
    for figure in &results.figures {
        assert!(figure.key.ends_with("-ext4-0.5ms"), "{}", figure.key);
        assert!(figure.command.ends_with(" --latency 0.5ms"), "{}", figure.command);
        assert!(figure.first(Role::Bound).is_some(), "{}: no bare steps", figure.key);
        assert!(figure.targets.is_empty(), "{}: a target of other disks", figure.key);
    }
}

#[test]
fn controller_bench_burst_has_no_throttles_or_retries() {
    let Some(results) = run_part("controller") else { return };
    assert_eq!(results.figures.len(), 31);
    assert_eq!(greatest(&results, "burst-attempts-10"), 1.0, "requests per create or attach");
    assert_eq!(greatest(&results, "burst-throttled-10"), 0.0);
    assert_eq!(greatest(&results, "burst-retried-10"), 0.0);
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
    let Some(results) = run_part("failover") else { return };
    assert_eq!(results.figures.len(), 8);
    // Every node that died was tainted, emptied and admitted again, and no other node was touched;
    // otherwise the bench fails.
    assert!(ours(&results, "failover-churn-decision").count >= 1);
}

/// Measures the driver `other` together with this one. The results are written to the directory of
/// `other`.
fn each_figure_has_a_row_of(part: &str, only: &str, figures: usize, other: &Path) {
    let out = other.with_file_name("out");
    let done = bench(&[part, "--quick", "--only", only])
        .arg("--peer-bin")
        .arg(other)
        .arg("--out")
        .arg(&out)
        .output()
        .expect("ebs-csi-bench runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let results = Results::read(&out.join(part).with_extension("json")).expect("results");
    assert_eq!(results.figures.len(), figures);
    for figure in &results.figures {
        let row = figure.first(Role::Peer);
        assert!(row.is_some_and(|row| row.summary.count > 0), "{}", figure.key);
    }
}

#[test]
fn other_drivers_controller_is_measured_alongside() {
    if for_test(&[]).is_none() {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a directory");
    let open = |path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("mode");
    };
    open(directory.path());
    // This driver stands in for the other one, behind the other's command line.
    let built = Path::new(env!("CARGO_BIN_EXE_ebs-csi-bench")).with_file_name("ebs-csi-controller");
    let program = directory.path().join("controller-program");
    std::fs::copy(built, &program).expect("the controller is built");
    let other = directory.path().join("other-driver");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = controller ] || exit 64\nshift\nexec {} \"$@\"\n",
        program.display()
    );
    std::fs::write(&other, script).expect("a script");
    open(&other);
    each_figure_has_a_row_of("controller", "start,burst", 9, &other);
}

#[test]
fn other_drivers_node_service_is_measured_alongside() {
    if for_test(&[]).is_none() {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a directory");
    // This driver stands in for the other one, behind the other's command line. It needs two flags
    // that the other does not: kubelet's directory, and that loop devices are volumes.
    let built = Path::new(env!("CARGO_BIN_EXE_ebs-csi-bench")).with_file_name("aws-ebs-csi-driver");
    let other = directory.path().join("other-driver");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = node ] || exit 64\nnode=$(dirname \"$(dirname \"${{2#--endpoint=unix://}}\")\")\n\
         exec {} \"$@\" --kubelet-root=\"$node/kubelet\" --runtime-dir=\"$node/other\" --sandbox\n",
        built.display()
    );
    std::fs::write(&other, script).expect("a script");
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o755)).expect("mode");
    each_figure_has_a_row_of("node", "memory,ext4", 7, &other);
}

#[test]
fn unknown_measurement_is_refused_by_name() {
    for part in ["controller", "node", "failover"] {
        let done = bench(&[part, "--only", "weather", "--out", "/nonexistent"])
            .output()
            .expect("ebs-csi-bench runs");
        assert!(!done.status.success());
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(
            said.contains("no measurement is called weather") && said.lines().count() == 1,
            "{said}"
        );
    }
}
