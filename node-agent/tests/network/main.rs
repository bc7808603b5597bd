//! What the node-agent, started as the manifest starts it, can reach of the network: the test makes
//! its calls in the running process.
#![cfg(target_arch = "x86_64")]

mod sys;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ebs_csi_policy::profile::NODE_AGENT;
use rustix::process::geteuid;
use sys::{Called, Stopped};

const MANIFEST: &str = "../deploy/install/manifests/node.yaml";
/// The first ABI of Landlock that knows of TCP: landlock(7).
const ABI_OF_TCP: u8 = 4;

/// Returns the arguments of the agent's container in the manifest that the chart renders, and the
/// paths at which the container has its volumes.
fn container() -> (Vec<String>, Vec<String>) {
    let here = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("tests are run by cargo"));
    let manifest = fs::read_to_string(here.join(MANIFEST)).expect("the manifest");
    let (_, container) = manifest.split_once("- name: ebs-plugin\n").expect("the container");
    let (container, _) = container.split_once("\n      volumes:\n").expect("its end");
    let (_, arguments) = container.split_once("args:\n").expect("its arguments");
    let arguments = arguments.lines().map_while(|line| line.trim().strip_prefix("- "));
    let mounts = container.lines().filter_map(|line| line.trim().strip_prefix("mountPath: "));
    (arguments.map(str::to_owned).collect(), mounts.map(str::to_owned).collect())
}

/// The agent in a network namespace of its own, with the container's capabilities, arguments and
/// volumes; a volume's path is beneath the test's directory.
struct Agent {
    child: Child,
    directory: tempfile::TempDir,
}

impl Agent {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(root, open).expect("a directory of ours");
        let (arguments, mounts) = container();
        for mount in &mounts {
            fs::create_dir_all(beneath(root, mount)).expect("a volume");
        }
        let facts = "topology.kubernetes.io/zone=\"eu-west-1a\"\n\
                     node.kubernetes.io/instance-type=\"m5.large\"\n\
                     ebs.csi.aws.com/instance-id=\"i-0fedcba9876543210\"\n";
        fs::write(root.join("facts/labels"), facts).expect("facts");
        fs::write(root.join("facts/annotations"), "").expect("facts");
        let moved = |argument: &String| {
            let mount = mounts.iter().find(|mount| argument.contains(&format!("{mount}/")));
            let mount = mount.filter(|mount| {
                let (before, _) = argument.split_once(mount.as_str()).expect("found");
                before.ends_with('=') || before.ends_with("unix://")
            });
            mount.map_or(argument.clone(), |mount| {
                argument.replacen(mount, &beneath(root, mount).display().to_string(), 1)
            })
        };
        let child = Command::new("unshare")
            .args(["--net", "setpriv", "--bounding-set=-all,+setuid,+setgid,+setpcap"])
            .arg(format!("--regid={}", NODE_AGENT.identity.gid))
            .args(["--clear-groups", env!("CARGO_BIN_EXE_ebs-csi-node-agent")])
            .args(arguments.iter().map(moved))
            // Its default is the volume's path.
            .arg(format!("--plugin-registration-path={}/registration", root.display()))
            .env("CSI_NODE_NAME", "node")
            .stdin(Stdio::null())
            .stderr(fs::File::create(root.join("log")).expect("a log"))
            .spawn()
            .expect("unshare and setpriv of util-linux");
        let mut agent = Self { child, directory };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !agent.log().contains("serving") {
            let ended = agent.child.try_wait().expect("a child");
            assert!(ended.is_none() && Instant::now() < deadline, "{ended:?}: {}", agent.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        agent
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Returns the descriptor of the agent's TCP listener.
    fn listener(&self) -> u64 {
        let process = PathBuf::from(format!("/proc/{}", self.child.id()));
        // Only this process is in the namespace. Fields of a row: proc(5), /proc/net/tcp.
        let table = fs::read_to_string(process.join("net/tcp")).expect("a table");
        let row = table.lines().nth(1).expect("a listener");
        let inode: u64 = row.split_whitespace().nth(9).and_then(|it| it.parse().ok()).expect(row);
        let descriptors = fs::read_dir(process.join("fd")).expect("descriptors");
        let found = descriptors
            .flatten()
            .find(|entry| fs::metadata(entry.path()).is_ok_and(|socket| socket.ino() == inode));
        found.and_then(|entry| entry.file_name().to_str()?.parse().ok()).expect("its descriptor")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn beneath(root: &Path, mount: &str) -> PathBuf {
    root.join(mount.trim_start_matches('/'))
}

/// An address of AF_INET: 127.0.0.1, port 9.
const ADDRESS: [u8; 16] = [2, 0, 0, 9, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
const LENGTH: u64 = ADDRESS.len() as u64;

fn runs_here() -> bool {
    let able = geteuid().is_root()
        && ["unshare", "setpriv"].iter().all(|it| Path::new("/usr/bin").join(it).exists());
    if !able {
        println!("skipped: needs root, and unshare and setpriv of util-linux");
    }
    able
}

#[test]
fn agent_of_chart_makes_no_network_socket() {
    if !runs_here() {
        return;
    }
    for family in [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_VSOCK, libc::AF_PACKET]
    {
        let agent = Agent::start();
        let mut process = Stopped::new(agent.pid()).expect("stopped");
        let arguments = [u64::from(family.unsigned_abs()), libc::SOCK_STREAM as u64, 0, 0, 0, 0];
        let found = process.call(libc::SYS_socket, arguments).expect("a call");
        assert_eq!(found, Called::Killed(libc::SIGSYS), "family {family}");
    }
}

/// A listener that is shut down, or disconnected, is a socket like any other.
#[test]
fn agent_of_chart_cannot_connect_its_listener() {
    if !runs_here() {
        return;
    }
    if ebs_csi_confine::landlock_abi() < ABI_OF_TCP {
        println!("skipped: this kernel's Landlock does not know of TCP");
        return;
    }
    for what in ["shutdown", "disconnected", "fast open", "option", "message"] {
        let agent = Agent::start();
        let listener = agent.listener();
        let mut process = Stopped::new(agent.pid()).expect("stopped");
        let address = process.put(0, &ADDRESS).expect("written");
        let nobody = process.put(16, &[0; 16]).expect("written");
        let one = process.put(32, &1_u32.to_ne_bytes()).expect("written");
        let mut call = |number, arguments| process.call(number, arguments).expect("a call");
        // The kernel closes the listener, and takes it as a socket that was never connected.
        let closed = match what {
            "shutdown" => call(libc::SYS_shutdown, [listener, libc::SHUT_RDWR as u64, 0, 0, 0, 0]),
            _ => call(libc::SYS_connect, [listener, nobody, LENGTH, 0, 0, 0]),
        };
        assert_eq!(closed, Called::Returned(0), "{what}");
        let connect = [listener, address, LENGTH, 0, 0, 0];
        let fast = u64::from(libc::MSG_FASTOPEN.unsigned_abs());
        let found = match what {
            "fast open" => call(libc::SYS_sendto, [listener, one, 1, fast, address, LENGTH]),
            "message" => call(libc::SYS_sendmsg, [listener, nobody, fast, 0, 0, 0]),
            "option" => {
                let tcp = u64::from(libc::IPPROTO_TCP.unsigned_abs());
                let option = u64::from(libc::TCP_FASTOPEN_CONNECT.unsigned_abs());
                let set = call(libc::SYS_setsockopt, [listener, tcp, option, one, 4, 0]);
                assert_eq!(set, Called::Returned(0));
                call(libc::SYS_connect, connect)
            }
            _ => call(libc::SYS_connect, connect),
        };
        let wanted = match what {
            "fast open" | "message" => Called::Killed(libc::SIGSYS),
            _ => Called::Failed(libc::EACCES),
        };
        assert_eq!(found, wanted, "{what}");
    }
}
