//! Runs the driver as one program on one socket (`aws-ebs-csi-driver all`), inside a node of the
//! world.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use ebs_csi_policy::SANDBOX;
use ebs_csi_policy::audit::Process;
use ebs_csi_proto::csi;
use ebs_csi_proto::csi::identity_client::IdentityClient;
use ebs_csi_proto::csi::node_client::NodeClient;
use rustix::process::{Pid, Signal, kill_process};
use tonic::transport::Endpoint;

use crate::Setting;

/// A running launcher.
#[derive(Debug)]
pub struct Launcher {
    child: tokio::process::Child,
    socket: PathBuf,
    log_file: PathBuf,
}

impl Launcher {
    /// Starts the launcher in the mount namespace of node `index`, with further `flags`, and waits
    /// at most 20 s until its socket answers.
    pub async fn start(program: &Path, setting: &Setting, index: usize, flags: &[&str]) -> Self {
        let node = &setting.world.nodes[index];
        let directory = setting.world.state_dir().join("all");
        std::fs::create_dir_all(&directory).expect("a directory for the sockets");
        let (socket, log_file) = (directory.join("csi.sock"), directory.join("log"));
        let inside = node.agent.pid().expect("the node-agent runs");
        let ec2 = setting.world.simulator.ec2();
        let imds = setting.world.simulator.imds(&node.instance).expect("a metadata service");
        let mut command = tokio::process::Command::new("nsenter");
        command
            .arg(format!("--mount=/proc/{inside}/ns/mnt"))
            .arg(program)
            .arg("all")
            .arg(format!("--endpoint=unix://{}", socket.display()))
            .arg(format!("--runtime-dir={}", directory.join("sockets").display()))
            .arg(format!("--kubelet-root={}", node.kubelet_root.display()))
            .args(["--sandbox", "--metadata-sources=imds"])
            .args(flags)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("AWS_REGION", "us-east-1")
            .env("AWS_EC2_ENDPOINT", ec2)
            .env("AWS_ENDPOINT_URL", ec2)
            .env("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
            .env("AWS_SECRET_ACCESS_KEY", "example")
            .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", imds)
            .env("CSI_NODE_NAME", &node.name)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log_file).expect("a log"))
            .kill_on_drop(true);
        let child = command.spawn().expect("the launcher can be started");
        let launcher = Self { child, socket, log_file };
        launcher.wait().await;
        launcher
    }

    async fn wait(&self) {
        let endpoint = Endpoint::from_shared(format!("unix://{}", self.socket.display()))
            .expect("a socket's path");
        for _ in 0..2_000 {
            if let Ok(channel) = endpoint.connect().await {
                let mut controller = IdentityClient::new(channel.clone());
                let mut node = NodeClient::new(channel);
                if controller.probe(csi::ProbeRequest {}).await.is_ok()
                    && node.node_get_info(csi::NodeGetInfoRequest {}).await.is_ok()
                {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("mode all does not get ready in 20 s\n{}", self.log());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log_file).unwrap_or_default()
    }

    /// Returns the launcher's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the deviations of the launcher's processes from their profiles in the policy that
    /// remain after 20 s. The socket can answer before the helper is confined.
    ///
    /// The helper was started with `--sandbox`.
    pub async fn deviations(&self) -> Vec<String> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let found = self.current_deviations();
            if found.is_empty() || Instant::now() > deadline {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn current_deviations(&self) -> Vec<String> {
        let Some(root) = self.child.id() else {
            return vec!["the launcher does not run".to_owned()];
        };
        let tree = match Process::tree(root) {
            Ok(tree) => tree,
            Err(error) => return vec![error.to_string()],
        };
        let mut found = Vec::new();
        let mut seen = Vec::new();
        for process in &tree {
            let Some(profile) = process.expected(&tree) else {
                found.push(format!("{} has no profile", process.program));
                continue;
            };
            seen.push(profile.name);
            let deviations = process.deviations(profile, SANDBOX);
            found.extend(deviations.iter().map(|what| format!("{}: {what}", profile.name)));
        }
        let driver = ["launcher", "router", "controller", "node-agent"];
        let helper = ["supervisor", "broker", "directories", "opener"];
        for needed in driver.iter().chain(&helper) {
            if !seen.contains(needed) {
                found.push(format!("no {needed} among {seen:?}"));
            }
        }
        found
    }

    /// Ends the launcher with SIGTERM.
    pub async fn stop(mut self) {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok());
        let members = pid.map(process_tree).unwrap_or_default();
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM).expect("a signal can be sent");
        }
        let status = tokio::time::timeout(Duration::from_secs(40), self.child.wait())
            .await
            .unwrap_or_else(|_| panic!("mode all does not end\n{}", self.log()))
            .expect("wait");
        assert!(status.success(), "mode all ended with {status}\n{}", self.log());
        let left: Vec<i32> =
            members.into_iter().filter(|pid| Path::new(&format!("/proc/{pid}")).exists()).collect();
        assert!(left.is_empty(), "mode all left processes {left:?}");
    }
}

/// Returns a process and all its descendants.
fn process_tree(root: i32) -> Vec<i32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            let children = std::fs::read_to_string(thread.path().join("children"));
            let children = children.unwrap_or_default();
            found.extend(
                children.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()),
            );
        }
    }
    found
}
