//! The process by itself: its exit when it cannot start.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn program() -> PathBuf {
    // In the directory above the test's own binary: target/debug/deps/x -> target/debug.
    let me = std::env::current_exe().expect("this test's path");
    let directory = me.parent().and_then(|deps| deps.parent());
    directory.expect("a target directory").join("ebs-csi-node-lifecycle")
}

fn run(arguments: &[&str]) -> Output {
    Command::new(program())
        .args(arguments)
        .env_clear()
        .output()
        .expect("the program can be started; cargo build --bins first")
}

#[test]
fn help_and_version_exit_0_with_output() {
    for arguments in [["--help"], ["--version"]] {
        let ended = run(&arguments);
        assert_eq!(ended.status.code(), Some(0), "{arguments:?}");
        assert!(!ended.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn startup_error_decides_exit_status_and_last_line() {
    let rows: [(&[&str], i32, &str); 7] = [
        (&["--no-such-flag"], 64, "--no-such-flag"),
        (&["--kubeconfig=/no/such/file"], 78, "/no/such/file"),
        // Outside a pod the service account's directory does not exist, and the error of the
        // confinement names it.
        (&[], 77, "serviceaccount"),
        (&["preflight", "--help"], 0, ""),
        (&["preflight", "--no-such-flag"], 64, "--no-such-flag"),
        (&["preflight", "--output=yaml"], 64, "yaml"),
        (&["preflight", "--kubeconfig=/no/such/file"], 78, "/no/such/file"),
    ];
    for (arguments, status, word) in rows {
        let ended = run(arguments);
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(status), "{arguments:?}: {said}");
        let last = said.lines().last().unwrap_or_default();
        assert!(last.contains(word), "{arguments:?}: {said}");
    }
}

fn certificate(name: &str) -> PathBuf {
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("tests are run by cargo");
    let path = PathBuf::from(here).join("../tests/certificates").join(name);
    path.canonicalize().expect("a certificate")
}

/// Runs the program until its log has such a line, sends it SIGTERM, and returns its exit status.
/// `Err`: the program ended without the line.
fn until_line(
    arguments: &[String],
    mut is_wanted: impl FnMut(&str) -> bool,
) -> Result<Option<i32>, String> {
    let mut child = Command::new(program())
        .args(arguments)
        .env_clear()
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    let stderr = child.stderr.take().expect("a pipe");
    let mut said = String::new();
    let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
    let found = lines.any(|line| {
        said.push_str(&line);
        said.push('\n');
        is_wanted(&line)
    });
    // Fails if the process has ended by itself.
    let _ = Command::new("kill").arg(child.id().to_string()).status();
    let status = child.wait().expect("a child of this process").code();
    found.then_some(status).ok_or(said)
}

/// Returns a directory that the process can read after it has changed its user.
fn readable_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open).expect("a directory of ours");
    directory
}

/// Writes a kubeconfig file with these fields of its user and its cluster. Returns the flag for it.
fn write_kubeconfig(directory: &Path, cluster: &str, user: &str) -> String {
    let text = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: c}}}}],
          clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1'{cluster}}}}}], users: [{{name: c, user: {{{user}}}}}]}}"
    );
    let file = directory.join("kubeconfig");
    std::fs::write(&file, text).expect("written");
    format!("--kubeconfig={}", file.display())
}

#[test]
fn files_named_by_kubeconfig_are_read_before_confinement() {
    let (of_file, elsewhere) = (readable_directory(), readable_directory());
    for name in ["one.crt", "one.key"] {
        std::fs::copy(certificate(name), elsewhere.path().join(name)).expect("copied");
    }
    let directory = elsewhere.path().display();
    let cluster = format!(", certificate-authority: {directory}/one.crt");
    let user = format!("client-certificate: {directory}/one.crt, client-key: {directory}/one.key");
    let kubeconfig = write_kubeconfig(of_file.path(), &cluster, &user);
    let arguments = [kubeconfig, "--identity=a".to_owned()];
    // The line is logged once the client is made, that is, after all files were read.
    let ended = until_line(&arguments, |line| line.contains("identity=\"a\""));
    ended.unwrap_or_else(|said| panic!("{said}"));
}

const UNREACHABLE: &str = "does not ask for nodes' answers";

fn arguments_without_controller(directory: &Path) -> [String; 4] {
    let socket = directory.join("none.sock");
    [
        write_kubeconfig(directory, "", "token: t"),
        format!("--safe-detach-endpoint=unix://{}", socket.display()),
        "--failover=off".to_owned(),
        "--v=5".to_owned(),
    ]
}

#[test]
fn sigterm_ends_confined_process_with_status_0() {
    let directory = readable_directory();
    let arguments = arguments_without_controller(directory.path());
    let ended = until_line(&arguments, |line| line.contains(UNREACHABLE));
    assert_eq!(ended, Ok(Some(0)));
}

#[test]
fn unreachable_controller_logs_info_once_then_debug() {
    let directory = readable_directory();
    let arguments = arguments_without_controller(directory.path());
    let mut infos = 0;
    let ended = until_line(&arguments, |line| {
        let about = line.contains(UNREACHABLE);
        infos += usize::from(about && line.contains("INFO"));
        about && (line.contains("DEBUG") || infos > 1)
    });
    ended.unwrap_or_else(|said| panic!("{said}"));
    assert_eq!(infos, 1);
}
