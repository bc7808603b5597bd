//! The opener, as a compromised broker can use it.
use super::script::{self, print_value};
use crate::rig::{Rig, done, staged, volume};
use ebs_csi_mount_helper::channel;
use ebs_csi_mount_helper::disk::device::{DiskRoots, opener_requests};
use ebs_csi_mount_helper::roles::confinement;
use ebs_csi_mount_helper::roles::start::opener;
use ebs_csi_mount_helper::sys::{Fork, fork, limit_allocator};
use ebs_csi_policy::disk_class::DiskClass;
use ebs_csi_policy::profile::BlockNodes;
use ebs_csi_wire::FsType;
use rustix::fd::OwnedFd;
use rustix::mount::mount_bind;
use std::path::Path;
use std::process::exit;

/// Runs the real opener, with the device nodes of a directory instead of the machine's.
fn run_opener(lanes: Vec<OwnedFd>) {
    limit_allocator();
    let nodes = BlockNodes::read(Path::new("/dev"), DiskClass::LoopFile).expect("nodes");
    let disks = DiskRoots::open(DiskClass::LoopFile).expect("disks");
    let entering = confinement::opener(&nodes, false).expect("confined");
    let threads = opener::start(lanes, disks).expect("threads");
    entering.calls_of_all_threads().expect("confined");
    for thread in threads {
        thread.join().expect("a lane");
    }
}

/// Sends requests as the broker does, and prints the answers. `mounted` and `unused` are serials of
/// volumes, each with the kernel's name of its disk.
pub(super) fn send_requests(devices: &str, mounted: (&str, &str), unused: (&str, &str)) {
    mount_bind(devices, "/dev").expect("bind");
    let (lanes, lanes_opener) = opener_requests::lanes().expect("lanes");
    if fork().expect("fork") == Fork::Child {
        drop(lanes);
        run_opener(lanes_opener);
        exit(0);
    }
    drop(lanes_opener);
    let answer = |words: [&str; 7]| {
        channel::send(&lanes[0], words.join("\n").as_bytes(), &[]).expect("send");
        let (answer, mut descriptors) = channel::receive(&lanes[0]).expect("receive");
        let answer = String::from_utf8(answer).expect("text");
        let word = answer.split(' ').next().unwrap_or_default();
        match descriptors.pop() {
            Some(disk) if word == "opened" => {
                let writable = rustix::io::write(&disk, &[0; 512]).is_ok();
                format!("opened,{}", if writable { "writable" } else { "to-read" })
            }
            None => answer.replace(' ', ","),
            Some(_) => format!("a descriptor with {answer}"),
        }
    };
    let (volume, disk) = mounted;
    let read = ["serial", volume, disk, "0", "read", "0", "0"];
    let with = |changes: &[(usize, &'static str)]| {
        let mut words = read;
        for (at, word) in changes {
            words[*at] = word;
        }
        words
    };
    for (name, words) in [
        ("read", read),
        ("write-shared", with(&[(4, "write")])),
        ("write", with(&[(4, "write"), (5, "1")])),
        ("claim", with(&[(5, "1")])),
        ("another", ["serial", unused.0, disk, "0", "read", "0", "0"]),
        ("by-name", with(&[(0, "name"), (1, "")])),
        ("no-disk", with(&[(2, "null")])),
        ("path", with(&[(2, "../etc/shadow")])),
        ("partition", with(&[(3, "7")])),
        ("unused-shared", ["serial", unused.0, unused.1, "0", "write", "0", "0"]),
        ("unused", ["serial", unused.0, unused.1, "0", "write", "1", "0"]),
    ] {
        print_value(name, answer(words));
    }
}

/// N17: as broker ask the opener for a mounted disk to write, another volume's name, a path, what
/// is no disk, a disk without a claim.
#[test]
fn opener_opens_disk_for_writing_only_if_unheld() {
    let Some(rig) = Rig::start() else { return };
    let (mounted, unused) = (volume(), volume());
    let (disk, free) = (rig.attach(&mounted, 64 << 20), rig.attach(&unused, 1 << 20));
    staged(rig.stage(&mounted, FsType::Ext4));
    let devices = rig.path("dev").display().to_string();
    let (serial, free_serial) = (mounted.serial(), unused.serial());
    let words = [&devices, &serial, &disk.name, &free_serial, &free.name].map(String::as_str);
    let ran = script::run_apart("opener", &words);
    for (name, answer) in [
        ("read", "opened,to-read"),
        ("write-shared", "errno,1"),
        ("write", "errno,16"),
        ("claim", "errno,16"),
        ("another", "mismatch"),
        ("by-name", "mismatch"),
        ("no-disk", "errno,2"),
        ("path", "errno,22"),
        ("partition", "errno,2"),
        ("unused-shared", "errno,1"),
        ("unused", "opened,writable"),
    ] {
        let found = ran.value(name).trim_matches('"');
        assert_eq!(found, answer, "{name}: {}", ran.output);
    }
    done(rig.unstage(&mounted));
}
