//! A helper in its own mount namespace, with a kubelet root, a device directory and loop devices.
mod client;
mod elsewhere;
mod expected;
mod files;
mod loop_device;
mod namespace;
mod parts;
mod process;
mod random;
mod repeated;
mod requests;
mod xen;

pub(crate) use client::{Client, connect};
pub(crate) use elsewhere::Elsewhere;
pub(crate) use expected::{
    assert_refused, done, expanded, holding, reason, refusal, staged, unstaged, usage,
};
pub(crate) use files::{
    MIB, check_filesystem, claim, copy_sparse, make_filesystem, set_mode, sparse_file, text,
    write_synced,
};
pub(crate) use loop_device::Attached;
pub(crate) use namespace::{Namespace, OpenCopy};
pub(crate) use parts::{
    become_user, check_profiles, children, copy_descriptor, descriptors, grows_mounted, role,
    send_signal, status, try_signal,
};
pub(crate) use random::Random;
pub(crate) use repeated::Repeated;
pub(crate) use requests::{block_target, disk, format_options, inventory, staging, target};
pub(crate) use xen::Xen;

use ebs_csi_wire::{KubeletPath, Outcome, VolumeId};
use process::Process;
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(crate) const HELPER: &str = env!("CARGO_BIN_EXE_ebs-csi-mount-helper");
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

/// Waits until a condition is true. `what` says what is wrong when it stays false.
#[track_caller]
pub(crate) fn wait_until(what: impl Fn() -> String, condition: impl Fn() -> bool) {
    let end = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < end, "{}", what());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Repeats a request until it is not refused any more: the kernel takes some time to remove a mount
/// namespace.
#[track_caller]
pub(crate) fn retry_refused(call: impl Fn() -> Outcome) -> Outcome {
    let end = Instant::now() + LONG;
    loop {
        match call() {
            Outcome::Refused(refused) => assert!(Instant::now() < end, "{refused:?}"),
            other => return other,
        }
    }
}

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
    /// Starts a rig with a usual helper, or prints why these tests cannot run.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(extra: &[&str]) -> Option<Self> {
        able().then(|| {
            let mut rig = Self::prepared(true);
            rig.run(extra);
            rig
        })
    }

    /// Starts a rig whose helper holds an operation at a fault point, and ends at once.
    pub(crate) fn start_held(point: &str) -> Option<Self> {
        Self::start_with(&["--fault-point", point, "--grace", "0"])
    }

    /// Starts a rig with a disk that exists before the helper starts.
    pub(crate) fn start_with_disk(owner: (u32, u32)) -> Option<(Self, Attached)> {
        able().then(|| {
            let mut rig = Self::prepared(true);
            let there = rig.attach(&volume(), 1 << 20);
            rig.own(&there, owner);
            rig.run(&[]);
            (rig, there)
        })
    }

    /// Gives the device node of a disk to root and a group, and sets its mode.
    pub(crate) fn own(&self, disk: &Attached, (group, mode): (u32, u32)) {
        std::os::unix::fs::chown(&disk.node, Some(0), Some(group)).expect("chown");
        set_mode(&disk.node, mode);
    }

    /// Prepares everything but the helper.
    fn prepared(sandbox: bool) -> Self {
        let directory = tempfile::tempdir().expect("tempdir");
        set_mode(directory.path(), 0o755);
        for name in ["kubelet/plugins", "kubelet/pods", "dev", "sys", "volumes", "run", "outside"] {
            fs::create_dir_all(directory.path().join(name)).expect("mkdir");
        }
        for name in ["kubelet", "kubelet/plugins", "kubelet/pods"] {
            set_mode(directory.path().join(name), 0o750);
        }
        // Kubelet's directory is a shared mount, as on a node.
        let own_sys = if sandbox { "" } else { " && mount --bind \"$2\" /sys" };
        let shared = "mount --bind \"$1\" \"$1\" && mount --make-shared \"$1\"";
        let script = format!("mount --bind \"$0\" /dev && {shared}{own_sys}");
        let arguments = ["dev", "kubelet", "sys"].map(|name| directory.path().join(name));
        let namespace = Namespace::hold(Command::new("unshare"), &script, &arguments);
        Self { helper: None, namespace, directory, sandbox }
    }

    /// Starts the helper. An earlier helper must have ended; its mounts remain.
    pub(crate) fn run(&mut self, extra: &[&str]) {
        self.helper = Some(self.launched(&self.socket(), extra));
        self.wait_for(" supervisor ready ");
    }

    /// Ends the helper with SIGTERM, and starts the next one.
    pub(crate) fn restart(&mut self, extra: &[&str]) {
        self.stop();
        self.run(extra);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("run/helper.sock")
    }

    pub(crate) fn kubelet(&self, relative: &str) -> KubeletPath {
        KubeletPath::parse(text(&self.path("kubelet").join(relative))).expect("a path")
    }

    /// Makes a directory beneath the kubelet root, and returns its path.
    pub(crate) fn make_target(&self, relative: &str) -> String {
        let path = self.path("kubelet").join(relative);
        fs::create_dir_all(&path).expect("mkdir");
        text(&path).to_owned()
    }

    /// Makes a file where a disk can be published raw, and returns its path.
    pub(crate) fn make_block_target(&self, volume: &VolumeId, pod: &str) -> String {
        let path = self.path("kubelet").join(block_target(volume, pod));
        fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
        fs::write(&path, "").expect("write");
        text(&path).to_owned()
    }

    fn helper(&self) -> &Process {
        self.helper.as_ref().expect("a helper was started")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.helper().pid()
    }

    /// Returns the process id of a part of the helper, such as `broker`, by the part's user or
    /// group.
    pub(crate) fn part(&self, name: &str) -> u32 {
        self.part_now(name).unwrap_or_else(|| panic!("no {name} in {:?}", children(self.pid())))
    }

    pub(crate) fn part_now(&self, name: &str) -> Option<u32> {
        children(self.pid()).into_iter().find(|pid| role(*pid) == name)
    }

    /// Kills the remaining processes of this rig's helpers, and waits until they have ended.
    pub(crate) fn end_all(&self) {
        wait_until(
            || format!("still there: {:?}", self.left_over()),
            || {
                let left = self.left_over();
                left.iter().for_each(|pid| try_signal(*pid, Signal::KILL));
                left.is_empty()
            },
        );
    }

    /// Returns a path through which a test reaches what the helper sees at this path beneath the
    /// kubelet root.
    pub(crate) fn inside(&self, relative: &str) -> PathBuf {
        self.namespace.inside(self.kubelet(relative))
    }

    pub(crate) fn journal(&self) -> String {
        self.helper().journal()
    }

    pub(crate) fn wait_for(&self, text: &str) {
        self.helper().wait_for_more(text, 0);
    }

    pub(crate) fn wait_for_point(&self, point: &str) {
        self.wait_for(&format!("fault-point name={point}"));
    }

    pub(crate) fn wait_for_more(&self, text: &str, times: usize) {
        self.helper().wait_for_more(text, times);
    }

    /// Removes every mount of a disk, as the end of a machine does.
    pub(crate) fn forget_mounts(&self, attached: &Attached) {
        while let Some(line) = self.mounts_with(2, &attached.number()).first() {
            self.within(&["umount", line.split(' ').nth(4).expect("a path")]);
        }
    }

    pub(crate) fn within(&self, command: &[&str]) {
        let holder = self.namespace.pid().to_string();
        let entering = ["--mount", "--target", &holder];
        shell("nsenter", &[&entering[..], command].concat());
    }

    /// Opens a file of a volume as a container does, at a short path. At the first such open, ext4
    /// writes the path to the superblock, and so to the journal.
    pub(crate) fn open_in_container(&self, relative: &str) {
        let script = "mount --bind \"$0\" /mnt && touch /mnt/first";
        let place = self.kubelet(relative);
        let shell = ["/bin/sh", "-c", script, place.as_str()];
        self.within(&[&["unshare", "--mount", "--propagation", "private"], &shell[..]].concat());
    }

    /// Starts a process in its own mount namespace with a copy of each mount of the helper. The
    /// copies exist until the returned value is dropped.
    pub(crate) fn copy_of_mounts(&self) -> Namespace {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &self.namespace.pid().to_string(), "unshare"]);
        Namespace::hold(command, "true", &[""; 0])
    }

    /// Starts such a process, and opens a directory on its copy of a volume's staging mount.
    pub(crate) fn open_copy(&self, volume: &VolumeId) -> OpenCopy {
        OpenCopy::of(self.copy_of_mounts(), &self.kubelet(&staging(volume)))
    }

    pub(crate) fn ended(&mut self) -> Option<i32> {
        self.helper.as_mut().expect("a helper was started").ended()
    }

    /// Ends the helper with SIGTERM; its mounts remain.
    pub(crate) fn stop(&mut self) {
        send_signal(self.pid(), Signal::TERM);
        self.ended();
    }

    /// Returns the processes of this rig's helpers, which have the rig's socket on their command
    /// line.
    fn left_over(&self) -> Vec<u32> {
        let socket = self.socket();
        let ours = text(&socket).as_bytes();
        let processes = fs::read_dir("/proc").expect("proc").flatten();
        processes
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid: &u32| {
                fs::read(format!("/proc/{pid}/cmdline"))
                    .is_ok_and(|line| line.windows(ours.len()).any(|part| part == ours))
            })
            .collect()
    }

    pub(crate) fn mountinfo(&self) -> String {
        fs::read_to_string(format!("/proc/{}/mountinfo", self.namespace.pid())).expect("mountinfo")
    }

    /// Returns the number of mounts of a volume's device in the helper's namespace.
    pub(crate) fn mounts(&self, attached: &Attached) -> usize {
        self.mounts_with(2, &attached.number()).len()
    }

    /// Returns the line of the mount at a path beneath the kubelet root.
    pub(crate) fn mount_at(&self, relative: &str) -> String {
        let mounts = self.mounts_with(4, self.kubelet(relative).as_str());
        mounts.into_iter().next().expect("a mount")
    }

    /// Returns the lines of the mount table with this word at a position: 2 is the device number, 4
    /// the path.
    pub(crate) fn mounts_with(&self, position: usize, word: &str) -> Vec<String> {
        let table = self.mountinfo();
        let lines = table.lines().filter(|line| line.split(' ').nth(position) == Some(word));
        lines.map(str::to_owned).collect()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(helper) = &mut self.helper {
            helper.stop_or_kill();
        }
        // A runner that a fault point holds does not end with a killed supervisor.
        self.left_over().into_iter().for_each(|pid| try_signal(pid, Signal::KILL));
    }
}
