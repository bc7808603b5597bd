//! The sockets of the real program: their registration with kubelet, and their handover between
//! agents.

#[path = "scripted/agent.rs"]
mod agent;
#[path = "scripted/metadata_service.rs"]
mod metadata_service;
#[path = "scripted/helper.rs"]
mod scripted_helper;
#[path = "scripted/world.rs"]
mod world;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use agent::{Host, refused, registered_soon};
use ebs_csi_node_agent::registration::{FORMER_SOCKET, SOCKET, own_directories};
use ebs_csi_policy::profile::NODE_AGENT;
use rustix::process::Signal;

/// Creates kubelet's registration directory as kubelet does.
fn registry(dir: &Path) -> std::path::PathBuf {
    let registry = dir.join("plugins_registry");
    std::fs::create_dir(&registry).unwrap();
    std::fs::set_permissions(&registry, std::fs::Permissions::from_mode(0o750)).unwrap();
    registry
}

/// Returns the flags of an agent that registers there.
fn registering(registry: &Path) -> [&'static str; 2] {
    let directory = format!("--plugin-registration-path={}", registry.display());
    ["--kubelet-registration-path=/csi.sock", directory.leak()]
}

/// The agent owns the registry directory here, so it can create a removed socket again.
#[tokio::test]
async fn agent_registers_again_after_socket_removal() {
    let Some(host) = Host::new() else { return };
    let registry = registry(host.path());
    agent::own(&registry);
    let socket = registry.join(SOCKET);
    let mut agent = host.start(&registering(&registry));
    let info = registered_soon(&socket).await;
    assert_eq!(info.r#type, "CSIPlugin");
    assert_eq!(info.name, "ebs.csi.aws.com");
    assert_eq!(info.endpoint, "/csi.sock");
    assert_eq!(info.supported_versions, ["1.0.0"]);
    agent.ready().await;

    for _ in 0..2 {
        std::fs::remove_file(&socket).unwrap();
        registered_soon(&socket).await;
    }
    agent.signal(Signal::TERM);
    assert!(agent.end().await.success());
    assert!(!socket.exists(), "it removes its own socket");
}

/// The agent cannot write to root's directory, so it exits with 1 and registers when kubelet
/// restarts it.
#[tokio::test]
async fn removed_registration_in_root_directory_ends_agent() {
    let Some(host) = Host::new() else { return };
    let registry = registry(host.path());
    let socket = registry.join(SOCKET);
    let arguments = registering(&registry);
    let mut agent = host.start(&arguments);
    registered_soon(&socket).await;
    std::fs::remove_file(&socket).unwrap();
    assert_eq!(agent.end().await.code(), Some(1));
    let log = agent.log();
    assert!(log.contains("was removed and cannot be made again"), "{log}");
    // Kubelet restarts the agent; what an earlier process left behind does not matter.
    let _agent = host.start(&arguments);
    registered_soon(&socket).await;
}

/// A stock node-driver-registrar beside the agent still serves that socket.
#[tokio::test]
async fn agent_without_registration_path_keeps_registrar_socket() {
    let Some(host) = Host::new() else { return };
    let socket = host.path().join(FORMER_SOCKET);
    let _stock = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let before = inode(&socket);
    let directory = format!("--plugin-registration-path={}", host.path().display());
    let mut agent = host.serve(&[&directory]).await;
    agent.signal(Signal::TERM);
    assert!(agent.end().await.success());
    assert_eq!(inode(&socket), before);
}

fn inode(path: &Path) -> u64 {
    std::fs::symlink_metadata(path).unwrap().ino()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn failed_agent_start_takes_no_existing_socket() {
    let Some(host) = Host::new() else { return };
    let registry = registry(host.path());
    let [endpoint, directory] = registering(&registry);
    let mut living = host.serve(&[endpoint, directory]).await;
    registered_soon(&registry.join(SOCKET)).await;
    let sockets = [living.socket.clone(), registry.join(SOCKET)];
    let before = sockets.each_ref().map(|path| inode(path));

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let http = format!("--http-endpoint={}", taken.local_addr().unwrap());
    for more in [&[directory, &http][..], &["--plugin-registration-path=/nonexistent"]] {
        let mut second = host.start(&[&[endpoint], more].concat());
        assert_eq!(second.end().await.code(), Some(1), "{}", second.log());
        assert_eq!(sockets.each_ref().map(|path| inode(path)), before, "{more:?}");
        second.forget_log();
    }
    // Without the capability to change its user, the agent cannot confine itself.
    let mut second = host.start_without_setuid(&[endpoint, directory]);
    assert_eq!(second.end().await.code(), Some(77), "{}", second.log());
    assert!(second.log().contains("cannot become user"), "{}", second.log());

    assert_eq!(sockets.each_ref().map(|path| inode(path)), before);
    living.ready().await;
    registered_soon(&registry.join(SOCKET)).await;
    assert_eq!(names(&registry), [SOCKET]);
}

#[tokio::test]
async fn a_successor_takes_both_sockets_and_keeps_them() {
    let Some(host) = Host::new() else { return };
    let registry = registry(host.path());
    let socket = registry.join(SOCKET);
    let arguments = registering(&registry);
    let mut first = host.serve(&arguments).await;
    registered_soon(&socket).await;
    let before = [inode(&first.socket), inode(&socket)];

    let mut second = host.start(&arguments);
    second.wait_until(|_| inode(&socket) != before[1]).await;
    let taken = [inode(&second.socket), inode(&socket)];
    assert_ne!(taken[0], before[0]);
    second.ready().await;
    registered_soon(&socket).await;
    // The first agent notices the takeover and gives up the sockets.
    first.wait_until(|first| first.log().contains("another agent has taken over")).await;
    first.signal(Signal::TERM);
    assert!(first.end().await.success(), "{}", first.log());

    assert_eq!([inode(&second.socket), inode(&socket)], taken);
    second.ready().await;
    registered_soon(&socket).await;
}

#[tokio::test]
async fn an_agent_ends_when_its_successor_is_gone() {
    let Some(host) = Host::new() else { return };
    let registry = registry(host.path());
    // Gives the directory to the agent, so that the agent may remove its socket there.
    agent::own(host.path());
    let arguments = registering(&registry);
    let mut first = host.serve(&arguments).await;
    let before = inode(&first.socket);
    let mut second = host.start(&arguments);
    second.wait_until(|second| inode(&second.socket) != before).await;
    second.ready().await;
    second.signal(Signal::TERM);
    assert!(second.end().await.success());
    assert!(!second.socket.exists(), "it removes its own socket");
    assert_eq!(first.end().await.code(), Some(1), "{}", first.log());
    assert!(first.log().contains("was removed"), "{}", first.log());
}

#[tokio::test]
async fn an_unregistered_node_shows_in_metric_and_readiness() {
    let Some(host) = Host::new() else { return };
    let registry = registry(host.path());
    let address = agent::free_address();
    let http = format!("--http-endpoint={address}");
    let [endpoint, directory] = registering(&registry);
    let _agent = host.serve(&[endpoint, directory, &http]).await;
    let get = |path: &str| agent::get(&address, path);
    let registered = "ebs_csi_node_agent_kubelet_registered";
    assert!(get("/metrics").contains(&format!("{registered} 0\n")));
    // Kubelet had no time to register the driver yet.
    assert!(get("/readyz").contains("200 OK"));

    let socket = registry.join(SOCKET);
    refused(&socket, "the API server is away").await;
    let page = get("/readyz");
    assert!(page.contains("503") && page.contains("the API server is away"), "{page}");
    assert!(get("/healthz").contains("200 OK"));
    registered_soon(&socket).await;
    assert!(get("/readyz").contains("200 OK"));
    assert!(get("/metrics").contains(&format!("{registered} 1\n")));
}

/// Nothing else remains in the registry: the stock registrar's leftover socket is removed.
#[tokio::test]
async fn restart_after_kill_creates_new_registration_socket() {
    let Some(host) = Host::new() else { return };
    let registry = registry(host.path());
    let socket = registry.join(SOCKET);
    drop(std::os::unix::net::UnixListener::bind(registry.join(FORMER_SOCKET)).unwrap());
    let arguments = registering(&registry);
    let mut first = host.start(&arguments);
    registered_soon(&socket).await;
    first.signal(Signal::KILL);
    assert!(!first.end().await.success());
    let before = inode(&socket);
    let _second = host.serve(&arguments).await;
    registered_soon(&socket).await;
    assert_ne!(inode(&socket), before, "kubelet sees a new socket");
    assert_eq!(names(&registry), [SOCKET], "nothing else is left there");
}

/// Runs `give-directories` with CAP_CHOWN alone, as the chart's init container does.
fn give_directories(socket_directory: &Path, registry: &Path) {
    let out = std::process::Command::new("setpriv")
        .args(["--bounding-set=-all,+chown", "--inh-caps=-all,+chown", "--"])
        .arg(env!("CARGO_BIN_EXE_ebs-csi-node-agent"))
        .arg("give-directories")
        .arg(format!("--socket-directory={}", socket_directory.display()))
        .arg(format!("--plugin-registration-path={}", registry.display()))
        .output()
        .unwrap();
    assert!(out.status.success(), "{out:?}");
}

/// An agent that never was root registers from a directory of its own. The confined agent cannot
/// make another socket there.
#[tokio::test]
async fn agent_starts_as_own_user_in_given_directories() {
    let Some(host) = Host::new() else { return };
    let registry = registry(host.path());
    let own = registry.join(own_directories::DIRECTORY);
    // Left by an agent that started as root, and by a stock registrar.
    for left in [SOCKET, FORMER_SOCKET] {
        drop(std::os::unix::net::UnixListener::bind(registry.join(left)).unwrap());
    }
    give_directories(host.path(), &registry);
    assert_eq!(names(&registry), [own_directories::DIRECTORY]);
    // In a pod, the agent's own directory is a mount.
    std::fs::set_permissions(&registry, std::fs::Permissions::from_mode(0o711)).unwrap();

    let user = NODE_AGENT.identity.uid;
    let arguments = registering(&own);
    let mut first = host.start_as(user, &arguments);
    registered_soon(&own.join(SOCKET)).await;
    first.ready().await;
    // A pod that starts beside a serving agent keeps the agent's socket.
    give_directories(host.path(), &registry);
    assert_eq!(names(&own), [SOCKET]);
    first.signal(Signal::TERM);
    assert!(first.end().await.success(), "{}", first.log());
    assert!(names(&own).is_empty(), "it removes its own socket");
    first.forget_log();

    let mut second = host.start_as(user, &arguments);
    registered_soon(&own.join(SOCKET)).await;
    if second.log().contains("landlock missing") {
        println!("skipped: this kernel has no Landlock, which forbids another socket");
        return;
    }
    std::fs::remove_file(own.join(SOCKET)).unwrap();
    assert_eq!(second.end().await.code(), Some(1), "{}", second.log());
    assert!(second.log().contains("cannot be made again"), "{}", second.log());
}

/// The change back: the directory of the CSI socket belongs to the agent's user, and killed agents
/// have left their sockets.
#[tokio::test]
async fn pods_root_takes_given_directories_over() {
    let Some(host) = Host::new() else { return };
    let registry = registry(host.path());
    let own = registry.join(own_directories::DIRECTORY);
    give_directories(host.path(), &registry);
    for left in [host.path().join("csi.sock"), own.join(SOCKET)] {
        drop(std::os::unix::net::UnixListener::bind(&left).unwrap());
        std::fs::set_permissions(&left, std::fs::Permissions::from_mode(0o660)).unwrap();
        let user = NODE_AGENT.identity;
        std::os::unix::fs::lchown(&left, Some(user.uid), Some(user.gid)).unwrap();
    }

    let arguments = registering(&registry);
    let mut agent = host.start_as_pod(&arguments);
    registered_soon(&registry.join(SOCKET)).await;
    agent.ready().await;
    assert!(names(&own).is_empty(), "kubelet would refuse a second socket");
}

#[test]
fn link_is_not_given_to_agent() {
    let Some(host) = Host::new() else { return };
    let registry = registry(host.path());
    std::os::unix::fs::symlink("/", host.path().join("link")).unwrap();
    let refused = own_directories::give(&host.path().join("link"), &registry);
    assert!(refused.unwrap_err().contains("link"));
}
