//! The program `preflight` on a simulated node that consists of files.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use ebs_csi_node_agent::registration::{FORMER_SOCKET, SOCKET};
use serde_json::Value;

/// Creates a node that passes every check.
fn node() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("proc/sys/kernel/osrelease", "6.1.0\n");
    write(
        "proc/sys/kernel/seccomp/actions_avail",
        "kill_process kill_thread trap errno user_notif trace log allow\n",
    );
    write("proc/sys/kernel/yama/ptrace_scope", "1\n");
    write("sys/devices/virtual/dmi/id/board_asset_tag", "i-0123456789abcdef0\n");
    write("sys/devices/virtual/dmi/id/product_name", "m7i.large\n");
    for made in ["dev", "var/lib/kubelet/plugins", "var/lib/kubelet/plugins_registry"] {
        std::fs::create_dir_all(dir.path().join(made)).unwrap();
    }
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    dir
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebs-csi-node-agent"));
    command.env_clear().arg("preflight");
    command
}

fn look(mut command: Command, root: &Path) -> (Option<i32>, String) {
    let output = command.arg(format!("--host-root={}", root.display())).output().unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

/// Returns the level and the finding of a check.
fn row(root: &Path, what: &str) -> (String, String) {
    let mut command = program();
    command.arg("--output=json");
    let (status, report) = look(command, root);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["runs"] == true, status == Some(0), "{report:#}");
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["what"] == what).unwrap();
    let text = |key: &str| check[key].as_str().unwrap().to_owned();
    (text("level"), text("finding"))
}

#[test]
fn preflight_of_suitable_node_exits_with_0() {
    if ebs_csi_confine::landlock_abi() == 0 {
        println!("skipped: this kernel has no Landlock");
        return;
    }
    let node = node();
    let (status, report) = look(program(), node.path());
    assert_eq!(status, Some(0), "{report}");
    let lines: Vec<&str> = report.lines().collect();
    assert_eq!(lines.len(), 14, "{report}");
    for line in lines {
        assert!(line.starts_with("ok    ") || line.starts_with("warn  "), "{line}");
    }
    assert!(report.contains("i-0123456789abcdef0"), "{report}");
}

#[test]
fn preflight_of_unsuitable_node_exits_with_1() {
    let node = node();
    std::fs::write(node.path().join("proc/sys/kernel/osrelease"), "5.10.1\n").unwrap();
    std::fs::remove_dir(node.path().join("var/lib/kubelet/plugins_registry")).unwrap();
    let (status, report) = look(program(), node.path());
    assert_eq!(status, Some(1), "{report}");
    let failed = report.lines().filter(|line| line.starts_with("fail  "));
    assert_eq!(failed.count(), 2, "{report}");
    assert!(report.contains("use a node image with kernel 5.15"), "{report}");
    let elsewhere = node.path().join("var/lib/elsewhere");
    symlink(node.path().join("var/lib/kubelet"), elsewhere).unwrap();
    let mut command = program();
    command.arg("--kubelet-root=/var/lib/elsewhere");
    assert_eq!(look(command, node.path()).0, Some(1));
}

#[test]
fn preflight_reports_serving_and_stale_registration_sockets() {
    let node = node();
    let registry = node.path().join("var/lib/kubelet/plugins_registry");
    assert_eq!(
        row(node.path(), "registration"),
        ("ok".into(), "nobody has this driver's name".into())
    );
    std::fs::create_dir(registry.join("ebs-csi")).unwrap();
    for (name, level) in [
        (SOCKET, "ok"),
        (&format!("ebs-csi/{SOCKET}"), "ok"),
        (FORMER_SOCKET, "warn"),
        ("ebs.csi.aws.com-other.sock", "warn"),
    ] {
        let socket = registry.join(name);
        let living = UnixListener::bind(&socket).unwrap();
        let (found, finding) = row(node.path(), "registration");
        assert_eq!(found, level, "{finding}");
        assert!(finding.contains(name) && finding.contains("serves"), "{finding}");
        drop(living);
        let (_, finding) = row(node.path(), "registration");
        assert!(finding.contains("left behind"), "{finding}");
        std::fs::remove_file(socket).unwrap();
    }
}

/// A directory that the user cannot read does not fail the run: the exit status is 0.
#[test]
fn preflight_as_unprivileged_user_reports_denied_access() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can start it as another user");
        return;
    }
    let node = node();
    let kubelet = node.path().join("var/lib/kubelet");
    std::fs::set_permissions(&kubelet, std::fs::Permissions::from_mode(0o750)).unwrap();
    let reachable = node.path().join("ebs-csi-node-agent");
    // Another process copies: a child that another test starts here would inherit the descriptor
    // that writes, and no program starts while it is open (ETXTBSY).
    let built = env!("CARGO_BIN_EXE_ebs-csi-node-agent");
    assert!(Command::new("cp").arg(built).arg(&reachable).status().unwrap().success());
    let mut command = Command::new(reachable);
    command.env_clear().arg("preflight").uid(1000).gid(1000);
    let (status, report) = look(command, node.path());
    assert_eq!(status, Some(0), "{report}");
    assert!(report.contains("this user may not look"), "{report}");
}

#[test]
fn unknown_output_format_exits_with_64() {
    let output = program().arg("--output=xml").output().unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 1);
}
