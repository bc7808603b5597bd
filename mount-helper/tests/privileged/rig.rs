//! A helper in its own mount namespace, with a kubelet root, a device directory and loop devices.
mod client;
mod elsewhere;
mod loop_device;
mod namespace;
mod outcome;
mod parts;
mod process;
mod requests;
mod xen;

pub(crate) use client::{Client, connect};
pub(crate) use elsewhere::Elsewhere;
pub(crate) use loop_device::Attached;
pub(crate) use namespace::Namespace;
pub(crate) use outcome::{assert_refused, done, refused, staged, told, unstaged};
pub(crate) use parts::{children, grows_mounted, role, status};
pub(crate) use requests::{block_target, disk, staging, target};

use ebs_csi_wire::{KubeletPath, VolumeId};
use process::Process;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The uid of the node-agent.
pub(crate) const AGENT: u32 = ebs_csi_policy::profile::NODE_AGENT.identity.uid;
/// A time that only a hang reaches.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Returns whether this process may do what the tests need, and prints the reason if not.
pub(crate) fn able() -> bool {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return false;
    }
    if !Path::new("/dev/loop-control").exists() {
        println!("skipped: the kernel has no loop devices");
        return false;
    }
    true
}

/// Returns a new volume id.
pub(crate) fn volume() -> VolumeId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    VolumeId::parse(&format!("vol-{:09x}{n:08x}", std::process::id())).expect("an id")
}

pub(crate) fn shell(program: &str, arguments: &[&str]) -> String {
    let output =
        Command::new(program).args(arguments).stdin(Stdio::null()).output().expect(program);
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

pub(crate) struct Rig {
    helper: Option<Process>,
    /// Keeps the mount namespace while helpers end and start.
    namespace: Namespace,
    directory: tempfile::TempDir,
    /// Whether the rig uses the machine's `/sys`. Otherwise it uses a `/sys` that a test makes, and
    /// the policy of a node.
    sandbox: bool,
}

impl Rig {
    /// Starts a rig with a usual helper. Returns `None` where these tests cannot run, and prints
    /// the reason.
    pub(crate) fn start() -> Option<Self> {
        able().then(|| Self::start_with(&[]))
    }

    pub(crate) fn start_with(extra: &[&str]) -> Self {
        let mut rig = Self::prepared(true);
        rig.run(extra);
        rig
    }

    /// Starts a rig with a disk that exists before the helper starts.
    pub(crate) fn start_with_disk(owner: (u32, u32)) -> (Self, Attached) {
        let mut rig = Self::prepared(true);
        let there = rig.attach(&volume(), 1 << 20);
        rig.own(&there, owner);
        rig.run(&[]);
        (rig, there)
    }

    /// Gives the device node of a disk to root and a group, and sets its mode.
    pub(crate) fn own(&self, disk: &Attached, (group, mode): (u32, u32)) {
        std::os::unix::fs::chown(&disk.node, Some(0), Some(group)).expect("chown");
        fs::set_permissions(&disk.node, fs::Permissions::from_mode(mode)).expect("chmod");
    }

    /// Prepares everything but the helper.
    fn prepared(sandbox: bool) -> Self {
        let directory = tempfile::tempdir().expect("tempdir");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
        for name in ["kubelet/plugins", "kubelet/pods", "dev", "sys", "volumes", "run", "outside"] {
            fs::create_dir_all(directory.path().join(name)).expect("mkdir");
        }
        for name in ["kubelet", "kubelet/plugins", "kubelet/pods"] {
            fs::set_permissions(directory.path().join(name), fs::Permissions::from_mode(0o750))
                .expect("chmod");
        }
        // Kubelet's directory is a shared mount, as on a node.
        let own_sys = if sandbox { "" } else { "mount --bind \"$2\" /sys && " };
        let script = "mount --bind \"$0\" /dev && mount --bind \"$1\" \"$1\" && mount --make-shared \"$1\" \
             && echo there && exec sleep infinity";
        let script = format!("{own_sys}{script}");
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private"])
            .args(["/bin/sh", "-c", &script])
            .arg(directory.path().join("dev"))
            .arg(directory.path().join("kubelet"))
            .arg(directory.path().join("sys"));
        Self { helper: None, namespace: Namespace::hold(&mut command), directory, sandbox }
    }

    /// Starts the helper. An earlier helper must have ended; its mounts remain.
    pub(crate) fn run(&mut self, extra: &[&str]) {
        self.spawn(extra);
        self.wait_for(" supervisor ready ");
    }

    pub(crate) fn spawn(&mut self, extra: &[&str]) {
        let socket = self.socket();
        self.helper = Some(self.launched(&socket, extra));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("run/helper.sock")
    }

    pub(crate) fn kubelet(&self, relative: &str) -> KubeletPath {
        KubeletPath::parse(self.path("kubelet").join(relative).to_str().expect("utf-8"))
            .expect("a path")
    }

    fn helper(&self) -> &Process {
        self.helper.as_ref().expect("a helper was started")
    }

    /// Returns the process id of the supervisor.
    pub(crate) fn pid(&self) -> u32 {
        self.helper().pid()
    }

    /// Returns the process id of a part of the helper, such as `broker`, by the part's user or
    /// group.
    pub(crate) fn part(&self, name: &str) -> u32 {
        self.part_now(name).unwrap_or_else(|| panic!("no {name} in {:?}", children(self.pid())))
    }

    /// Returns the process id of a part, if the part exists.
    pub(crate) fn part_now(&self, name: &str) -> Option<u32> {
        children(self.pid()).into_iter().find(|pid| role(*pid) == name)
    }

    /// Kills the remaining processes of this rig's helpers, and waits until they have ended.
    pub(crate) fn end_all(&self) {
        let end = Instant::now() + LONG;
        while let left @ [_, ..] = self.left_over().as_slice() {
            for pid in left {
                let _ = rustix::process::kill_process(*pid, rustix::process::Signal::KILL);
            }
            assert!(Instant::now() < end, "still there: {left:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns a path through which a test reaches what the helper sees at `path`.
    pub(crate) fn inside(&self, path: &KubeletPath) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.namespace.pid()))
    }

    pub(crate) fn journal(&self) -> String {
        self.helper().journal()
    }

    /// Waits until the journal contains a text.
    pub(crate) fn wait_for(&self, text: &str) {
        self.helper().wait_for_more(text, 0);
    }

    /// Waits until the journal contains a text more often than `times`.
    pub(crate) fn wait_for_more(&self, text: &str, times: usize) {
        self.helper().wait_for_more(text, times);
    }

    /// Removes every mount of a disk, as the end of a machine does.
    pub(crate) fn forget_mounts(&self, attached: &Attached) {
        while self.mounts(attached) > 0 {
            let wanted = attached.number();
            let table = self.mountinfo();
            let path = table
                .lines()
                .find(|line| line.split(' ').nth(2) == Some(wanted.as_str()))
                .and_then(|line| line.split(' ').nth(4))
                .expect("a mount");
            self.within(&["umount", path]);
        }
    }

    /// Runs a command in the helper's mount namespace.
    pub(crate) fn within(&self, command: &[&str]) {
        let holder = self.namespace.pid().to_string();
        let entering = ["--mount", "--target", &holder];
        shell("nsenter", &[&entering[..], command].concat());
    }

    /// Starts a process in its own mount namespace with a copy of each mount of the helper. The
    /// copies exist until the returned value is dropped.
    pub(crate) fn copy_of_mounts(&self) -> Namespace {
        let mut command = Command::new("nsenter");
        command
            .args(["--mount", "--target", &self.namespace.pid().to_string()])
            .args(["unshare", "--mount", "--propagation", "private"])
            .args(["/bin/sh", "-c", "echo there && exec sleep infinity"]);
        Namespace::hold(&mut command)
    }

    /// Waits until the helper has ended, and returns its exit status.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        self.helper.as_mut().expect("a helper was started").ended()
    }

    /// Ends the helper with SIGTERM; its mounts remain.
    pub(crate) fn stop(&mut self) {
        let pid = rustix::process::Pid::from_raw(self.pid().cast_signed()).expect("pid");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("kill");
        self.ended();
    }

    /// Returns the processes of this rig's helpers, which have the rig's socket on their command
    /// line.
    fn left_over(&self) -> Vec<rustix::process::Pid> {
        let ours = self.socket();
        let ours = ours.to_str().expect("utf-8").as_bytes();
        let processes = fs::read_dir("/proc").expect("proc").flatten();
        processes
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid| {
                fs::read(format!("/proc/{pid}/cmdline"))
                    .is_ok_and(|line| line.windows(ours.len()).any(|part| part == ours))
            })
            .filter_map(rustix::process::Pid::from_raw)
            .collect()
    }

    /// Returns the mount table of the helper's namespace.
    pub(crate) fn mountinfo(&self) -> String {
        fs::read_to_string(format!("/proc/{}/mountinfo", self.namespace.pid())).expect("mountinfo")
    }

    /// Returns the number of mounts of a volume's device in the helper's namespace.
    pub(crate) fn mounts(&self, attached: &Attached) -> usize {
        let wanted = attached.number();
        self.mountinfo()
            .lines()
            .filter(|line| line.split(' ').nth(2) == Some(wanted.as_str()))
            .count()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(helper) = &mut self.helper {
            helper.stop_or_kill();
        }
        // A runner that a fault point holds does not end with a killed supervisor.
        for pid in self.left_over() {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}
