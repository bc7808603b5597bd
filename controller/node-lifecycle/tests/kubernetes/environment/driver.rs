//! Runs the simulator, the real controller in `enforce`, and the real node-lifecycle.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ebs_csi_proto::csi;
use ebs_csi_proto::csi::controller_client::ControllerClient;
use ebs_csi_proto::csi::volume_capability::access_mode::Mode;
use ebs_csi_proto::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use serde_json::json;
use tonic::transport::Endpoint;

use crate::environment::process::{Process, port};
use crate::environment::world::TestResult;

/// The user ids of node-lifecycle: its own, and those of the test where node-lifecycle cannot
/// change its user.
const PEERS: &str = "65527,0,1000";

pub(crate) const REPLICAS: usize = 2;

pub(crate) struct Driver {
    directory: PathBuf,
    /// The kubeconfig file of node-lifecycle.
    kubeconfig: PathBuf,
    pub(crate) control: PathBuf,
    pub(crate) csi: PathBuf,
    pub(crate) safe_detach: PathBuf,
    http: [u16; REPLICAS],
    simulator: Process,
    pub(crate) controller: Process,
    lifecycle: RefCell<Vec<Process>>,
    /// The flags of node-lifecycle that scenarios change.
    lifecycle_flags: RefCell<Vec<String>>,
}

/// Returns the path of one of the driver's programs, as this test's build has it: in the directory
/// above the test's own binary.
pub(crate) fn program(name: &str) -> TestResult<PathBuf> {
    let me = std::env::current_exe()?;
    let directory = me.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let path = directory.join(name);
    if !path.exists() {
        let path = path.display();
        return Err(format!("{path} is not there; cargo build --workspace --bins builds it").into());
    }
    Ok(path)
}

/// Checks that the driver's programs exist; `Err` says which is missing.
pub(crate) fn programs() -> TestResult {
    for name in ["ec2-sim", "ebs-csi-controller", "ebs-csi-node-lifecycle"] {
        program(name)?;
    }
    Ok(())
}

impl Driver {
    /// Starts the simulator, without instances, and the controller.
    pub(crate) async fn start(directory: &Path, kubeconfig: PathBuf) -> TestResult<Self> {
        let scenario = directory.join("scenario.json");
        let world = json!({"profile": "instant", "limits": {"enabled": false}, "instances": [],
            "zones": [{"name": "us-east-1a", "id": "use1-az6"}, {"name": "us-east-1b", "id": "use1-az1"}]});
        std::fs::write(&scenario, world.to_string())?;
        let state = directory.join("ec2");
        let ec2 = port();
        let arguments = [
            "serve".to_owned(),
            format!("--state-dir={}", state.display()),
            format!("--scenario={}", scenario.display()),
            "--devices=none".to_owned(),
            format!("--listen=127.0.0.1:{ec2}"),
        ];
        let simulator =
            Process::start(directory, "ec2-sim", &program("ec2-sim")?, &arguments, &[])?;
        let control = state.join("control.sock");
        wait_for(&control).await?;

        let (csi, safe_detach) = (directory.join("csi.sock"), directory.join("detach.sock"));
        let arguments = [
            format!("--endpoint=unix://{}", csi.display()),
            "--safe-detach=enforce".to_owned(),
            "--feature-gates=NonGracefulFailover=true".to_owned(),
            format!("--safe-detach-endpoint=unix://{}", safe_detach.display()),
            format!("--safe-detach-peers={PEERS}"),
            "--safe-detach-fence=terminate".to_owned(),
            "--safe-detach-fence-limit=5".to_owned(),
        ];
        let url = format!("http://127.0.0.1:{ec2}");
        let environment = [
            ("AWS_REGION", "us-east-1"),
            ("AWS_ENDPOINT_URL", url.as_str()),
            ("AWS_ACCESS_KEY_ID", "AKIATEST"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
        ];
        let program = program("ebs-csi-controller")?;
        let mut controller =
            Process::start(directory, "controller", &program, &arguments, &environment)?;
        for socket in [&csi, &safe_detach] {
            if let Err(why) = wait_for(socket).await {
                return Err(controller.exit_report().map_or(why, Into::into));
            }
            // In a pod both containers are in the group that owns the socket; here their users
            // differ.
            let all = std::fs::Permissions::from_mode(0o777);
            std::fs::set_permissions(socket, all)?;
        }
        Ok(Self {
            directory: directory.to_owned(),
            kubeconfig,
            control,
            csi,
            safe_detach,
            http: std::array::from_fn(|_| port()),
            simulator,
            controller,
            lifecycle: RefCell::default(),
            lifecycle_flags: RefCell::new(vec!["--fence=stop".to_owned()]),
        })
    }

    pub(crate) fn start_lifecycle(&self) -> TestResult {
        for number in 0..REPLICAS {
            let process = self.replica(number)?;
            self.lifecycle.borrow_mut().push(process);
        }
        Ok(())
    }

    fn replica(&self, number: usize) -> TestResult<Process> {
        let mut arguments = vec![
            format!("--safe-detach-endpoint=unix://{}", self.safe_detach.display()),
            format!("--kubeconfig={}", self.kubeconfig.display()),
            format!("--http-endpoint=127.0.0.1:{}", self.http[number]),
            "--namespace=kube-system".to_owned(),
            format!("--identity=replica-{number}"),
            "--lease-duration-seconds=5".to_owned(),
            "--query-interval-seconds=1".to_owned(),
            "--fence-after-seconds=5".to_owned(),
        ];
        arguments.extend_from_slice(&self.lifecycle_flags.borrow());
        let program = program("ebs-csi-node-lifecycle")?;
        let name = format!("node-lifecycle-{number}");
        Process::start(&self.directory, &name, &program, &arguments, &[])
    }

    pub(crate) fn change_lifecycle(&self, lifecycle_flags: &[&str]) -> TestResult {
        self.lifecycle_flags
            .replace(lifecycle_flags.iter().map(|flag| (*flag).to_owned()).collect());
        (0..REPLICAS).try_for_each(|number| self.kill_replica(number))
    }

    pub(crate) fn kill_replica(&self, number: usize) -> TestResult {
        let mut replicas = self.lifecycle.borrow_mut();
        // Dropping a process kills it.
        drop(replicas.remove(number));
        replicas.insert(number, self.replica(number)?);
        Ok(())
    }

    pub(crate) fn lifecycle_log(&self) -> String {
        self.lifecycle.borrow().iter().map(Process::log).collect()
    }

    /// Returns an error when a process has ended.
    pub(crate) fn check(&mut self) -> TestResult {
        let replicas = self.lifecycle.get_mut();
        let all = [&mut self.simulator, &mut self.controller];
        let mut all = all.into_iter().chain(replicas.iter_mut());
        all.find_map(Process::exit_report).map_or(Ok(()), |end| Err(end.into()))
    }

    /// Returns the sum, over the replicas, of the metric whose line begins with `line`, labels
    /// included.
    pub(crate) fn metric(&self, line: &str) -> f64 {
        let counts = self.http.iter().filter_map(|port| {
            let mut stream = TcpStream::connect(("127.0.0.1", *port)).ok()?;
            write!(stream, "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").ok()?;
            let mut page = String::new();
            stream.read_to_string(&mut page).ok()?;
            let found = page.lines().find(|found| found.starts_with(line))?;
            found.rsplit(' ').next()?.parse::<f64>().ok()
        });
        counts.sum()
    }

    pub(crate) async fn volume(&self, name: &str) -> TestResult<String> {
        let mount = AccessType::Mount(MountVolume::default());
        self.create_volume(name, &[], (Mode::SingleNodeWriter, mount)).await
    }

    /// Creates a volume that may be attached to several instances at once.
    pub(crate) async fn shared_volume(&self, name: &str) -> TestResult<String> {
        let shared = (Mode::MultiNodeMultiWriter, AccessType::Block(BlockVolume {}));
        self.create_volume(name, &[("type", "io2"), ("iops", "100")], shared).await
    }

    async fn create_volume(
        &self,
        name: &str,
        parameters: &[(&str, &str)],
        (mode, access_type): (Mode, AccessType),
    ) -> TestResult<String> {
        let endpoint = Endpoint::try_from(format!("unix://{}", self.csi.display()))?;
        let channel = endpoint.connect().await?;
        let segment = ("topology.ebs.csi.aws.com/zone".to_owned(), "us-east-1a".to_owned());
        let zone = csi::Topology { segments: [segment].into() };
        let parameters = parameters.iter().map(|(key, value)| ((*key).into(), (*value).into()));
        let request = csi::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(csi::CapacityRange { required_bytes: 4 << 30, limit_bytes: 0 }),
            parameters: parameters.collect(),
            volume_capabilities: vec![csi::VolumeCapability {
                access_mode: Some(AccessMode { mode: mode.into() }),
                access_type: Some(access_type),
            }],
            accessibility_requirements: Some(csi::TopologyRequirement {
                requisite: vec![zone.clone()],
                preferred: vec![zone],
            }),
            ..Default::default()
        };
        let made = ControllerClient::new(channel).create_volume(request).await?;
        Ok(made.into_inner().volume.ok_or("no volume")?.volume_id)
    }
}

async fn wait_for(socket: &Path) -> TestResult {
    let begun = Instant::now();
    while UnixStream::connect(socket).is_err() {
        if begun.elapsed() > Duration::from_secs(20) {
            return Err(format!("{} did not come", socket.display()).into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
