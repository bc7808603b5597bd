//! The process by itself: how it ends when it cannot begin.

use std::path::PathBuf;
use std::process::{Command, Output};

fn program() -> PathBuf {
    // Beside the test's own binary: target/debug/deps/x -> target/debug.
    let me = std::env::current_exe().expect("this test's path");
    let directory = me.parent().and_then(|deps| deps.parent());
    directory
        .expect("a target directory")
        .join("ebs-csi-node-lifecycle")
}

fn run(arguments: &[&str]) -> Output {
    Command::new(program())
        .args(arguments)
        .env_clear()
        .output()
        .expect("the program can be started; cargo build --bins first")
}

#[test]
fn help_and_version_end_well() {
    for arguments in [["--help"], ["--version"]] {
        let ended = run(&arguments);
        assert_eq!(ended.status.code(), Some(0), "{arguments:?}");
        assert!(!ended.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn what_is_wrong_decides_the_exit_status_and_is_one_line() {
    let empty = tempfile::tempdir().expect("a directory");
    let missing = format!("--kubeconfig={}/none", empty.path().display());
    let rows: [(&[&str], i32, &str); 3] = [
        (&["--no-such-flag"], 64, "--no-such-flag"),
        (&[&missing], 78, "none"),
        // Not in a pod: its service account's directory is not there, and confinement names it.
        (&[], 77, "serviceaccount"),
    ];
    for (arguments, status, word) in rows {
        let ended = run(arguments);
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(status), "{arguments:?}: {said}");
        let last = said.lines().last().unwrap_or_default();
        assert!(last.contains(word), "{arguments:?}: {said}");
    }
}
