//! Attached volumes as real block devices. Needs root, loop devices and mkfs.ext4.

mod process;

use process::{NODE_A, Process, binary, run, text};
use std::collections::{BTreeSet, VecDeque};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const CREATE: &str = "Action=CreateVolume&AvailabilityZone=us-east-1a&VolumeType=gp3";

/// A state directory and a mount point that are cleaned up even when the test fails.
struct World {
    state: PathBuf,
    mount: PathBuf,
    _dir: tempfile::TempDir,
}

impl World {
    /// Returns `None` if loop devices cannot be created here.
    fn new() -> Option<Self> {
        for (is_there, what) in [
            (rustix::process::geteuid().is_root(), "root"),
            (File::open("/dev/loop-control").is_ok(), "/dev/loop-control"),
            (Command::new("mkfs.ext4").arg("-V").output().is_ok(), "mkfs.ext4"),
        ] {
            if !is_there {
                println!("skipped: this test needs {what}");
                return None;
            }
        }
        let dir = tempfile::tempdir().expect("dir");
        let mount = dir.path().join("mount");
        std::fs::create_dir(&mount).expect("mkdir");
        Some(Self { state: dir.path().join("state"), mount, _dir: dir })
    }

    fn mount(&self, device: &Path) {
        run(Command::new("mount").arg(device).arg(&self.mount));
    }

    fn unmount(&self) {
        run(Command::new("umount").arg(&self.mount));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.mount).output();
        let _ = binary().args(["clean", "--state-dir"]).arg(&self.state).output();
    }
}

fn attach(p: &Process, volume: &str, instance: &str, device: &str) -> PathBuf {
    p.wait_for(volume, "<status>available</status>");
    p.call(&format!(
        "Action=AttachVolume&VolumeId={volume}&InstanceId={instance}&Device=/dev/{device}"
    ));
    p.wait_for(volume, "<status>attached</status>");
    let dir = p.ready["dev_dirs"][instance].as_str().expect("dev dir");
    Path::new(dir).join(device)
}

/// Waits until a condition holds, at most a minute.
#[track_caller]
fn until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the condition does not hold");
}

/// Returns the loop devices that the kernel reports to be bound to images of this state directory.
fn bound(state: &Path) -> Vec<String> {
    let state = std::fs::canonicalize(state).expect("state");
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/sys/block").expect("sysfs").flatten() {
        let file = entry.path().join("loop/backing_file");
        if std::fs::read_to_string(file).is_ok_and(|f| Path::new(f.trim()).starts_with(&state)) {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found
}

#[test]
fn loop_device_follows_volume_through_its_whole_life() {
    let Some(w) = World::new() else { return };
    let p = Process::serve(&w.state, &["--devices", "loop"]);
    let volume = text(&p.call(&format!("{CREATE}&Size=1")), "volumeId");
    let device = attach(&p, &volume, NODE_A, "xvdba");

    let target = std::fs::read_link(&device).expect("a link");
    let node = device.with_file_name(&target);
    let meta = std::fs::metadata(&node).expect("node");
    assert!(meta.file_type().is_block_device());
    assert_eq!(meta.mode() & 0o777, 0o660);
    let kernel =
        std::fs::read_to_string(Path::new("/sys/block").join(&target).join("dev")).expect("dev");
    let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
    assert_eq!(kernel.trim(), format!("{major}:{minor}"));
    assert_eq!(bound(&w.state), [target.to_string_lossy()]);

    // The counters on the statistics page grow with the written data.
    let page = node.with_file_name(format!("{}.0xd0", target.display()));
    let written = |more_than: u64| {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            if let Ok(page) = std::fs::read(&page)
                && let Ok(head) = <[u8; 40]>::try_from(&page[..40.min(page.len())])
            {
                assert_eq!((page.len(), &head[..4]), (4096, &[0x10, 0xb5, 0x23, 0x3c][..]));
                let bytes = u64::from_le_bytes(head[32..].try_into().expect("8 bytes"));
                if bytes > more_than {
                    return bytes;
                }
            }
            assert!(Instant::now() < end, "no more than {more_than} bytes written");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let mut zeros = Command::new("dd");
    zeros.args(["if=/dev/zero", "bs=1M", "count=8", "oflag=direct"]);
    run(zeros.arg(format!("of={}", node.display())));
    let before = written((8 << 20) - 1);
    run(Command::new("mkfs.ext4").arg("-q").arg(&device));
    written(before);
    w.mount(&device);
    std::fs::write(w.mount.join("file"), "kept").expect("write");
    run(Command::new("sync").arg("-f").arg(w.mount.join("file")));

    // A detach of a mounted volume is busy, and completes after the unmount.
    p.call(&format!("Action=DetachVolume&VolumeId={volume}"));
    p.wait_for(&volume, "<status>busy</status>");
    assert!(node.exists(), "the node of a mounted device stays");
    w.unmount();
    p.wait_for(&volume, "<status>available</status>");
    assert!(!node.exists() && !device.exists() && bound(&w.state).is_empty());
    assert!(!page.exists());

    // The kernel sees growth while the volume is attached.
    let device = attach(&p, &volume, NODE_A, "xvdbb");
    p.call(&format!("Action=ModifyVolume&VolumeId={volume}&Size=2"));
    p.wait_for(&volume, "<size>2</size>");
    let size = run(Command::new("blockdev").arg("--getsize64").arg(&device)).stdout;
    assert_eq!(String::from_utf8_lossy(&size).trim(), (2_u64 << 30).to_string());

    // A snapshot has the bytes at the time of the call; a volume restored from the snapshot is
    // another disk with these bytes.
    let snapshot = text(&p.call(&format!("Action=CreateSnapshot&VolumeId={volume}")), "snapshotId");
    w.mount(&device);
    std::fs::write(w.mount.join("file"), "changed").expect("write");
    w.unmount();
    let mut restored = String::new();
    until(|| {
        restored = p.call(&format!("{CREATE}&SnapshotId={snapshot}"));
        restored.contains("<volumeId>")
    });
    let restored = text(&restored, "volumeId");
    let other = attach(&p, &restored, NODE_A, "xvdbc");
    w.mount(&other);
    assert_eq!(std::fs::read_to_string(w.mount.join("file")).expect("read"), "kept");
    w.unmount();
    // The termination of the instance removes the devices.
    let terminate = format!("/v1/instances/{NODE_A}/terminate");
    p.control.post(&terminate, &serde_json::json!({"at_once": true})).expect("terminate");
    for v in [&volume, &restored] {
        p.wait_for(v, "<status>available</status>");
    }
    assert!(!other.exists());
    // A mount namespace that another process made meanwhile holds the disk until its end.
    until(|| bound(&w.state).is_empty());
    let invariants = p.control.get("/v1/invariants").expect("invariants");
    assert_eq!(invariants["ok"], true, "{invariants}");
    assert_eq!(p.terminate(), Some(0));
}

#[test]
fn clean_removes_only_leftovers_of_killed_simulator() {
    let (Some(w), Some(other_world)) = (World::new(), World::new()) else { return };
    let other = Process::serve(&other_world.state, &["--devices", "loop"]);
    let theirs = text(&other.call(&format!("{CREATE}&Size=1")), "volumeId");
    attach(&other, &theirs, NODE_A, "xvdba");
    let p = Process::serve(&w.state, &["--devices", "loop"]);
    let ours = text(&p.call(&format!("{CREATE}&Size=1")), "volumeId");
    attach(&p, &ours, NODE_A, "xvdba");
    p.kill();
    let left = bound(&w.state);
    assert_eq!(left.len(), 1);
    run(binary().args(["clean", "--state-dir"]).arg(&w.state));
    assert!(!w.state.exists());
    let file = Path::new("/sys/block").join(&left[0]).join("loop/backing_file");
    let still = std::fs::read_to_string(file).unwrap_or_default();
    // Another test's simulator, which names its volumes alike, may have the number now.
    let state = w.state.to_str().expect("utf-8");
    assert!(!still.starts_with(state), "{still}");
    assert_eq!(bound(&other_world.state).len(), 1, "the other simulator's device stays");
    other.call(&format!("Action=DetachVolume&VolumeId={theirs}"));
    other.wait_for(&theirs, "<status>available</status>");
}

#[test]
fn multi_attach_instances_share_one_loop_device() {
    let Some(w) = World::new() else { return };
    let scenario = w.mount.with_file_name("scenario.toml");
    let instance =
        |n: u32| format!("[[instances]]\nid = \"i-0aaaaaaaaaaaaaaa{n}\"\nzone = \"us-east-1a\"\n");
    std::fs::write(&scenario, instance(1) + &instance(2)).expect("write");
    let p = Process::serve(
        &w.state,
        &["--devices", "loop", "--scenario", scenario.to_str().expect("utf-8")],
    );
    let body = p.call("Action=CreateVolume&AvailabilityZone=us-east-1a&VolumeType=io2&Iops=100&Size=4&MultiAttachEnabled=true");
    let volume = text(&body, "volumeId");
    let first = attach(&p, &volume, NODE_A, "xvdba");
    p.call(&format!(
        "Action=AttachVolume&VolumeId={volume}&InstanceId=i-0aaaaaaaaaaaaaaa2&Device=/dev/xvdbb"
    ));
    let second =
        Path::new(p.ready["dev_dirs"]["i-0aaaaaaaaaaaaaaa2"].as_str().expect("dir")).join("xvdbb");
    until(|| second.exists());
    let rdev = |path: &Path| std::fs::metadata(path).expect("node").rdev();
    assert_eq!(rdev(&first), rdev(&second));
    p.call(&format!("Action=DetachVolume&VolumeId={volume}&InstanceId={NODE_A}"));
    until(|| !first.exists());
    assert!(second.exists());
    p.call(&format!("Action=DetachVolume&VolumeId={volume}&InstanceId=i-0aaaaaaaaaaaaaaa2"));
    p.wait_for(&volume, "<status>available</status>");
    assert!(bound(&w.state).is_empty());
}

/// The kernel keeps the loop device until the unmount.
#[test]
fn forced_detach_or_stopped_instance_ignores_mounted_device() {
    let Some(w) = World::new() else { return };
    let p = Process::serve(&w.state, &["--devices", "loop"]);
    let volume = text(&p.call(&format!("{CREATE}&Size=1")), "volumeId");
    for force in [true, false] {
        let device = attach(&p, &volume, NODE_A, "xvdba");
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&device));
        w.mount(&device);
        if force {
            p.call(&format!("Action=DetachVolume&VolumeId={volume}&Force=true"));
        } else {
            let stop = format!("/v1/instances/{NODE_A}/stop");
            p.control.post(&stop, &serde_json::json!({"at_once": true})).expect("stop");
            p.call(&format!("Action=DetachVolume&VolumeId={volume}"));
        }
        p.wait_for(&volume, "<status>available</status>");
        assert!(!device.exists());
        assert_eq!(bound(&w.state).len(), 1, "the kernel keeps a mounted device");
        w.unmount();
        until(|| bound(&w.state).is_empty());
    }
}

/// The kernel keeps the flag of a loop device that is bound to another file.
#[test]
fn read_only_flag_ends_with_attachment() {
    let Some(w) = World::new() else { return };
    let p = Process::serve(&w.state, &["--devices", "loop"]);
    let volume = text(&p.call(&format!("{CREATE}&Size=1")), "volumeId");
    for is_last in [false, true] {
        let device = attach(&p, &volume, NODE_A, "xvdba");
        let flag = run(Command::new("blockdev").arg("--getro").arg(&device)).stdout;
        assert_eq!(String::from_utf8_lossy(&flag).trim(), "0");
        if !is_last {
            run(Command::new("blockdev").arg("--setro").arg(&device));
        }
        p.call(&format!("Action=DetachVolume&VolumeId={volume}"));
        p.wait_for(&volume, "<status>available</status>");
    }
}

/// ext4 with blocks of 4 KiB holds files of less than 16 TiB.
#[test]
fn volume_above_largest_file_of_host_is_refused() {
    let Some(w) = World::new() else { return };
    let host = Process::serve(&w.state, &["--devices", "loop"]);
    let disk = text(&host.call(&format!("{CREATE}&Size=1")), "volumeId");
    let device = attach(&host, &disk, NODE_A, "xvdba");
    run(Command::new("mkfs.ext4").args(["-q", "-b", "4096"]).arg(&device));
    w.mount(&device);
    let state = w.mount.join("state");
    let p = Process::serve(&state, &["--devices", "loop"]);
    let volume = text(&p.call(&format!("{CREATE}&Size=16383")), "volumeId");
    p.wait_for(&volume, "<status>available</status>");
    for form in [
        format!("{CREATE}&Size=16384"),
        format!("Action=ModifyVolume&VolumeId={volume}&Size=16384"),
    ] {
        let refused = p.call(&form);
        assert_eq!(text(&refused, "Code"), "InternalError", "{refused}");
        let message = text(&refused, "Message");
        assert!(message.contains("holds no file of 16384 GiB: File too large"), "{message}");
    }
    let files = std::fs::read_dir(state.join("volumes")).expect("volumes").count();
    assert_eq!(files, 1, "a refused volume leaves nothing");
    assert_eq!(p.terminate(), Some(0));
}

/// Counts in A on one volume, then in B on another, and flushes each number, so that at any moment
/// B <= A <= B + 1.
struct Writer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    fn start(a: &Path, b: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let disks = [a, b].map(|disk| OpenOptions::new().write(true).open(disk).expect("open"));
        let is_stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            for n in 1_u64.. {
                for disk in &disks {
                    disk.write_all_at(&n.to_le_bytes(), 0).expect("write");
                    disk.sync_data().expect("flush");
                }
                if is_stopped.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A simulator with eight volumes that are attached to one instance: the first and the last one
/// that it copies, and their devices. The others have extents, so that time passes in between.
fn members(state: &Path, extents: u64) -> (Process, [String; 2], [PathBuf; 2]) {
    let scenario = state.with_extension("toml");
    std::fs::write(&scenario, "profile = \"instant\"\nlimits.enabled = false\n").expect("write");
    let scenario = scenario.to_str().expect("utf-8");
    let p = Process::serve(state, &["--devices", "loop", "--scenario", scenario]);
    let made = |_| text(&p.call(&format!("{CREATE}&Size=1")), "volumeId");
    let volumes: BTreeSet<String> = (0..8).map(made).collect();
    let attached = |(volume, letter): (&String, char)| {
        let device = attach(&p, volume, NODE_A, &format!("xvdb{letter}"));
        (volume.clone(), device)
    };
    let mut all: VecDeque<_> = volumes.iter().zip('a'..).map(attached).collect();
    let [(a, on_a), (b, on_b)] = [all.pop_front(), all.pop_back()].map(|one| one.expect("one"));
    for (_, device) in all {
        let disk = OpenOptions::new().write(true).open(device).expect("open");
        for at in 0..extents {
            disk.write_all_at(&[1; 4096], at << 20).expect("write");
        }
        disk.sync_data().expect("flush");
    }
    (p, [a, b], [on_a, on_b])
}

/// Takes both volumes in one call. Returns their snapshots, or the call's error.
fn take_both(p: &Process, volumes: &[String; 2]) -> Result<[String; 2], String> {
    let answer = p.call(&format!(
        "Action=CreateSnapshots&InstanceSpecification.InstanceId={NODE_A}\
         &InstanceSpecification.ExcludeBootVolume=true"
    ));
    let member = |volume: &String| answer.split("<item>").find(|item| item.contains(volume));
    match [member(&volumes[0]), member(&volumes[1])] {
        [Some(a), Some(b)] => Ok([a, b].map(|item| text(item, "snapshotId"))),
        _ => Err(answer),
    }
}

/// Returns whether the numbers in the snapshots are of one moment, and deletes the snapshots.
fn is_one_moment(p: &Process, state: &Path, snapshots: [String; 2]) -> bool {
    let [a, b] = snapshots.map(|id| {
        let image = File::open(state.join(format!("snapshots/{id}.img"))).expect("an image");
        let mut number = [0; 8];
        image.read_exact_at(&mut number, 0).expect("read");
        p.call(&format!("Action=DeleteSnapshot&SnapshotId={id}"));
        u64::from_le_bytes(number)
    });
    (b..=b + 1).contains(&a)
}

#[test]
fn snapshot_set_on_btrfs_keeps_order_of_writes() {
    let Some(host) = World::new() else { return };
    if Command::new("mkfs.btrfs").arg("--version").output().is_err() {
        return println!("skipped: this test needs mkfs.btrfs");
    }
    let disk = host.mount.with_file_name("disk");
    File::create(&disk).and_then(|file| file.set_len(4 << 30)).expect("a disk");
    run(Command::new("mkfs.btrfs").arg("-q").arg(&disk));
    run(Command::new("mount").args(["-o", "loop"]).arg(&disk).arg(&host.mount));
    let Some(mut w) = World::new() else { return };
    w.state = host.mount.join("state");
    let (p, volumes, [a, b]) = members(&w.state, 1000);
    let writer = Writer::start(&a, &b);
    for _ in 0..20 {
        let taken = take_both(&p, &volumes).expect("a set");
        assert!(is_one_moment(&p, &w.state, taken));
    }
    // Two calls with writes in between are not one moment, or this test would prove nothing.
    let disk = File::open(&b).expect("open");
    let number = || {
        let mut number = [0; 8];
        disk.read_exact_at(&mut number, 0).expect("read");
        u64::from_le_bytes(number)
    };
    let take = |volume| p.call(&format!("Action=CreateSnapshot&VolumeId={volume}"));
    let taken = volumes.map(|volume| {
        let snapshot = text(&take(volume), "snapshotId");
        let before = number();
        until(|| number() > before + 2);
        snapshot
    });
    assert!(!is_one_moment(&p, &w.state, taken));
    drop(writer);
    drop(disk);
    let (images, cut) = (w.state.join("volumes"), w.state.join("snapshots/cut"));
    assert!(!cut.exists());
    assert_eq!(p.terminate(), Some(0));
    // A simulator that is killed in the middle leaves the cut.
    run(Command::new("btrfs").args(["subvolume", "snapshot"]).args([&images, &cut]));
    run(binary().args(["clean", "--state-dir"]).arg(&w.state));
    assert!(!w.state.exists());
}

#[test]
fn snapshot_set_elsewhere_waits_for_idle_volumes() {
    let Some(w) = World::new() else { return };
    let (p, volumes, [a, b]) = members(&w.state, 0);
    let writer = Writer::start(&a, &b);
    for _ in 0..20 {
        match take_both(&p, &volumes) {
            Ok(taken) => assert!(is_one_moment(&p, &w.state, taken)),
            Err(answer) => assert!(answer.contains("choose a --state-dir on btrfs"), "{answer}"),
        }
    }
    drop(writer);
    let taken = take_both(&p, &volumes).expect("a set");
    assert!(is_one_moment(&p, &w.state, taken));
    assert_eq!(p.terminate(), Some(0));
}
