//! A host may withhold what a test needs, for example CAP_SYS_RESOURCE, without which a mounted
//! ext4 cannot grow. A virtual machine withholds nothing. It boots a Debian kernel
//! (`deploy/testing/vm/prepare` fetches it) with this test program, the helper and the programs
//! that both start, and runs those tests. It also has what a host may lack: an NVMe controller, and
//! vsock between programs of one machine.
use crate::rig::{
    HELPER, Rig, assert_refused, done, set_mode, shell, sparse_file, staging, target, text, volume,
    wait_until,
};
use ebs_csi_mount_helper::sys;
use ebs_csi_wire::Refusal;
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A limit in seconds that only a hang reaches. Emulation without a hypervisor takes some seconds
/// to boot, and longer on a busy machine.
const LIMIT: u64 = 900;
/// The status of timeout(1) when the limit is reached.
const TIMED_OUT: i32 = 124;
/// The programs that the tests, the helper and its tools start, at their paths on this machine.
const PROGRAMS: [&str; 14] = [
    "/usr/bin/chgrp",
    "/usr/bin/mknod",
    "/usr/bin/mount",
    "/usr/bin/nsenter",
    "/usr/bin/sleep",
    "/usr/bin/unshare",
    "/usr/sbin/blockdev",
    "/usr/sbin/debugfs",
    "/usr/sbin/e2fsck",
    "/usr/sbin/losetup",
    "/usr/sbin/mke2fs",
    "/usr/sbin/mkfs.xfs",
    "/usr/sbin/resize2fs",
    "/usr/sbin/xfs_repair",
];

/// Names the directory of `deploy/testing/observed-calls`, which has put a tracer in the helper's
/// place: the helper is in `programs`, and the tracer writes to `traces`. The traces of the tests
/// of vsock then go from the machine to `machine`.
const TRACED: &str = "EBS_CSI_TRACED";

/// The script that the machine's first process runs.
const INIT: &str = "#!/bin/busybox sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=/tmp
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs devtmpfs /dev
/bin/busybox mount -t tmpfs tmpfs /tmp
/bin/busybox mount -t tmpfs tmpfs /run
for name in MODULES; do /bin/busybox insmod /$name; done
echo booted
/tests --exact NAMES --include-ignored --nocapture --test-threads=1
echo ended
[ -z \"TRACES\" ] || /bin/busybox tar -c -f /dev/nvme0n1 -C \"TRACES\" .
/bin/busybox poweroff -f
";

/// The kernel's modules that the tests need, each after those that it needs itself.
const MODULES: [&str; 4] =
    ["loop.ko", "vsock.ko", "vmw_vsock_virtio_transport_common.ko", "vsock_loopback.ko"];

/// Returns the path of the kernel, beside which are its modules, or the reason why there is no
/// machine.
fn kernel() -> Result<PathBuf, &'static str> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))
        .ok_or("no home directory")?
        .join("ebs-csi/vm");
    let kernel = cache.join("vmlinuz");
    if !kernel.exists() || MODULES.iter().any(|name| !cache.join(name).exists()) {
        return Err("no kernel for a virtual machine; deploy/testing/vm/prepare fetches one");
    }
    for program in ["qemu-system-x86_64", "cpio"] {
        let found = Command::new(program).arg("--version").output();
        if !found.is_ok_and(|output| output.status.success()) {
            return Err("no QEMU or no cpio; deploy/testing/vm/prepare installs them");
        }
    }
    Ok(kernel)
}

/// Copies a program to the path `at` beneath the root, and each library that the program needs to
/// the library's own path. An emulated machine takes seconds to unpack symbols for debugging.
fn install(root: &Path, program: &Path, at: &Path) {
    let put = |from: &Path, at: &Path| {
        let to = root.join(at.strip_prefix("/").expect("an absolute path"));
        fs::create_dir_all(to.parent().expect("a parent")).expect("mkdir");
        fs::copy(from, &to).expect("copy");
        to
    };
    let copied = put(program, at);
    // Where there is no strip, the machine starts later.
    let _ = Command::new("strip").arg(&copied).status();
    let listed = Command::new("ldd").arg(program).output().expect("ldd");
    for word in String::from_utf8_lossy(&listed.stdout).split_whitespace() {
        if word.starts_with('/') {
            put(Path::new(word), Path::new(word));
        }
    }
}

fn archive(directory: &Path, kernel: &Path, tests: &str, traced: Option<&Path>) -> PathBuf {
    let root = directory.join("root");
    for made in
        ["usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "proc", "sys", "dev", "tmp", "run", "etc"]
    {
        fs::create_dir_all(root.join(made)).expect("mkdir");
    }
    for (link, to) in
        [("bin", "usr/bin"), ("sbin", "usr/sbin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")]
    {
        std::os::unix::fs::symlink(to, root.join(link)).expect("symlink");
    }
    let program = std::env::current_exe().expect("this program");
    install(&root, &program, Path::new("/tests"));
    install(&root, Path::new(HELPER), Path::new(HELPER));
    install(&root, Path::new("/bin/busybox"), Path::new("/usr/bin/busybox"));
    std::os::unix::fs::symlink("busybox", root.join("usr/bin/sh")).expect("symlink");
    for program in PROGRAMS {
        install(&root, Path::new(program), Path::new(program));
    }
    let traces = traced.map(|all| all.join("traces"));
    if let (Some(all), Some(traces)) = (traced, &traces) {
        let helper = all.join("programs").join(Path::new(HELPER).file_name().expect("a name"));
        for program in [Path::new("/usr/bin/strace"), &helper] {
            install(&root, program, program);
        }
        fs::create_dir_all(root.join(traces.strip_prefix("/").expect("absolute"))).expect("mkdir");
    }
    if Path::new("/etc/mke2fs.conf").exists() {
        fs::copy("/etc/mke2fs.conf", root.join("etc/mke2fs.conf")).expect("copy");
    }
    for name in MODULES {
        fs::copy(kernel.with_file_name(name), root.join(name)).expect("copy");
    }
    let init = root.join("init");
    let script = INIT
        .replace("NAMES", tests)
        .replace("MODULES", &MODULES.join(" "))
        .replace("TRACES", traces.as_deref().map_or("", text));
    fs::write(&init, script).expect("write");
    set_mode(&init, 0o755);
    let archive = directory.join("initrd");
    let packed = Command::new("sh")
        .args(["-c", "find . -print0 | cpio -0 -o -H newc --quiet >\"$0\""])
        .arg(&archive)
        .current_dir(&root)
        .status();
    assert!(packed.expect("cpio").success());
    archive
}

/// Runs the machine, and returns what it wrote to its console. Returns `None` when the machine did
/// not end within the limit because it got no processor time.
fn console(kernel: &Path, initrd: &Path, disk: &Path) -> Option<String> {
    let machine = Command::new("timeout")
        .args(["--kill-after=5", &LIMIT.to_string(), "qemu-system-x86_64"])
        // With CMPXCHG16B, kernel 6.12 ended in QEMU 7.2 with a double fault.
        .args(["-accel", "tcg", "-cpu", "max,-cx16"])
        .args(["-smp", "1", "-m", "1024M"])
        .args(["-machine", "q35", "-nodefaults", "-nographic", "-no-reboot"])
        .args([
            "-serial",
            "stdio",
            "-append",
            // The kernel counts the ticks of an emulated timer, which a busy machine delays.
            // Without `no_timer_check` the kernel would try to repair a timer that works.
            // `io_timeout` is for `plug_the_disk_in`.
            "console=ttyS0 loglevel=5 panic=-1 no_timer_check nvme_core.io_timeout=10",
        ])
        .args(["-device", "nvme,drive=disk,serial=vol0123456789abcdef0"])
        .arg("-drive")
        .arg(format!("if=none,id=disk,format=raw,file={}", disk.display()))
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initrd)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("qemu");
    let has_ended = machine.status.code() != Some(TIMED_OUT);
    has_ended.then(|| String::from_utf8_lossy(&machine.stdout).into_owned())
}

/// QEMU's controller does not have EC2's log page. The controller's error shows that the kernel
/// accepted the form of the request and passed it on.
#[test]
#[ignore = "runs in the virtual machine, whose controller is known"]
fn nvme_statistics_request_reaches_controller() {
    let disk = fs::File::open("/dev/nvme0n1").expect("the machine's NVMe disk");
    let error = sys::nvme_statistics_page(&disk).expect_err("a page of EC2's");
    assert_eq!(Errno::from_io_error(&error), Some(Errno::REMOTEIO));
}

/// Removes the machine's NVMe controller from its slot, as EC2 does at a forced detach.
pub(crate) fn pull_the_disk() {
    fs::write("/sys/block/nvme0n1/device/device/remove", "1").expect("remove");
    let disk = Path::new("/sys/block/nvme0n1");
    wait_until(|| "the disk is still there".to_owned(), || !disk.exists());
}

/// Restores the NVMe controller, and waits for its disk. The emulated machine may lose a restored
/// controller's interrupts: each request then ends only at the driver's limit of 10 seconds.
pub(crate) fn plug_the_disk_in() {
    for _ in 0..3 {
        fs::write("/sys/bus/pci/rescan", "1").expect("rescan");
        let open = || fs::File::open("/dev/nvme0n1");
        // The kernel makes the node before it knows the disk: until then an open gives ENXIO.
        wait_until(|| format!("no disk: {:?}", open()), || open().is_ok());
        let begun = Instant::now();
        let mut block = [0; 4096];
        // Nothing has read this block yet, so that it is not in memory.
        open().expect("the disk").read_exact_at(&mut block, 8 << 20).expect("read");
        if begun.elapsed() < Duration::from_secs(5) {
            return;
        }
        println!("the disk's interrupts are lost: it is plugged in once more");
        pull_the_disk();
    }
    panic!("the disk's interrupts are lost each time");
}

/// A mount of the detached disk can neither read nor write back, and must not keep the volume on
/// the node for ever.
#[test]
#[ignore = "runs in the virtual machine, which has a disk to pull"]
fn mounts_of_detached_disk_are_removed() {
    let Some(rig) = Rig::start() else { return };
    for written in [false, true] {
        let volume = volume();
        shell("mke2fs", &["-q", "-F", "-t", "ext4", "/dev/nvme0n1"]);
        let node = rig.make_node("nvme0n1");
        let staged = rig.make_target(&staging(&volume));
        let published = rig.make_target(&target(&volume, "p"));
        let raw = rig.make_block_target(&volume, "p");
        rig.within(&["mount", "-t", "ext4", text(&node), &staged]);
        rig.within(&["mount", "--bind", &staged, &published]);
        rig.within(&["mount", "--bind", text(&node), &raw]);
        if written {
            let file = rig.published_root(&volume, "p").join("file");
            fs::write(file, "never written back").expect("write");
        }
        // While the disk is attached, nothing shows that it belongs to the volume.
        assert_refused(rig.unstage(&volume), Refusal::VolumeNotAtPath);
        pull_the_disk();
        assert_refused(rig.unstage(&volume), Refusal::StillHeld);
        assert!(!done(rig.unpublish(&volume, &target(&volume, "p"))));
        assert!(!done(rig.unpublish_block(&volume, "p")));
        assert!(!done(rig.unstage(&volume)));
        for place in [&staged, &published, &raw] {
            assert!(!Path::new(place).exists(), "{place}");
        }
        assert!(!rig.mountinfo().contains(&staged));
        plug_the_disk_in();
        fs::remove_file(&node).expect("remove");
        println!("taken away, written: {written}");
    }
}

/// A host may deny CAP_SYS_RESOURCE or have no NVMe disk that can be removed, so these tests run in
/// QEMU.
#[test]
fn host_restricted_tests_pass_in_virtual_machine() {
    let kernel = match kernel() {
        Ok(found) => found,
        Err(why) => return println!("skipped: {why}"),
    };
    let directory = tempfile::tempdir().expect("tempdir");
    let mut tests = vec![
        "attacks::confinement::broker::broker_cannot_open_disk_or_write_root_file",
        "attacks::confinement::opener::opener_opens_disk_for_writing_only_if_unheld",
        "attacks::confinement::supervisor::broker_gets_at_most_12_runners",
        "attacks::confinement::supervisor::supervisor_clone_with_namespace_flags_is_killed",
        "attacks::confinement::tool::tool_cannot_reach_other_processes_of_its_user",
        "attacks::upkeep::growth::ext_grows_while_mounted_if_host_allows",
        "deaths::kills::restarted_helper_completes_stage_killed_after_growth",
        "deaths::pulled::disk_removed_at_any_step_leaves_nothing_mounted",
        "lifecycle::mounted_ext4_grows_only_with_cap_sys_resource",
        "lifecycle::read_only_ext4_target_grows_if_host_allows",
        "virtual_machine::nvme_statistics_request_reaches_controller",
        "virtual_machine::mounts_of_detached_disk_are_removed",
        "vsock::killed_relay_ends_helper_and_half_proved_peer",
        "vsock::next_helper_serves_after_killed_supervisor",
        "vsock::only_relay_has_vsock_port_and_key",
        "vsock::peer_of_other_machine_is_refused",
        "vsock::proved_peer_stages_as_unix_peer_does",
        "vsock::relay_serves_agents_after_sigterm",
        "vsock::silent_peers_do_not_displace_agents",
        "vsock::unproved_peer_is_cut_off_and_journalled",
    ];
    let traced = std::env::var_os(TRACED).map(PathBuf::from);
    if traced.is_some() {
        tests.retain(|name| name.starts_with("vsock::"));
    }
    let initrd = archive(directory.path(), &kernel, &tests.join(" "), traced.as_deref());
    let disk = directory.path().join("disk");
    sparse_file(&disk, if traced.is_some() { 256 << 20 } else { 16 << 20 });
    let Some(output) = console(&kernel, &initrd, &disk) else {
        return println!("skipped: the virtual machine did not end in {LIMIT} s");
    };
    if let Some(all) = traced {
        println!("{output}");
        let machine = all.join("machine");
        fs::create_dir(&machine).expect("mkdir");
        shell("tar", &["-x", "-f", text(&disk), "-C", text(&machine)]);
        return;
    }
    for line in [
        "test result: ok. 20 passed",
        "grown at its stage, mounted: true",
        "killed once it grew, mounted: true",
        "grown while it is mounted",
        "pulled at 25 steps",
        "helper's own proof: cut off",
    ] {
        assert!(output.contains(line), "no {line:?} in {output}");
    }
    for line in output.lines().filter(|line| line.contains("over vsock")) {
        println!("{line}");
    }
}
