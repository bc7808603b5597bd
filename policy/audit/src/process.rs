//! What `/proc` shows of one process.
//!
//! A process chooses the bytes of its name, its arguments and its file names, so none of them is
//! taken for text.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;

use ebs_csi_policy::process_status::Status;
use ebs_csi_policy::profile::BlockNodes;
use ebs_csi_policy::variant::{PRODUCTION, Policy};

use crate::sys::is_end;
use open_files::OpenFile;
use proc_text::{names_files, parse_limits, parse_start, paths, program_name, split_words};

mod filters;
#[cfg(any(test, fuzzing))]
#[path = "../fuzz/inputs.rs"]
pub mod fuzz_inputs;
mod kept;
pub(crate) mod open_files;
mod proc_text;
mod seen;

pub(crate) use kept::{Kept, kept_fields};
pub(crate) use seen::{Namespaces, Seen, SocketOwner};

/// The program of the helper's processes.
pub(crate) const HELPER: &str = "ebs-csi-mount-helper";
/// The number that `/proc` shows for a thread with system call filters.
pub(crate) const FILTERED: u8 = 2;
/// The most bytes of arguments, and of the environment, that are read of a process. A process may
/// have megabytes of both.
pub(crate) const MOST_ARGUMENTS: u64 = 128 << 10;
/// The longest other file of `/proc` that is read: a process has at most 65,536 groups.
const MOST: u64 = 1 << 20;
/// How often the threads are listed until no new one is found.
const ROUNDS: usize = 16;

/// What `/proc` reports about one process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// The process's number.
    pub pid: u32,
    /// The number of the process's parent.
    pub parent: u32,
    /// The file name of its program.
    pub program: String,
    /// The file of the program was replaced or removed since its start.
    pub is_replaced: bool,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The arguments are longer than what is read of them.
    pub(crate) arguments_are_cut: bool,
    /// The names of the variables of its first environment.
    pub variables: Vec<String>,
    /// The environment is longer than what is read of it.
    pub(crate) environment_is_cut: bool,
    /// When the process was started, in clock ticks since the machine's start.
    pub(crate) started: u64,
    /// Hard limits: the name as the kernel writes it, and the value; `None`: unlimited.
    pub limits: Vec<(String, Option<u64>)>,
    /// `/proc/PID/status`, of the first thread that has not ended.
    pub status: Status,
    /// All threads that have not ended.
    pub threads: Vec<Thread>,
    /// The nodes of disks as the process sees them; empty when they cannot be read.
    pub disks: BlockNodes,
    /// The absolute paths in its arguments and in the variables that name files of credentials.
    pub(crate) named_paths: Vec<String>,
    pub(crate) open: Vec<OpenFile>,
    /// Why the filters of some thread are not known.
    pub(crate) filters_unseen: Option<String>,
    pub(crate) seen: Seen,
}

/// What the kernel reports about one thread.
#[derive(Clone, Debug)]
pub struct Thread {
    /// The thread's number.
    pub number: u32,
    /// `/proc/PID/task/NUMBER/status`.
    pub status: Status,
    /// The system call filters; `None` until [`Process::read_filters`]. Equal ones are one.
    pub(crate) filters: Option<Vec<Arc<[u8]>>>,
}

impl Process {
    /// Reads a process from `/proc`. Fails with [`io::ErrorKind::NotFound`] when the process has
    /// ended; another error says that it is somebody else's and the caller is not root.
    pub fn read(pid: u32) -> io::Result<Self> {
        let directory = Path::new("/proc").join(pid.to_string());
        let started = started(&directory)?;
        let threads = threads(&directory)?;
        let ended = || io::Error::from(io::ErrorKind::NotFound);
        let first = threads.first().ok_or_else(ended)?;
        let (number, status) = (first.number, first.status.clone());
        // Where the first thread has ended, the directory of the process shows little.
        let tasks = directory.join("task");
        let directory = tasks.join(number.to_string());
        let (program, is_replaced) = program(&directory)?;
        let (arguments, arguments_are_cut) = words(&directory, "cmdline")?;
        let (environment, environment_is_cut) = words(&directory, "environ")?;
        let disks = match program.as_str() {
            HELPER => {
                let class = policy_chosen_by(&arguments).disks;
                BlockNodes::read(&directory.join("root/dev"), class).unwrap_or_default()
            }
            _ => BlockNodes::default(),
        };
        let directories = threads.iter().map(|thread| tasks.join(thread.number.to_string()));
        let open = open_files::of_threads(pid, directories)?;
        let mut process = Self {
            pid,
            parent: status.parent,
            program,
            is_replaced,
            variables: environment
                .iter()
                .filter_map(|pair| Some(pair.split_once('=')?.0.to_owned()))
                .collect(),
            // The program's own name, which comes first, names no file for it to hold.
            named_paths: arguments
                .iter()
                .skip(1)
                .chain(environment.iter().filter(|pair| names_files(pair)))
                .flat_map(|one| paths(one))
                .collect(),
            arguments,
            arguments_are_cut,
            environment_is_cut,
            started,
            limits: parse_limits(&String::from_utf8_lossy(
                &read_most(&directory, "limits", MOST)?.0,
            )),
            status,
            open,
            threads,
            disks,
            filters_unseen: None,
            seen: Seen::default(),
        };
        process.seen = Seen::of(&process);
        Ok(process)
    }

    /// Reads the system call filters of all threads, by ptrace(2), those of threads that started
    /// meanwhile, too. Each thread stops for some microseconds. For a program that ends soon and is
    /// not the parent of the process: a stop looks to a parent like an end, and a thread that does
    /// not stop in time stays traced. The kernel shows filters to root, in a process without a
    /// filter of its own.
    pub fn read_filters(&mut self) {
        let before = self.threads.len();
        self.filters_unseen = self.try_read_filters().err().map(|error| error.to_string());
        if self.threads.len() != before {
            self.seen = Seen::of(self);
        }
        self.seen.has_ended = !self.still_runs();
    }

    pub(crate) fn read_digest(&mut self) {
        self.seen.digest = Some(seen::digest(self.pid).map_err(|error| error.to_string()));
    }

    fn try_read_filters(&mut self) -> io::Result<()> {
        let directory = Path::new("/proc").join(self.pid.to_string());
        let mut known: Vec<Arc<[u8]>> = Vec::new();
        for _ in 0..ROUNDS {
            for thread in self.threads.iter_mut().filter(|one| one.filters.is_none()) {
                if thread.status.seccomp != FILTERED {
                    continue;
                }
                match filters::of_thread(thread.number) {
                    Ok(found) => thread.filters = Some(shared(found, &mut known)),
                    Err(error) if is_end(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            let mut now = threads(&directory)?;
            if now.is_empty() {
                return Err(io::ErrorKind::NotFound.into());
            }
            self.threads.retain(|one| now.iter().any(|other| other.number == one.number));
            now.retain(|one| self.threads.iter().all(|other| other.number != one.number));
            let unread = |one: &Thread| one.filters.is_none() && one.status.seccomp == FILTERED;
            if now.is_empty() && !self.threads.iter().any(unread) {
                return Ok(());
            }
            self.threads.extend(now);
        }
        Err(io::Error::other("it starts threads faster than they are read"))
    }

    /// Returns whether the process that was read still runs under its number.
    fn still_runs(&self) -> bool {
        started(&Path::new("/proc").join(self.pid.to_string())).is_ok_and(|now| now == self.started)
    }

    /// Returns the policy that the process's arguments choose.
    pub fn policy(&self) -> Policy {
        policy_chosen_by(&self.arguments)
    }

    pub(crate) fn values_of<'a>(&'a self, flag: &'a str) -> impl Iterator<Item = &'a str> {
        let next = self.arguments.iter().skip(1).map(String::as_str).chain([""]);
        self.arguments.iter().zip(next).filter_map(move |(one, next)| {
            match one.strip_prefix(flag)? {
                "" => Some(next),
                value => value.strip_prefix('='),
            }
        })
    }
}

/// Reads the threads of the process with this directory in `/proc` that have not ended.
fn threads(directory: &Path) -> io::Result<Vec<Thread>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory.join("task"))? {
        let entry = entry?;
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        match read_status(&entry.path()) {
            Ok(status) if !status.ended => found.push(Thread { number, status, filters: None }),
            Ok(_) => {}
            Err(error) if is_end(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

pub(crate) fn read_status(directory: &Path) -> io::Result<Status> {
    Status::parse(&read_most(directory, "status", MOST)?.0).map_err(io::Error::other)
}

/// Reads at most so many bytes of a file, and returns whether it has more.
fn read_most(directory: &Path, name: &str, most: u64) -> io::Result<(Vec<u8>, bool)> {
    let mut found = Vec::new();
    File::open(directory.join(name))?.take(most + 1).read_to_end(&mut found)?;
    let is_cut = found.len() as u64 > most;
    Ok((found, is_cut))
}

/// Returns when the process with this directory in `/proc` was started.
fn started(directory: &Path) -> io::Result<u64> {
    let (text, _) = read_most(directory, "stat", MOST)?;
    parse_start(&text).ok_or_else(|| io::Error::other("its stat has no start time"))
}

/// Returns filters of which equal ones are one.
fn shared(found: Vec<Vec<u8>>, known: &mut Vec<Arc<[u8]>>) -> Vec<Arc<[u8]>> {
    let share = |program: Vec<u8>| match known.iter().find(|one| one[..] == program[..]) {
        Some(one) => Arc::clone(one),
        None => {
            let one: Arc<[u8]> = program.into();
            known.push(Arc::clone(&one));
            one
        }
    };
    found.into_iter().map(share).collect()
}

/// Returns the file name of the program of the thread with this directory in `/proc`, and whether
/// its file is gone.
fn program(directory: &Path) -> io::Result<(String, bool)> {
    Ok(program_name(&fs::read_link(directory.join("exe"))?.into_os_string().into_vec()))
}

/// Returns the file name of a process's program; `None` for a process that has none, like a thread
/// of the kernel.
pub(crate) fn program_of(pid: u32) -> io::Result<Option<String>> {
    let directory = Path::new("/proc").join(pid.to_string());
    match program(&directory) {
        Err(error) if is_end(&error) => {}
        other => return other.map(|(name, _)| Some(name)),
    }
    // The first thread may have ended before the others.
    let tasks = match fs::read_dir(directory.join("task")) {
        Err(error) if is_end(&error) => return Ok(None),
        tasks => tasks?,
    };
    for task in tasks.flatten() {
        if let Ok((name, _)) = program(&task.path()) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Returns the words of a file, and whether it has more of them than are read.
fn words(directory: &Path, name: &str) -> io::Result<(Vec<String>, bool)> {
    let (text, is_cut) = read_most(directory, name, MOST_ARGUMENTS)?;
    Ok((split_words(&text), is_cut))
}

/// Returns the policy that arguments of a process choose.
fn policy_chosen_by(arguments: &[String]) -> Policy {
    let mut policies = arguments.iter().filter_map(|one| Policy::chosen_by(one));
    policies.next().unwrap_or(PRODUCTION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_paths_are_found_in_arguments() {
        let arguments = ["agent", "--endpoint=unix:///run/csi.sock", "--http-endpoint", ":9808"];
        let process =
            Process { arguments: arguments.map(str::to_owned).to_vec(), ..Process::default() };
        let values = |flag| process.values_of(flag).collect::<Vec<_>>();
        assert_eq!(values("--endpoint"), ["unix:///run/csi.sock"]);
        assert_eq!(values("--http-endpoint"), [":9808"]);
        assert_eq!(values("--http"), [""; 0]);
    }

    #[test]
    fn own_process_is_read() {
        let process = Process::read(std::process::id()).unwrap();
        assert!(!process.program.is_empty() && !process.limits.is_empty());
        assert!(process.status.threads >= 1 && !process.is_replaced);
        assert_eq!(program_of(process.pid).unwrap(), Some(process.program));
        assert!(is_end(&Process::read(4_194_304).unwrap_err()));
    }

    #[test]
    fn thread_that_started_meanwhile_is_read() {
        let mut process = Process::read(std::process::id()).unwrap();
        let (said, number) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            said.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            let _ = wait.recv();
        });
        let number = u32::try_from(number.recv().unwrap()).unwrap();
        assert!(process.threads.iter().all(|one| one.number != number));
        process.read_filters();
        drop(end);
        thread.join().unwrap();
        assert!(process.threads.iter().any(|one| one.number == number), "{process:?}");
    }
}
