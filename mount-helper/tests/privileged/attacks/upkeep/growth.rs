//! The growth of an ext file system whose tool is killed during the growth.
use crate::rig::{
    MIB, Rig, check_filesystem, done, grows_mounted, set_mode, shell, staged, staging, try_signal,
    usage, wait_until,
};
use ebs_csi_wire::{FsType, Outcome, Step};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const FILES: usize = 40;
/// As in errno(3).
const EPERM: i32 = 1;

/// Kills each process of a tree at its `write`th write to a disk, until this value is dropped.
struct Killer(Child);

impl Killer {
    fn of(supervisor: u32, write: usize) -> Self {
        let log = tempfile::NamedTempFile::new().expect("a file");
        let said = log.reopen().expect("a file");
        let child = Command::new("strace")
            .args(["-f", "-o", "/dev/null", "-e", "trace=pwrite64", "-e"])
            .arg(format!("inject=pwrite64:signal=SIGKILL:when={write}"))
            .args(["-p", &supervisor.to_string()])
            .stdin(Stdio::null())
            .stderr(said)
            .spawn()
            .expect("strace");
        let is_attached = || fs::read_to_string(log.path()).expect("read").contains("attached");
        wait_until(|| "strace does not attach".to_owned(), is_attached);
        Self(child)
    }
}

impl Drop for Killer {
    fn drop(&mut self) {
        // A strace that ends after SIGTERM detaches from the processes that it traces.
        try_signal(self.0.id(), Signal::TERM);
        let _ = self.0.wait();
    }
}

fn write_files(root: &Path) {
    for n in 0..FILES {
        fs::write(root.join(format!("file-{n}")), vec![n as u8; 3000 * n]).expect("write");
    }
}

#[track_caller]
fn files_are_there(root: &Path, what: &str) {
    for n in 0..FILES {
        let read = fs::read(root.join(format!("file-{n}"))).expect("read");
        assert!(read == vec![n as u8; 3000 * n], "file {n}: {what}");
    }
}

/// No tool grows a file system that the kernel can grow itself. The kernel cannot grow one with the
/// feature `sparse_super2`.
#[test]
fn ext_grows_while_mounted_if_host_allows() {
    let Some(rig) = Rig::start() else { return };
    for (fs_type, made) in [
        (FsType::Ext4, None),
        (FsType::Ext3, None),
        (FsType::Ext4, Some("sparse_super2,^resize_inode")),
    ] {
        let (volume, attached) = rig.new_disk(64 * MIB);
        if let Some(features) = made {
            let path = attached.path();
            shell("mke2fs", &["-q", "-F", "-t", "ext4", "-O", features, &path]);
        }
        staged(rig.stage(&volume, fs_type));
        let root = rig.staged_root(&volume);
        write_files(&root);
        std::os::unix::fs::chown(&root, Some(1234), Some(1234)).expect("chown");
        set_mode(&root, 0o700);
        done(rig.unstage(&volume));
        attached.resize(512 * MIB);
        let grown = staged(rig.stage(&volume, fs_type));
        assert!(grown.grown && !grown.formatted, "{grown:?}");
        files_are_there(&root, fs_type.as_str());
        let usage = usage(rig.stats(&volume, &staging(&volume)));
        assert!(usage.total_bytes > 400 * MIB, "{usage:?}");
        done(rig.unstage(&volume));
    }
    let offline = rig.journal().matches("tool=resize2fs").count();
    assert_eq!(offline, if grows_mounted() { 1 } else { 3 });
    let refused = rig.journal().matches("not-grown").count();
    assert_eq!(refused, usize::from(grows_mounted()));
    // Printed for the console of the virtual machine.
    println!("grown at its stage, mounted: {}", grows_mounted());
}

/// resize2fs refuses a file system with clusters (`bigalloc`), so only the kernel can grow the
/// volume, where the host allows growth while mounted.
#[test]
fn bigalloc_ext4_on_enlarged_disk_is_still_staged() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(1024 * MIB);
    let (path, features) = (attached.path(), "bigalloc");
    shell("mke2fs", &["-q", "-F", "-t", "ext4", "-O", features, "-C", "16384", &path]);
    staged(rig.stage_copy(&volume, FsType::Ext4));
    let root = rig.staged_root(&volume);
    write_files(&root);
    done(rig.unstage(&volume));
    attached.resize(8192 * MIB);
    let larger = staged(rig.stage_copy(&volume, FsType::Ext4));
    files_are_there(&root, "bigalloc");
    assert_eq!(larger.grown, grows_mounted(), "{larger:?}");
    let refused = rig.journal().matches("not-grown").count();
    assert_eq!(refused, usize::from(!grows_mounted()));
    // The answer to the growth that kubelet asks for at each mount says that nothing grew.
    match rig.expand(&volume, &staging(&volume)) {
        Outcome::Expanded(expanded) if grows_mounted() => {
            assert_eq!(expanded.filesystem_bytes, 8192 * MIB);
        }
        Outcome::Failed(failed) if !grows_mounted() => {
            assert_eq!((failed.step, failed.errno.map(|e| e.get())), (Step::Grow, Some(EPERM)));
        }
        other => panic!("{other:?}"),
    }
    done(rig.unstage(&volume));
    shell("e2fsck", &["-f", "-n", &path]);
}

/// N6: resize2fs is killed within its writes, and the repair that follows as well.
#[test]
fn interrupted_offline_growth_is_completed_by_next_stage() {
    if !Path::new("/usr/bin/strace").exists() {
        println!("skipped: strace is not installed");
        return;
    }
    if grows_mounted() {
        println!("skipped: this host lets the kernel grow what is mounted");
        return;
    }
    let (mut within, mut half_done, mut repairs) = (0, 0, 0);
    for fs_type in [FsType::Ext4, FsType::Ext3] {
        for write in [1, 2, 3, 4, 6, 9, 14, 22, 40, 80, 160, 250, 310] {
            let Some(rig) = Rig::start() else { return };
            let what = format!("{fs_type} write {write}");
            let (volume, attached) = rig.staged_disk(64 * MIB, fs_type);
            let root = rig.staged_root(&volume);
            write_files(&root);
            done(rig.unstage(&volume));
            attached.resize(512 * MIB);
            // Killed once more, in the check or the repair that follows, and not killed in the
            // third attempt.
            let kills = [Some(write), Some(1 + write % 5), None];
            let mut outcome = Outcome::Pending;
            for kill in kills {
                let killer = kill.map(|write| Killer::of(rig.pid(), write));
                outcome = rig.stage(&volume, fs_type);
                drop(killer);
                if !matches!(outcome, Outcome::Failed(_)) {
                    break;
                }
            }
            let last = staged(outcome);
            assert!(last.grown && !last.formatted, "{what}: {last:?}");
            files_are_there(&root, &what);
            done(rig.unstage(&volume));
            check_filesystem(FsType::Ext4, &attached.path());
            let journal = rig.journal();
            within += journal.matches("tool=resize2fs end=Signalled(9)").count();
            repairs += journal.matches("tool=e2fsck-all end=Signalled(9)").count();
            half_done += journal.matches("growth-cut-short").count();
        }
    }
    println!(
        "{within} growths were killed, {half_done} needed more than -p, {repairs} repairs were killed"
    );
    assert!(within > 8 && half_done > 4 && repairs > 4);
}
