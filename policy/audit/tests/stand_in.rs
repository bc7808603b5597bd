//! The processes that are audited: this program, started again. Each confines itself to a profile,
//! but for one thing.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::IntoRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc;

use ebs_csi_confine::{Entering, Fault, Places, tool};
use ebs_csi_policy::disk_class::DiskClass;
use ebs_csi_policy::profile::{self, BlockNodes, Profile};
use rustix::thread::{
    Gid, Uid, set_name, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use crate::TestResult;

/// The argument before the name of a stand-in.
pub(crate) const STAND_IN: &str = "stand-in";
/// What each process writes once it holds what it should.
pub(crate) const READY: u8 = b'r';
const NO_TEXT: &std::ffi::CStr = c"broker\xff";

type StandIn = fn() -> TestResult;

const STAND_INS: &[(&str, StandIn)] = &[
    ("controller", || serve(entered(profile::CONTROLLER)?)),
    ("directories", || serve(entered(profile::DIRECTORIES)?)),
    ("opener", || {
        let disks = BlockNodes::read(Path::new("/dev"), DiskClass::Ebs)?;
        serve(entered(profile::OPENER.on(&disks))?)
    }),
    ("broker", || serve(entered(profile::BROKER)?)),
    ("capability-too-many", || {
        let mut wide = *profile::DIRECTORIES;
        wide.capabilities = profile::LAUNCHER.capabilities;
        serve(entered(Box::leak(Box::new(wide)))?)
    }),
    ("call-too-many", || {
        let mut wide = *profile::DIRECTORIES;
        let more = profile::RELAY.calls.iter().find(|rule| rule.call == "accept4");
        wide.calls = [wide.calls, &[*more.ok_or("no such rule")?]].concat().leak();
        serve(entered(Box::leak(Box::new(wide)))?)
    }),
    ("group-too-many", || {
        let mut wide = *profile::DIRECTORIES;
        wide.identity.groups = &[6];
        serve(entered(Box::leak(Box::new(wide)))?)
    }),
    ("connected", || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let connection = TcpStream::connect(listener.local_addr()?)?;
        let (accepted, _) = listener.accept()?;
        drop((listener, accepted.into_raw_fd()));
        let entering = Entering::begin(profile::NODE_AGENT)?.allow_missing_landlock(true);
        serve(entering.identity()?.files(&Places::new())?)?;
        drop(connection);
        Ok(())
    }),
    ("relay", || serve(entered(profile::RELAY)?)),
    ("renamed-broker-without-filter", || {
        let entering = entered(profile::BROKER)?;
        set_name(NO_TEXT)?;
        drop(entering);
        wait_for_end()
    }),
    ("node-agent", || serve(entered(profile::NODE_AGENT)?)),
    ("supervisor", || supervise(&["broker", "directories", "opener"])),
    ("supervisor-of-capability-too-many", || {
        supervise(&["broker", "capability-too-many", "opener"])
    }),
    ("supervisor-of-call-too-many", || supervise(&["broker", "call-too-many", "opener"])),
    ("supervisor-of-group-too-many", || supervise(&["broker", "group-too-many", "opener"])),
    ("supervisor-of-renamed", || {
        supervise(&["renamed-broker-without-filter", "directories", "opener"])
    }),
    ("supervisor-of-moved-broker", || supervise(&["broker-elsewhere", "directories", "opener"])),
    ("broker-elsewhere", || {
        let own = std::env::current_exe()?;
        let further = std::env::args_os().skip(3);
        let mut unshare = Command::new("unshare");
        Err(unshare.arg("-u").arg(own).args([STAND_IN, "broker"]).args(further).exec().into())
    }),
    ("supervisor-without-broker", || supervise(&["directories", "opener"])),
    ("allow-all-filter", || {
        let entering = entered(profile::DIRECTORIES)?;
        allow_every_call()?;
        drop(entering);
        wait_for_end()
    }),
    ("ten-allow-all-filters", || {
        let entering = entered(profile::CONTROLLER)?;
        (0..10).try_for_each(|_| allow_every_call())?;
        drop(entering);
        wait_for_end()
    }),
    ("listener", || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        serve(entered(profile::CONTROLLER)?)?;
        drop(listener);
        Ok(())
    }),
    ("shadow", || {
        let shadow = File::open("/etc/shadow")?;
        serve(entered(profile::CONTROLLER)?)?;
        drop(shadow);
        Ok(())
    }),
    ("holder", || {
        let name = std::env::args_os().nth(3).ok_or("no file")?;
        let file = File::open(name)?;
        serve(entered(profile::CONTROLLER)?)?;
        drop(file);
        Ok(())
    }),
    ("groups", || {
        set_thread_groups(&[Gid::ROOT, Gid::from_raw(6)])?;
        let (gid, uid) = (Gid::from_raw(65530), Uid::from_raw(65530));
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        serve(entered(profile::CONTROLLER)?)
    }),
    ("thread", || {
        let entering = Entering::begin(profile::CONTROLLER)?;
        let (go, wait) = mpsc::channel::<()>();
        let (running, runs) = mpsc::channel();
        std::thread::spawn(move || running.send(()).is_ok() && wait.recv().is_ok());
        runs.recv()?;
        serve(entering.identity()?.files(&Places::new())?)?;
        drop(go);
        Ok(())
    }),
    ("auditor-under-filter", || {
        allow_every_call()?;
        let mut arguments = std::env::args_os().skip(3);
        let program = arguments.next().ok_or("no program")?;
        Err(Command::new(program).args(arguments).exec().into())
    }),
];

/// Is the stand-in of this name until its input ends.
pub(crate) fn be(name: &str) -> TestResult {
    let (_, stand_in) =
        STAND_INS.iter().find(|(known, _)| *known == name).ok_or("no such stand-in")?;
    stand_in()
}

/// Takes all steps but the system call filter.
fn entered(profile: &'static Profile) -> Result<Entering, Fault> {
    let places = tool::programs(Places::new().with("kubelet-root", "/tmp")?)?;
    Entering::begin(profile)?.allow_missing_landlock(true).identity()?.files(&places)
}

fn serve(entering: Entering) -> TestResult {
    entering.calls()?;
    wait_for_end()
}

fn wait_for_end() -> TestResult {
    io::stdout().write_all(&[READY])?;
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Starts the processes of a helper, which share its input and output, and becomes its supervisor.
fn supervise(parts: &[&str]) -> TestResult {
    let own = std::env::current_exe()?;
    // The parts of a helper have its arguments.
    let further: Vec<_> = std::env::args_os().skip(3).collect();
    let start = |part: &&str| Command::new(&own).args([STAND_IN, part]).args(&further).spawn();
    let mut children = parts.iter().map(start).collect::<io::Result<Vec<Child>>>()?;
    serve(entered(profile::SUPERVISOR)?)?;
    for child in &mut children {
        child.wait()?;
    }
    Ok(())
}

/// Binds this process to a filter that refuses no call.
fn allow_every_call() -> TestResult {
    let (other, matched) = (SeccompAction::Allow, SeccompAction::Log);
    let machine = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new([(0, Vec::new())].into(), other, matched, machine)?;
    let program: BpfProgram = filter.try_into()?;
    Ok(seccompiler::apply_filter(&program)?)
}
