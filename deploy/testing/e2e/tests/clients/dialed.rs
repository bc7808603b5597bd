//! The gRPC clients of a real cluster, unmodified, dial the driver's sockets as they do in the
//! cluster: kubelet's plugin manager, kubelet's CSI client, the stock sidecars' connection library,
//! and Python's library.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use ebs_csi_e2e::Fixture;
use ebs_csi_e2e::program::output;
use ebs_csi_e2e::repository::root;

/// The agent's socket in kubelet's registration directory.
const SOCKET: &str = "ebs.csi.aws.com-reg@localhost.sock";

fn sources() -> PathBuf {
    root().join("deploy/testing/e2e/clients")
}

/// Builds the clients in Go. Prints the reason and returns `None` where that is impossible.
fn go_clients() -> Option<&'static Path> {
    // Built once for all tests, because a program that runs cannot be overwritten.
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(build).as_deref()
}

fn build() -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients");
    let go = |arguments: &[&str]| {
        Command::new("go")
            .args(arguments)
            .current_dir(sources())
            .env("CGO_ENABLED", "0")
            .env("GOTOOLCHAIN", "local")
            .env("GOFLAGS", "-buildvcs=false")
            .output()
    };
    match go(&["mod", "download"]) {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            println!("skipped: no Go modules: {}", why.lines().last().unwrap_or_default());
            return None;
        }
        Err(error) => {
            println!("skipped: the clients are built with Go: {error}");
            return None;
        }
    }
    let target = program.display().to_string();
    let built = go(&["build", "-trimpath", "-o", &target, "."]).expect("go runs");
    let why = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{why}");
    Some(program)
}

/// Returns a Python with grpcio. Prints the reason and returns `None` where that is impossible.
fn python() -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("grpcio");
    let python = directory.join("bin/python3");
    let run = |program: &Path, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        output.is_ok_and(|output| output.status.success())
    };
    let imports = || run(&python, &["-c", "import grpc"]);
    let directory = directory.display().to_string();
    let is_usable = imports()
        || (run(Path::new("python3"), &["-m", "venv", "--clear", &directory])
            && run(&python, &["-m", "pip", "install", "--quiet", "grpcio==1.85.1"])
            && imports());
    if !is_usable {
        println!("skipped: no Python with grpcio 1.85.1");
    }
    is_usable.then_some(python)
}

/// Returns the client's output, or the reason of its failure.
fn call(program: &Path, arguments: &[&str]) -> Result<String, String> {
    output(Command::new(program).args(arguments)).map(|said| said.trim().to_owned())
}

/// Starts a world with one node that registers itself in the directory `registry`.
async fn registering(registry: &Path) -> Option<Fixture> {
    Fixture::with(|options| {
        options.nodes.truncate(1);
        options.agent_arguments = vec![
            "--kubelet-registration-path=/var/lib/kubelet/plugins/ebs.csi.aws.com/csi.sock"
                .to_owned(),
            format!("--plugin-registration-path={}", registry.display()),
            "--http-endpoint=127.0.0.1:0".to_owned(),
        ];
    })
    .await
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of this test")
}

#[tokio::test]
async fn kubelet_and_the_sidecars_reach_every_socket() {
    let Some(clients) = go_clients() else { return };
    let registry = tempfile::tempdir().unwrap();
    let Some(mut fixture) = registering(registry.path()).await else { return };
    let node = &fixture.world.nodes[0];
    let socket = registry.path().join(SOCKET);

    let answered = call(clients, &["kubelet-registration", text(&socket)]);
    let want =
        "CSIPlugin ebs.csi.aws.com /var/lib/kubelet/plugins/ebs.csi.aws.com/csi.sock [1.0.0]";
    assert_eq!(answered.as_deref(), Ok(want), "{}", fixture.logs());
    let answered = call(clients, &["kubelet-registration", text(&socket), "no reason"]);
    assert_eq!(answered.as_deref(), Ok(want));
    let log = fixture.logs();
    assert!(log.contains("kubelet has registered the driver"), "{log}");
    assert!(log.contains("kubelet refuses the driver"), "{log}");

    let answered = call(clients, &["kubelet-csi", text(&node.csi_socket)]);
    assert_eq!(answered.as_deref(), Ok(node.instance.as_str()));
    for socket in [node.csi_socket.as_path(), fixture.world.controller_socket()] {
        let answered = call(clients, &["sidecar", text(socket)]);
        assert_eq!(answered.as_deref(), Ok("ebs.csi.aws.com"), "{}", socket.display());
    }

    fixture.world.nodes[0].agent.kill().await.unwrap();
    let started = fixture.world.start_agent(0).await;
    started.unwrap();
    let answered = call(clients, &["kubelet-registration", text(&socket)]);
    assert_eq!(answered.as_deref(), Ok(want), "{}", fixture.logs());
    fixture.finish().await;
}

/// If this test fails because the socket answers, the socket's name no longer needs the `@`.
#[tokio::test]
async fn socket_name_without_at_sign_refuses_kubelet() {
    let Some(clients) = go_clients() else { return };
    let registry = tempfile::tempdir().unwrap();
    let Some(fixture) = registering(registry.path()).await else { return };
    let plain = registry.path().join("plain.sock");
    std::os::unix::fs::symlink(SOCKET, &plain).unwrap();
    let refused = call(clients, &["kubelet-registration", text(&plain)]).unwrap_err();
    assert!(refused.contains("PROTOCOL_ERROR"), "{refused}");
    fixture.finish().await;
}

/// Without an explicit authority, grpcio sends the percent-encoded path and is refused. A socket
/// path with `@` works as well.
#[tokio::test]
async fn python_client_is_answered_with_explicit_authority() {
    let Some(python) = python() else { return };
    let links = tempfile::tempdir().unwrap();
    let Some(fixture) = registering(links.path()).await else { return };
    let script = sources().join("grpcio.py");
    let sockets = [fixture.world.nodes[0].csi_socket.as_path(), fixture.world.controller_socket()];
    for socket in sockets {
        let answer = |path: &Path, more: &[&str]| {
            call(&python, &[&["-B", text(&script), text(path)], more].concat())
        };
        let answered = answer(socket, &["grpc.default_authority=localhost"]).unwrap();
        assert!(answered.contains("ebs.csi.aws.com"), "{answered}");
        // Without an explicit authority, grpcio sends the percent-encoded path, as kubelet does.
        let refused = answer(socket, &[]).unwrap_err();
        assert!(refused.contains("RST_STREAM"), "{refused}");
        let named = links.path().join("csi@localhost.sock");
        let _ = std::fs::remove_file(&named);
        std::os::unix::fs::symlink(socket, &named).unwrap();
        let answered = answer(&named, &[]).unwrap();
        assert!(answered.contains("ebs.csi.aws.com"), "{answered}");
    }
    fixture.finish().await;
}
