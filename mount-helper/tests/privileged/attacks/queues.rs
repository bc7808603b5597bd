//! A client that floods the helper, or that keeps it waiting, does not impair the others.
mod frames;
mod hanging;
mod load;
mod publications;
mod slow;

use crate::rig::{
    Attached, Client, MIB, Repeated, Rig, children, make_filesystem, role, shell, sparse_file,
    status, text, try_signal,
};
use ebs_csi_wire::{FsType, Operation, VolumeId};
use rustix::process::Signal;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Limit of the memory that the broker may take under any requests, in bytes.
const MEMORY: u64 = 64 * MIB;

/// Creates an image of an ext4, from which a test copies disks.
fn image(rig: &Rig, name: &str, clean: bool) -> PathBuf {
    let path = rig.path("outside").join(name);
    sparse_file(&path, 16 * MIB);
    make_filesystem(FsType::Ext4, text(&path));
    if !clean {
        shell("debugfs", &["-w", "-R", "ssv state 0", text(&path)]);
    }
    path
}

/// Sends a request for each volume over a connection of its own, and returns the connections.
fn send_for_each(
    rig: &Rig,
    disks: &[(VolumeId, Attached)],
    wait: Duration,
    operation: impl Fn(&VolumeId) -> Operation,
) -> Vec<Client> {
    let send = |(volume, _): &(VolumeId, Attached)| {
        let mut client = rig.client();
        client.send(operation(volume), wait);
        client
    };
    disks.iter().map(send).collect()
}

fn most_memory(rig: &Rig) -> u64 {
    let field = status(rig.part("broker"), "VmHWM");
    let kib = field.split(' ').next().and_then(|word| word.parse().ok());
    kib.map_or(u64::MAX, |kib: u64| kib << 10)
}

/// Releases tools that a fault point holds, each after it was held for some time, until the
/// returned value is dropped.
fn release_tools(rig: &Rig, held_for: Duration) -> Repeated<HashMap<u32, Instant>> {
    let supervisor = rig.pid();
    Repeated::start(HashMap::new(), Duration::from_millis(5), move |seen| {
        let mut runners = children(supervisor);
        runners.retain(|pid| role(*pid) == "runner");
        seen.retain(|pid, _| runners.contains(pid));
        for pid in runners.into_iter().filter(|pid| is_held(*pid)) {
            if seen.entry(pid).or_insert_with(Instant::now).elapsed() >= held_for {
                try_signal(pid, Signal::USR1);
            }
        }
    })
}

/// Returns whether a runner sleeps. A runner sleeps only at a fault point, where a signal
/// interrupts nothing else.
fn is_held(pid: u32) -> bool {
    let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    let number = call.split(' ').next().and_then(|word| word.parse().ok());
    number.is_some_and(|number: i64| {
        [libc::SYS_nanosleep, libc::SYS_clock_nanosleep].contains(&number)
    })
}
