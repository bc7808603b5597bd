//! The opener, as a compromised broker can use it.
use super::script::{self, print_value};
use crate::rig::{Rig, done};
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
    let memory = tempfile::tempfile().expect("a file").into();
    let entering = confinement::opener(&nodes, &[], false).expect("confined");
    let threads = opener::start(lanes, disks, memory).expect("threads");
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
    let answer = |request: &str| {
        channel::send(&lanes[0], request.as_bytes(), &[]).expect("send");
        let (answer, mut descriptors) = channel::receive(&lanes[0]).expect("receive");
        let answer = String::from_utf8(answer).expect("text");
        let words: Vec<&str> = answer.split_whitespace().collect();
        match descriptors.pop() {
            Some(disk) if words[0] == "opened" => {
                let writable = rustix::io::write(&disk, &[0; 512]).is_ok();
                format!("opened,{}", if writable { "writable" } else { "to-read" })
            }
            None => words.join(","),
            Some(_) => format!("a descriptor with {answer}"),
        }
    };
    for (name, request, _) in requests(mounted, unused) {
        print_value(name, answer(&request));
    }
}

/// Returns the requests, each with its answer.
fn requests(
    mounted: (&str, &str),
    unused: (&str, &str),
) -> [(&'static str, String, &'static str); 12] {
    let open = |disk: &str, partition: &str, proof: &str, access: &str, exclusive: bool| {
        format!(" open {} {partition} {proof} {access} {exclusive} false", hexadecimal(disk))
    };
    let serial = |volume: &str| format!("serial {}", hexadecimal(volume));
    let (volume, disk) = (serial(mounted.0), mounted.1);
    let (other, free) = (serial(unused.0), unused.1);
    let (whole, read, write) = ("false", "read", "write");
    [
        ("read", open(disk, whole, &volume, read, false), "opened,to-read"),
        ("write-shared", open(disk, whole, &volume, write, false), "failed,errno,1"),
        ("write", open(disk, whole, &volume, write, true), "failed,errno,16"),
        ("claim", open(disk, whole, &volume, read, true), "failed,errno,16"),
        ("another", open(disk, whole, &other, read, false), "failed,mismatch"),
        ("by-name", open(disk, whole, "name", read, false), "failed,mismatch"),
        ("no-disk", open("null", whole, &volume, read, false), "failed,errno,2"),
        ("path", open("../etc/shadow", whole, &volume, read, false), "failed,errno,22"),
        ("partition", open(disk, "true 7", &volume, read, false), "failed,errno,2"),
        ("unused-shared", open(free, whole, &other, write, false), "failed,errno,1"),
        ("no-descriptor", " read first".to_owned(), "failed,errno,9"),
        ("unused", open(free, whole, &other, write, true), "opened,writable"),
    ]
}

fn hexadecimal(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// N17: as broker ask the opener for a mounted disk to write, another volume's name, a path, what
/// is no disk, a disk without a claim.
#[test]
fn opener_opens_disk_for_writing_only_if_unheld() {
    let Some(rig) = Rig::start() else { return };
    let (mounted, disk) = rig.staged_disk(64 << 20, FsType::Ext4);
    let (unused, free) = rig.new_disk(1 << 20);
    let devices = rig.path("dev").display().to_string();
    let (serial, free_serial) = (mounted.serial(), unused.serial());
    let words = [&devices, &serial, &disk.name, &free_serial, &free.name].map(String::as_str);
    let ran = script::run_apart("opener", &words);
    for (name, _, answer) in requests((&serial, &disk.name), (&free_serial, &free.name)) {
        let found = ran.value(name).trim_matches('"');
        assert_eq!(found, answer, "{name}: {}", ran.output);
    }
    done(rig.unstage(&mounted));
}
