//! From the command line to four confined processes, five with vsock: opens what has to be opened
//! by name, forks, and lets each part give up what it does not need before anything is served.
mod opened;
pub mod opener;

use crate::channel;
use crate::disk::attachments::{Attachments, ExaminedDisks, MountedDisks};
use crate::disk::device::opener_requests::lanes;
use crate::disk::format_comparison::Comparisons;
use crate::disk::reader;
use crate::journal;
use crate::mount::detached_mount;
use crate::mount::directory_requests::Directories;
use crate::mount::mount_table::{MountTable, mount_of};
use crate::mount::{kubelet_root_lock, propagation};
use crate::operation::runner_requests::Runners;
use crate::operation::{self, OperationContext, PathReservations};
use crate::roles::relay::Relay;
use crate::roles::supervisor::collector::Collector;
use crate::roles::supervisor::{Part, Supervisor, Turn};
use crate::roles::{broker, confinement, directories, runner};
use crate::session::BrokerState;
use crate::session::listener::Listener;
use crate::session::operation_table::{OperationTable, WakeEvent};
use crate::settings::{self, Command, HELP, HelperSettings};
use crate::sys::{self, Fork};
use crate::tool::ToolPlaces;
use ebs_csi_confine::Fault;
use ebs_csi_confine::tool::Filters;
use ebs_csi_policy::disk_class::DiskClass;
use ebs_csi_policy::{Policy, setting};
use opened::{Opened, OpenedVsock};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::Mode;
use rustix::io::ioctl_fionbio;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::stdio::dup2_stderr;
use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};
use std::iter;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Exit status for a wrong command line (sysexits.h, EX_USAGE).
const USAGE: u8 = 64;
/// Exit status for a bug of this program (EX_SOFTWARE).
const BUG: u8 = 70;
/// Exit status when the machine is not as the settings say (EX_CONFIG).
const CONFIG: u8 = 78;
/// Message by which a part reports that it is confined and serves.
const READY: &[u8] = b"ready";
/// Longest time for a part to report [`READY`].
const START_TIME: Duration = Duration::from_secs(20);

/// Runs the program with the arguments that follow its name. Returns in every process of the tree.
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let settings = match settings::parse(arguments) {
        Ok(Command::Help) => return print(HELP),
        Ok(Command::Version) => {
            let policies = Policy::ALL.map(|one| format!("{} {}", one.name, one.digest));
            return print(&format!(
                "ebs-csi-mount-helper {} policy {}\n",
                env!("CARGO_PKG_VERSION"),
                policies.join(", "),
            ));
        }
        Ok(Command::Serve(settings)) => settings,
        Err(line) => {
            let _ = writeln!(io::stderr(), "ebs-csi-mount-helper: {line}");
            return USAGE.into();
        }
    };
    journal::set_json(settings.json);
    // A panic on any thread is a bug. Afterwards the process can no longer trust its own state.
    std::panic::set_hook(Box::new(|why| {
        journal::error("panic", &[("why", &why.to_string())]);
        std::process::exit(BUG.into());
    }));
    ExitCode::from(serve(&settings))
}

fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve(settings: &HelperSettings) -> u8 {
    #[cfg(feature = "fault-points")]
    if let Some(name) = &settings.fault_point {
        crate::fault_point::arm(name.clone());
    }
    if let Err(e) = confinement::sanitise() {
        journal::error("sanitise", &[("why", &e.to_string())]);
        return Fault::EXIT;
    }
    match settings.policy.disks {
        DiskClass::Ebs => {}
        DiskClass::Guest => {
            let meaning = "disks that a hypervisor made are taken for EBS volumes by their \
                           serial; use this in a virtual machine alone";
            journal::warn("guest-policy", &[("meaning", meaning)]);
        }
        DiskClass::LoopFile => {
            let meaning = "loop devices are taken for EBS volumes; never use this on a node";
            journal::warn("sandbox-policy", &[("meaning", meaning)]);
        }
    }
    let (lock, opened) = match opened::open(settings) {
        Ok(Some(opened)) => opened,
        // The process was told to end before it began.
        Ok(None) => return 0,
        Err((what, why)) => {
            journal::error("start", &[("what", &what), ("why", &why.to_string())]);
            return CONFIG;
        }
    };
    let forked = || {
        confined(confinement::namespaces())?;
        let memory = started("memory", reader::memory(), CONFIG)?;
        started("fork", fork(settings, lock, opened, memory), 1)
    };
    forked().unwrap_or_else(|status| status)
}

/// Starts the parts. In `memory`, the opener makes formats again.
fn fork(
    settings: &HelperSettings,
    lock: OwnedFd,
    mut opened: Opened,
    memory: OwnedFd,
) -> io::Result<u8> {
    // Before the first fork, so that no end of a child is missed.
    let signals = sys::signal_descriptor()?;
    let (lines, line_writer) = pipe_with(PipeFlags::CLOEXEC)?;
    let mut others = Vec::new();
    if let Some(vsock) = opened.vsock.take() {
        let (life, life_of_relay) = channel::pair()?;
        let (relayed, broker) = channel::pair()?;
        match fork_part(&line_writer)? {
            Fork::Child => {
                drop((lock, memory, signals, lines, line_writer, life, relayed));
                let part = run_relay(settings, opened, vsock, &broker, &life_of_relay);
                return Ok(part.unwrap_or_else(|status| status));
            }
            Fork::Parent(pid) => others.push(Part { life, pid }),
        }
        opened.listeners.push(Listener::Relay(relayed));
    }
    let (jobs, jobs_broker) = channel::pair()?;
    let (broker_life, life_of_broker) = channel::pair()?;
    let (directories_life, life_of_directories) = channel::pair()?;
    let (opener_life, life_of_opener) = channel::pair()?;
    let (names, names_directories) = channel::pair()?;
    let (lanes, lanes_opener) = lanes()?;
    let broker = match fork_part(&line_writer)? {
        Fork::Child => {
            drop((lock, jobs, broker_life, directories_life, opener_life, others, signals));
            drop((lines, line_writer));
            drop((life_of_directories, names_directories));
            drop((life_of_opener, lanes_opener, memory));
            let ends = BrokerEnds { jobs: jobs_broker, names, lanes, life: life_of_broker };
            return Ok(run_broker(settings, opened, ends).unwrap_or_else(|status| status));
        }
        Fork::Parent(pid) => Part { life: broker_life, pid },
    };
    drop((jobs_broker, life_of_broker, names, lanes));
    // The relay hands over to nobody but the broker.
    opened.listeners.clear();
    let directories = match fork_part(&line_writer)? {
        Fork::Child => {
            drop((lock, jobs, broker, directories_life, opener_life, others, signals));
            drop((lines, line_writer));
            drop((life_of_opener, lanes_opener, memory));
            let part = run_directories(settings, opened, &names_directories, life_of_directories);
            return Ok(part.unwrap_or_else(|status| status));
        }
        Fork::Parent(pid) => Part { life: directories_life, pid },
    };
    others.push(directories);
    drop((life_of_directories, names_directories));
    let opener = match fork_part(&line_writer)? {
        Fork::Child => {
            drop((lock, jobs, broker, opener_life, others, signals, lines, line_writer));
            let part = opener::run(settings, opened, memory, lanes_opener, &life_of_opener);
            return Ok(part.unwrap_or_else(|status| status));
        }
        Fork::Parent(pid) => Part { life: opener_life, pid },
    };
    others.push(opener);
    let devices_mount = mount_of(opened.disks.devices())?;
    drop((opened, life_of_opener, lanes_opener, memory, line_writer));
    run_supervisor(
        settings,
        devices_mount,
        Supervisor {
            jobs,
            broker,
            others,
            signals,
            journal: Collector::new(lines),
            lock,
            runners: Vec::new(),
            // A little longer than the broker itself waits.
            grace: settings.grace + Duration::from_secs(2),
        },
    )
}

/// Forks a part. Its standard error is the pipe to the supervisor from then on, also for what it
/// does not write as a line of its own, such as the last words of its C library.
fn fork_part(line_writer: &OwnedFd) -> io::Result<Fork> {
    let side = sys::fork()?;
    if side == Fork::Child {
        dup2_stderr(line_writer)?;
    }
    Ok(side)
}

struct BrokerEnds {
    jobs: OwnedFd,
    names: OwnedFd,
    lanes: Vec<OwnedFd>,
    life: OwnedFd,
}

fn run_broker(settings: &HelperSettings, opened: Opened, ends: BrokerEnds) -> Result<u8, u8> {
    let BrokerEnds { jobs, names, lanes, life } = ends;
    journal::set_role("broker");
    sys::limit_allocator();
    sys::unblock_signals();
    sys::ignore_stop_signals();
    // The table must be of this process, not of the one that forked it.
    let table = started("/proc/self", MountTable::open(), CONFIG)?;
    let mark = started("the kubelet root", kubelet_root_lock::mark(&opened.root), 1)?;
    let entering = confined(confinement::broker())?;
    detached_mount::kernel_version();
    if !propagation::check(&opened.root, &table, settings.allow_private_mounts) {
        return Err(CONFIG);
    }
    let policy = *opened.rules.policy();
    let wake_event = started("eventfd", WakeEvent::new(), 1)?;
    let mut written = vec![wake_event.as_fd()];
    written.extend(opened.read_only_record.descriptors());
    written.extend(opened.promises.descriptors());
    let entering = confined(entering.keep_descriptors(&written))?;
    let places = Arc::<ToolPlaces>::default();
    let broker = Arc::new(BrokerState {
        context: OperationContext {
            root: opened.root,
            disks: opened.disks.opened_by(lanes),
            mount_table: table,
            directories: Directories::new(names),
            runners: Runners::new(jobs, Arc::clone(&places)),
            rules: opened.rules,
            examined_disks: ExaminedDisks::default(),
            mounted_disks: MountedDisks::default(),
            comparisons: Comparisons::default(),
            copied_mounts: settings.copied_mounts,
            read_only_record: opened.read_only_record,
            promises: opened.promises,
            released_beside_copy: Attachments::default(),
            path_reservations: PathReservations::default(),
            mark,
        },
        table: OperationTable::new(places, wake_event),
        digest: setting::digest_in_force(&policy, &settings.wider),
        wider: settings.wider.clone(),
        sandbox: policy.disks == DiskClass::LoopFile,
        landlock: ebs_csi_confine::landlock_abi(),
    });
    if broker.context.read_only_record.is_first() {
        operation::record_earlier_publications(&broker.context);
    }
    started("threads", broker::start(&broker, opened.listeners), 1)?;
    confinement::log(&confined(entering.calls_of_all_threads())?);
    journal::info(
        "serving",
        &[
            ("policy", policy.name),
            ("digest", &broker.digest),
            ("untrusted-images", settings.untrusted_images.as_str()),
            ("nodev-nosuid", settings.nodev_nosuid.as_str()),
            ("disks-without-serial", settings.disks_without_serial.as_str()),
            ("copied-mounts", settings.copied_mounts.as_str()),
        ],
    );
    channel::send(&life, READY, &[]).map_err(|_| 1)?;
    Ok(broker::watch(&broker, &life, settings.grace))
}

fn run_relay(
    settings: &HelperSettings,
    opened: Opened,
    vsock: OpenedVsock,
    broker: &OwnedFd,
    life: &OwnedFd,
) -> Result<u8, u8> {
    journal::set_role("relay");
    sys::limit_allocator();
    sys::unblock_signals();
    sys::ignore_stop_signals();
    let root = opened.into_root();
    let mark = started("the kubelet root", kubelet_root_lock::mark(&root), 1)?;
    drop(root);
    started("the broker's socket", ioctl_fionbio(broker, true), 1)?;
    let OpenedVsock { ports, key } = vsock;
    let key = started("the key", key.read(), CONFIG)?;
    confinement::log(&confined(confinement::relay(settings.allow_missing_landlock))?);
    // The supervisor has closed its end because the broker did not start. The broker's exit status
    // is the one that counts.
    channel::send(life, READY, &[]).map_err(|_| 0)?;
    let served = Relay::new(&ports, &settings.vsock_peers, &key, broker, life).serve();
    started("the relay", served, BUG)?;
    drop((ports, mark));
    Ok(0)
}

fn run_directories(
    settings: &HelperSettings,
    opened: Opened,
    names: &OwnedFd,
    life: OwnedFd,
) -> Result<u8, u8> {
    journal::set_role("directories");
    sys::unblock_signals();
    sys::ignore_stop_signals();
    let root = opened.into_root();
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let enforced = confinement::directories(&root, settings.allow_missing_landlock);
    confinement::log(&confined(enforced)?);
    drop(root);
    // The supervisor has closed its end because the broker did not start. The broker's exit status
    // is the one that counts.
    channel::send(&life, READY, &[]).map_err(|_| 0)?;
    directories::serve(names);
    drop(life);
    Ok(0)
}

fn run_supervisor(
    settings: &HelperSettings,
    devices_mount: u64,
    mut supervisor: Supervisor,
) -> io::Result<u8> {
    journal::set_role("supervisor");
    let Supervisor { broker, others, journal: lines, .. } = &mut supervisor;
    let ready = iter::once(&*broker).chain(&*others).all(|part| ready(&part.life, lines));
    if !ready {
        // These parts have logged the reason; their status is passed on.
        return Ok(supervisor.abandon());
    }
    // The filters are compiled once, for every tool that is ever started.
    let filters = Filters::compile().and_then(|filters| {
        let enforced = confinement::supervisor(settings.allow_missing_landlock)?;
        confinement::log(&enforced);
        Ok(filters)
    });
    let filters = match confined(filters) {
        Ok(filters) => filters,
        Err(status) => {
            supervisor.abandon();
            return Ok(status);
        }
    };
    let listen: Vec<String> = settings.listen.iter().map(ToString::to_string).collect();
    journal::info("ready", &[("listen", &listen.join(","))]);
    match supervisor.serve()? {
        Turn::Ended(status) => {
            journal::info("ended", &[("status", &status.to_string())]);
            Ok(status)
        }
        Turn::Runner(socket) => {
            let allow_missing_landlock = settings.allow_missing_landlock;
            let inherited = runner::Inherited { filters, devices_mount, allow_missing_landlock };
            Ok(runner::serve(&socket, &inherited))
        }
    }
}

/// Waits until a part serves, and passes on what the parts write; returns whether it serves.
fn ready(life: &OwnedFd, lines: &mut Collector) -> bool {
    let end = Instant::now() + START_TIME;
    loop {
        let answer = channel::receive_within(life, Duration::from_millis(20));
        lines.drain();
        match answer {
            Err(e) if e.kind() == io::ErrorKind::TimedOut && Instant::now() < end => {}
            answer => return answer.is_ok_and(|(word, _)| word == READY),
        }
    }
}

/// Returns the value, or logs that it prevents the start and returns the exit status.
fn started<T, E: Display>(what: &str, result: Result<T, E>, status: u8) -> Result<T, u8> {
    result.map_err(|why| {
        journal::error("start", &[("what", what), ("why", &why.to_string())]);
        status
    })
}

/// Returns the value, or logs that the process is not confined and returns the exit status.
fn confined<T>(result: Result<T, Fault>) -> Result<T, u8> {
    result.map_err(|fault| {
        let first: &dyn Error = &fault;
        let chain = iter::successors(Some(first), |error| (*error).source());
        let why: Vec<String> = chain.map(ToString::to_string).collect();
        journal::error("not-confined", &[("why", &why.join(": "))]);
        Fault::EXIT
    })
}
