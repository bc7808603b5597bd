//! The supervisor, as a compromised broker can use it, and under its own filter.
use super::script::{self, ScriptEnd, print_value};
use super::sys;
use crate::rig::{able, children, status};
use ebs_csi_confine::Entering;
use ebs_csi_confine::tool::Filters;
use ebs_csi_mount_helper::channel;
use ebs_csi_mount_helper::roles::confinement;
use ebs_csi_mount_helper::roles::runner::{self, Inherited};
use ebs_csi_mount_helper::roles::supervisor::collector::Collector;
use ebs_csi_mount_helper::roles::supervisor::{Part, Supervisor, Turn};
use ebs_csi_mount_helper::sys::{Fork, fork, signal_descriptor};
use ebs_csi_mount_helper::tool::{RUNNER_WANTED, RUNNERS};
use ebs_csi_policy::profile;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs;
use std::process::exit;
use std::time::Duration;

/// Flags of linux/sched.h: each namespace that clone(2) can make, and CLONE_PARENT, which makes the
/// child a sibling of its parent.
const FLAGS: [(&str, i64); 8] = [
    ("CLONE_NEWNS", 0x0002_0000),
    ("CLONE_NEWCGROUP", 0x0200_0000),
    ("CLONE_NEWUTS", 0x0400_0000),
    ("CLONE_NEWIPC", 0x0800_0000),
    ("CLONE_NEWUSER", 0x1000_0000),
    ("CLONE_NEWPID", 0x2000_0000),
    ("CLONE_NEWNET", 0x4000_0000),
    ("CLONE_PARENT", 0x8000),
];
/// The flags that fork(3) passes.
const PLAIN: i64 = 0x0120_0000;
const ASKED: usize = 300;

pub(super) fn clone_with(flags: &str) {
    let flags: i64 = flags.parse().expect("a number");
    // Leaves out Landlock, which forbids none of this.
    let entering = Entering::begin(profile::SUPERVISOR).and_then(Entering::identity);
    entering.and_then(Entering::calls).expect("confined");
    let child = sys::call(libc::SYS_clone, [flags | i64::from(libc::SIGCHLD), 0, 0, 0]);
    match child {
        Ok(0) => {
            let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
            let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
            print_value("child", held.unwrap_or_default().trim());
            exit(0);
        }
        Ok(_) => {
            exit(i32::from(rustix::process::wait(rustix::process::WaitOptions::empty()).is_err()))
        }
        Err(error) => exit(error.raw_os_error().unwrap_or(-1)),
    }
}

/// N18: The seccomp filter answers each CLONE_NEW flag and CLONE_PARENT with SIGSYS; a plain fork
/// works.
#[test]
fn supervisor_clone_with_namespace_flags_is_killed() {
    if !able() {
        return;
    }
    let plain = script::run("clone", &[&PLAIN.to_string()]);
    assert_eq!(plain.end, ScriptEnd::Exited(0), "{plain:?}");
    for (name, flag) in FLAGS {
        let ran = script::run("clone", &[&flag.to_string()]);
        assert_eq!(ran.end, ScriptEnd::Signalled(libc::SIGSYS), "{name}: {}", ran.output);
    }
}

/// Runs the real, confined supervisor for a broker that asks for runners and keeps each of them.
/// One that floods also writes lines without end.
pub(super) fn serve_greedy_broker(floods: bool) {
    let pair = || channel::pair().expect("pair");
    let ((jobs, asking), (broker_life, life_of_broker)) = (pair(), pair());
    let (directories_life, life_of_directories) = pair();
    let signals = signal_descriptor().expect("signalfd");
    let (lines, line_writer) = pipe_with(PipeFlags::CLOEXEC).expect("pipe");
    let ours = (jobs, broker_life, directories_life);
    let supervisor = std::process::id();
    let Fork::Parent(broker) = fork().expect("fork") else {
        drop((ours, life_of_directories, lines));
        if floods && fork().expect("fork") == Fork::Child {
            drop((asking, life_of_broker));
            let line = b"2026-01-01T00:00:00.000Z warn broker flood why=none\n".repeat(10);
            // Until nobody can read them any more.
            while rustix::io::write(&line_writer, &line).is_ok() {}
            exit(0);
        }
        drop(line_writer);
        request_runners(&asking, supervisor);
        drop(life_of_broker);
        exit(0);
    };
    drop(asking);
    // One process takes the place of the other parts.
    let Fork::Parent(directories) = fork().expect("fork") else {
        drop((ours, life_of_broker, lines, line_writer));
        let _ = channel::receive(&life_of_directories);
        exit(0);
    };
    drop((life_of_broker, life_of_directories, line_writer));
    let lock = fs::File::open("/").expect("open").into();
    let filters = Filters::compile().expect("filters");
    confinement::supervisor(false).expect("confined");
    let (jobs, broker_life, directories_life) = ours;
    let turn = Supervisor {
        jobs,
        broker: Part { life: broker_life, pid: broker },
        others: vec![Part { life: directories_life, pid: directories }],
        signals,
        journal: Collector::new(lines),
        lock,
        grace: Duration::ZERO,
        runners: Vec::new(),
    }
    .serve();
    exit(match turn.expect("serve") {
        Turn::Runner(socket) => {
            let inherited = Inherited { filters, devices_mount: 0, allow_missing_landlock: false };
            runner::serve(&socket, &inherited).into()
        }
        Turn::Ended(status) => status.into(),
    });
}

/// Asks for runners, keeps each answer, and prints how many processes exist.
fn request_runners(asking: &OwnedFd, supervisor: u32) {
    let ready = |flags, milliseconds: i64| {
        let timeout = Timespec { tv_sec: 0, tv_nsec: milliseconds * 1_000_000 };
        poll(&mut [PollFd::new(asking, flags)], Some(&timeout)).is_ok_and(|ready| ready > 0)
    };
    let answer = |milliseconds| -> Option<OwnedFd> {
        let (_, mut descriptors) =
            ready(PollFlags::IN, milliseconds).then(|| channel::receive(asking).ok()).flatten()?;
        descriptors.pop()
    };
    // All but this process and the one that takes the place of the other parts.
    let living = || {
        let is_zombie = |pid: u32| status(pid, "State").starts_with('Z');
        children(supervisor).into_iter().filter(|pid| !is_zombie(*pid)).count() - 2
    };
    let mut kept = Vec::new();
    for _ in 0..ASKED {
        // A full socket accepts no more, which also limits the requests.
        if ready(PollFlags::OUT, 20) {
            channel::send(asking, RUNNER_WANTED, &[]).expect("send");
        }
        kept.extend(answer(0));
    }
    kept.extend(std::iter::from_fn(|| answer(900)));
    print_value("answered", kept.len());
    print_value("living", living());
    // Closing the kept sockets makes room for as many runners again.
    drop(kept);
    let again: Vec<OwnedFd> = std::iter::from_fn(|| answer(900)).take(RUNNERS).collect();
    print_value("again", again.len());
    print_value("living-again", living());
}

/// N18: 300 runners asked of the real supervisor, none ended.
#[test]
fn broker_gets_at_most_12_runners() {
    if !able() {
        return;
    }
    let ran = script::run("runners", &[]);
    assert_eq!(RUNNERS, 12);
    for word in ["answered", "living", "again", "living-again"] {
        assert_eq!(ran.value(word), "12", "{word}: {ran:?}");
    }
}

/// The broker's lines fill the pipe all the time, and each runner is there within 900 ms.
#[test]
fn flood_of_lines_does_not_delay_runners() {
    if !able() {
        return;
    }
    let ran = script::run("runners-flooded", &[]);
    for word in ["answered", "living", "again", "living-again"] {
        assert_eq!(ran.value(word), "12", "{word}: {ran:?}");
    }
    let passed = ran.output.matches(" warn broker flood ").count();
    assert!((2000..2500).contains(&passed), "{passed} lines");
    assert!(ran.output.contains(" warn broker suppressed of=flood lines="), "{}", ran.output);
}
