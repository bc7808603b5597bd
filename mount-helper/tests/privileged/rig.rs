//! A helper in its own mount namespace, with a kubelet root, a device directory and loop devices.
mod client;
mod elsewhere;
mod loop_device;
mod outcome;
mod parts;
mod requests;
mod second;
mod xen;

pub(crate) use client::{Client, connect};
pub(crate) use elsewhere::Elsewhere;
pub(crate) use loop_device::Attached;
pub(crate) use outcome::{done, refused, staged, told, unstaged};
pub(crate) use parts::{children, grows_mounted, role, status};
pub(crate) use requests::{block_target, disk, staging, target};

use ebs_csi_wire::{KubeletPath, VolumeId};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
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
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect(program);
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

pub(crate) struct Rig {
    helper: Option<Child>,
    /// Keeps the mount namespace while helpers end and start.
    holder: Child,
    lines: Arc<Mutex<Vec<String>>>,
    directory: tempfile::TempDir,
    /// Whether the rig uses the machine's `/sys`. Otherwise it uses a `/sys` that a test makes, and
    /// the policy of a node.
    sandbox: bool,
}

impl Rig {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
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
        for name in [
            "kubelet/plugins",
            "kubelet/pods",
            "dev",
            "sys",
            "volumes",
            "run",
            "outside",
        ] {
            fs::create_dir_all(directory.path().join(name)).expect("mkdir");
        }
        for name in ["kubelet", "kubelet/plugins", "kubelet/pods"] {
            fs::set_permissions(
                directory.path().join(name),
                fs::Permissions::from_mode(0o750),
            )
            .expect("chmod");
        }
        // Kubelet's directory is a shared mount, as on a node.
        let own_sys = if sandbox {
            ""
        } else {
            "mount --bind \"$2\" /sys && "
        };
        let script = "mount --bind \"$0\" /dev && mount --bind \"$1\" \"$1\" && mount --make-shared \"$1\" \
             && echo there && exec sleep infinity";
        let script = format!("{own_sys}{script}");
        let mut holder = Command::new("unshare")
            .args([
                "--mount",
                "--propagation",
                "private",
                "/bin/sh",
                "-c",
                &script,
            ])
            .arg(directory.path().join("dev"))
            .arg(directory.path().join("kubelet"))
            .arg(directory.path().join("sys"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare");
        let mut line = String::new();
        BufReader::new(holder.stdout.take().expect("stdout"))
            .read_line(&mut line)
            .expect("read");
        assert_eq!(line, "there\n");
        Self {
            helper: None,
            holder,
            lines: Arc::default(),
            directory,
            sandbox,
        }
    }

    /// Starts the helper. An earlier helper must have ended; its mounts remain.
    pub(crate) fn run(&mut self, extra: &[&str]) {
        self.spawn(extra);
        self.wait_for(" supervisor ready ");
    }

    pub(crate) fn spawn(&mut self, extra: &[&str]) {
        let (child, lines) = self.launched(&self.socket(), extra);
        self.lines = lines;
        self.helper = Some(child);
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

    /// Returns the process id of the supervisor.
    pub(crate) fn pid(&self) -> u32 {
        self.helper.as_ref().expect("running").id()
    }

    /// Returns the process id of a part of the helper, such as `broker`, by the part's user or
    /// group.
    pub(crate) fn part(&self, name: &str) -> u32 {
        self.part_now(name)
            .unwrap_or_else(|| panic!("no {name} in {:?}", children(self.pid())))
    }

    /// Returns the process id of a part, if the part exists.
    pub(crate) fn part_now(&self, name: &str) -> Option<u32> {
        children(self.pid())
            .into_iter()
            .find(|pid| role(*pid) == name)
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
        PathBuf::from(format!("/proc/{}/root{path}", self.holder.id()))
    }

    pub(crate) fn journal(&self) -> String {
        self.lines.lock().expect("lines").join("\n")
    }

    /// Waits until the journal contains a text.
    pub(crate) fn wait_for(&self, text: &str) {
        let end = Instant::now() + LONG;
        while !self.journal().contains(text) {
            assert!(Instant::now() < end, "no {text:?} in\n{}", self.journal());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until the journal contains a text more often than `times`.
    pub(crate) fn wait_for_more(&self, text: &str, times: usize) {
        let end = Instant::now() + LONG;
        while self.journal().matches(text).count() <= times {
            assert!(Instant::now() < end, "no {text:?} in\n{}", self.journal());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Removes every mount of a disk, as the end of a machine does.
    pub(crate) fn forget_mounts(&self, attached: &Attached) {
        while self.mounts(attached) > 0 {
            let number = fs::metadata(attached.path()).expect("device").rdev();
            let wanted = format!(
                "{}:{}",
                rustix::fs::major(number),
                rustix::fs::minor(number)
            );
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
        let holder = self.holder.id().to_string();
        let entering = ["--mount", "--target", &holder];
        shell("nsenter", &[&entering[..], command].concat());
    }

    /// Starts a process in its own mount namespace with a copy of each mount of the helper. The
    /// copies exist until the returned value is dropped.
    pub(crate) fn copy_of_mounts(&self) -> MountsKept {
        let mut child = Command::new("nsenter")
            .args(["--mount", "--target", &self.holder.id().to_string()])
            .args(["unshare", "--mount", "--propagation", "private"])
            .args(["/bin/sh", "-c", "echo there && exec sleep infinity"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("nsenter");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout"))
            .read_line(&mut line)
            .expect("read");
        assert_eq!(line, "there\n");
        MountsKept(child)
    }

    /// Waits until the helper has ended, and returns its exit status.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let mut child = self.helper.take().expect("running");
        let end = Instant::now() + LONG;
        loop {
            if let Some(status) = child.try_wait().expect("wait") {
                return status.code();
            }
            assert!(Instant::now() < end, "still running\n{}", self.journal());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the helper with SIGTERM; its mounts remain.
    pub(crate) fn stop(&mut self) {
        let pid = rustix::process::Pid::from_raw(self.pid().cast_signed()).expect("pid");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("kill");
        self.ended();
    }

    pub(crate) fn attach(&self, volume: &VolumeId, bytes: u64) -> Attached {
        let image = self.path("volumes").join(format!("{volume}.img"));
        let file = fs::File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&image)
            .expect("image");
        file.set_len(bytes).expect("set_len");
        self.attach_image(image)
    }

    pub(crate) fn attach_image(&self, image: PathBuf) -> Attached {
        self.attach_sectors(image, 512)
    }

    /// Attaches a disk with sectors of so many bytes.
    pub(crate) fn attach_sectors(&self, image: PathBuf, sector: u32) -> Attached {
        let sector = format!("--sector-size={sector}");
        let file = image.to_str().expect("utf-8");
        let path = shell("losetup", &["--find", "--show", &sector, file]);
        let name = path.trim_start_matches("/dev/").to_owned();
        let node = self.make_node(&name);
        Attached { image, name, node }
    }

    /// Makes a node in the rig's device directory for a device of the kernel.
    pub(crate) fn make_node(&self, name: &str) -> PathBuf {
        self.make_node_called(name, name)
    }

    /// Makes such a node under another name.
    fn make_node_called(&self, name: &str, called: &str) -> PathBuf {
        let number = fs::metadata(format!("/dev/{name}")).expect("device").rdev();
        let node = self.path("dev").join(called);
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        shell(
            "mknod",
            &[
                "-m",
                "0660",
                node.to_str().expect("utf-8"),
                "b",
                &major.to_string(),
                &minor.to_string(),
            ],
        );
        shell("chgrp", &["6", node.to_str().expect("utf-8")]);
        node
    }

    /// Waits until the kernel has found a partition, and makes its node.
    pub(crate) fn node_of_part(&self, attached: &Attached, part: u32) {
        let name = format!("{}p{part}", attached.name);
        let end = Instant::now() + LONG;
        while !Path::new(&format!("/dev/{name}")).exists() {
            assert!(Instant::now() < end, "no /dev/{name}");
            std::thread::sleep(Duration::from_millis(2));
        }
        self.make_node(&name);
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
        fs::read_to_string(format!("/proc/{}/mountinfo", self.holder.id())).expect("mountinfo")
    }

    /// Returns the number of mounts of a volume's device in the helper's namespace.
    pub(crate) fn mounts(&self, attached: &Attached) -> usize {
        let number = fs::metadata(attached.path()).expect("device").rdev();
        let wanted = format!(
            "{}:{}",
            rustix::fs::major(number),
            rustix::fs::minor(number)
        );
        self.mountinfo()
            .lines()
            .filter(|line| line.split(' ').nth(2) == Some(wanted.as_str()))
            .count()
    }
}

/// The process of [`Rig::copy_of_mounts`].
pub(crate) struct MountsKept(Child);

impl MountsKept {
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for MountsKept {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(mut child) = self.helper.take() {
            let pid = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let end = Instant::now() + Duration::from_secs(40);
            while child.try_wait().expect("wait").is_none() {
                if Instant::now() > end {
                    let _ = child.kill();
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        // A runner that a fault point holds does not end with a killed supervisor.
        for pid in self.left_over() {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        if std::thread::panicking() || std::env::var_os("RIG_JOURNAL").is_some() {
            println!("{}", self.journal());
        }
    }
}
