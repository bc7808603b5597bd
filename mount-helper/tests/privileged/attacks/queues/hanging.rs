//! Disks that do not answer: loop devices whose files are on a frozen file system.
use super::{MIB, copy, image};
use crate::attacks::row;
use crate::rig::{Client, LONG, Rig, done, shell, staged, staging, target, volume};
use ebs_csi_wire::{FsType, Inspect, Operation, Outcome, Unstage};
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
        let image = image.to_str().expect("utf-8");
        shell("truncate", &["-s", &(1024 * MIB).to_string(), image]);
        shell("mke2fs", &["-q", "-F", "-t", "ext4", image]);
        fs::create_dir(&directory).expect("mkdir");
        let to = directory.to_str().expect("utf-8");
        shell("mount", &["-o", "loop", image, to]);
        Self(directory)
    }

    /// Blocks all writes to the file system until the returned value is dropped.
    fn freeze(&self) -> Frozen {
        shell("fsfreeze", &["--freeze", self.0.to_str().expect("utf-8")]);
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

#[test]
fn hanging_unstages_do_not_block_healthy_volumes() {
    let Some(rig) = Rig::start() else { return };
    let space = Space::new(&rig);
    let clean = image(&rig, "clean", true);
    let (healthy, _attached) = copy(&rig, &clean);
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
        let at = rig.inside(&rig.kubelet(&staging(volume)));
        fs::write(at.join("unwritten"), vec![1; 1 << 20]).expect("write");
    }
    let frozen = space.freeze();
    let mut askers: Vec<Client> = hanging
        .iter()
        .map(|(volume, _)| {
            let mut client = rig.client();
            let asked = Unstage { volume: volume.clone(), staging: rig.kubelet(&staging(volume)) };
            client.send(Operation::Unstage(asked), LONG * 2);
            client
        })
        .collect();
    let usage = rig.stats(&healthy, &staging(&healthy));
    assert!(matches!(usage, Outcome::Usage(_)), "{usage:?}");
    done(rig.publish(&healthy, "p"));
    done(rig.unpublish(&healthy, &target(&healthy, "p")));
    // Statistics of a hanging file system are answered, too: the kernel knows them without the
    // disk.
    for (volume, _) in &hanging {
        let usage = rig.stats(volume, &staging(volume));
        assert!(matches!(usage, Outcome::Usage(_)), "{usage:?}");
    }
    let Outcome::Inventory(inventory) = rig.ask(Operation::Inspect(Inspect::default())) else {
        panic!("inventory expected");
    };
    assert_eq!(inventory.operations.len(), HANGING, "an unstage has ended");
    drop(frozen);
    for client in &mut askers {
        done(client.receive().expect("an answer"));
    }
    done(rig.unstage(&healthy));
    row(
        "N10",
        "8 unstages whose disks take no write",
        "statistics, publish and unpublish go on, statistics of the hanging file systems too",
    );
}
