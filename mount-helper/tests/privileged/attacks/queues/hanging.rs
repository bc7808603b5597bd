//! Disks that do not answer: loop devices whose files are on a frozen file system.
use super::{image, send_for_each};
use crate::rig::{
    LONG, MIB, Rig, done, make_filesystem, retry_refused, send_signal, shell, sparse_file, staged,
    staging, target, text, usage, volume, wait_until,
};
use ebs_csi_wire::FsType;
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// More than the number of workers that write back.
const HANGING: usize = 8;

/// A mounted file system that holds the files of disks.
struct Space(PathBuf);

impl Space {
    fn new(rig: &Rig) -> Self {
        let (image, directory) = (rig.path("outside/space.img"), rig.path("space"));
        sparse_file(&image, 1024 * MIB);
        make_filesystem(FsType::Ext4, text(&image));
        fs::create_dir(&directory).expect("mkdir");
        shell("mount", &["-o", "loop", text(&image), text(&directory)]);
        Self(directory)
    }

    /// Blocks all writes to the file system until the returned value is dropped.
    fn freeze(&self) -> Frozen {
        shell("fsfreeze", &["--freeze", text(&self.0)]);
        Frozen(self.0.clone())
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // Disks with files in this directory may still be mounted.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

struct Frozen(PathBuf);

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("--unfreeze").arg(&self.0).status();
    }
}

/// Returns whether a thread of the process waits in the kernel, where no signal reaches it.
fn is_stuck(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let states = threads.map(|thread| fs::read_to_string(thread.path().join("stat")));
    states.flatten().any(|state| state.contains(") D "))
}

/// N10: A thread of the broker waits for a disk that takes no write, so that the broker outlives
/// its supervisor, whatever ends the supervisor.
#[test]
fn next_helper_serves_while_broker_is_stuck() {
    for signal in [Signal::TERM, Signal::KILL] {
        let Some(mut rig) = Rig::start_with(&["--grace", "0"]) else { return };
        let space = Space::new(&rig);
        let (stuck, (healthy, _attached)) = (volume(), rig.new_disk(64 * MIB));
        let file = space.0.join(format!("{stuck}.img"));
        sparse_file(&file, 64 * MIB);
        let _disk = rig.attach_image(file);
        staged(rig.stage(&stuck, FsType::Ext4));
        let content = vec![1; 1 << 20];
        fs::write(rig.staged_root(&stuck).join("unwritten"), content).expect("write");
        let frozen = space.freeze();
        let mut client = rig.client();
        client.send(rig.unstage_operation(&stuck, &staging(&stuck)), LONG);
        let broker = rig.part("broker");
        wait_until(|| "no thread waits for the disk".to_owned(), || is_stuck(broker));
        send_signal(rig.pid(), signal);
        rig.ended();
        rig.run(&["--grace", "0"]);
        assert!(is_stuck(broker), "the first broker has ended");
        rig.wait_for(" earlier-helper ");
        rig.stage_once(&healthy, FsType::Ext4);
        drop(frozen);
        done(retry_refused(|| rig.unstage(&stuck)));
    }
}

/// N10: 8 unstages whose disks take no write.
#[test]
fn hanging_unstages_do_not_block_healthy_volumes() {
    let Some(rig) = Rig::start() else { return };
    let space = Space::new(&rig);
    let clean = image(&rig, "clean", true);
    let (healthy, _attached) = rig.attach_copy(&clean);
    staged(rig.stage(&healthy, FsType::Ext4));
    let hanging: Vec<_> = (0..HANGING)
        .map(|_| {
            let volume = volume();
            let file = space.0.join(format!("{volume}.img"));
            fs::copy(&clean, &file).expect("copy");
            let attached = rig.attach_image(file);
            staged(rig.stage(&volume, FsType::Ext4));
            (volume, attached)
        })
        .collect();
    for (volume, _) in &hanging {
        let at = rig.staged_root(volume);
        fs::write(at.join("unwritten"), vec![1; 1 << 20]).expect("write");
    }
    let frozen = space.freeze();
    let mut clients = send_for_each(&rig, &hanging, LONG * 2, |volume| {
        rig.unstage_operation(volume, &staging(volume))
    });
    usage(rig.stats(&healthy, &staging(&healthy)));
    done(rig.publish(&healthy, "p"));
    done(rig.unpublish(&healthy, &target(&healthy, "p")));
    // Statistics of a hanging file system are answered, too: the kernel knows them without the
    // disk.
    for (volume, _) in &hanging {
        usage(rig.stats(volume, &staging(volume)));
    }
    let inventory = rig.inventory();
    assert_eq!(inventory.operations.len(), HANGING, "an unstage has ended");
    drop(frozen);
    for client in &mut clients {
        done(client.receive().expect("an answer"));
    }
    done(rig.unstage(&healthy));
}
