//! One process of the world: started, watched, killed, restarted.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::process::{Child, ChildStdout};

use super::state_dir;
use crate::process_table::{self, Identity};

type Make = Box<dyn Fn() -> io::Result<Command> + Send + Sync>;

/// A process that can be started repeatedly in the same way.
pub struct Process {
    name: String,
    state_dir: PathBuf,
    log: PathBuf,
    socket: PathBuf,
    make: Make,
    child: Option<Child>,
    identity: Option<Identity>,
    started: Option<Instant>,
}

impl Process {
    /// Prepares a process without starting it. A start removes the `socket` of an earlier run.
    pub(crate) fn new(
        name: &str,
        state_dir: &Path,
        socket: PathBuf,
        make: impl Fn() -> io::Result<Command> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.to_owned(),
            state_dir: state_dir.to_owned(),
            log: state_dir.join("log").join(format!("{name}.log")),
            socket,
            make: Box::new(make),
            child: None,
            identity: None,
            started: None,
        }
    }

    /// Returns the process's name in the world, for example `node-a/mount-helper`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the socket that the process serves.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the time of the last start.
    pub fn started(&self) -> Option<Instant> {
        self.started
    }

    /// Returns the process id while the process runs.
    pub fn pid(&self) -> Option<i32> {
        self.identity.filter(|identity| identity.alive()).map(|identity| identity.pid)
    }

    /// Returns the process ids of the process and its descendants, parents first.
    pub fn process_tree(&self) -> Vec<i32> {
        self.identities().into_iter().map(|identity| identity.pid).collect()
    }

    pub(crate) fn identities(&self) -> Vec<Identity> {
        process_table::process_tree(self.identity.as_slice())
    }

    /// Starts the process, with its output in the log.
    pub fn start(&mut self) -> io::Result<()> {
        self.spawn(false).map(drop)
    }

    pub(crate) fn start_with_piped_output(&mut self) -> io::Result<ChildStdout> {
        self.spawn(true)?.ok_or_else(|| io::Error::other("the child has no standard output"))
    }

    fn spawn(&mut self, piped: bool) -> io::Result<Option<ChildStdout>> {
        if let Some(directory) = self.log.parent() {
            std::fs::create_dir_all(directory)?;
        }
        match std::fs::remove_file(&self.socket) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut tries = 0;
        let mut child = loop {
            let mut command = (self.make)()?;
            command.stdin(Stdio::null()).stderr(log.try_clone()?);
            command.stdout(if piped { Stdio::piped() } else { Stdio::from(log.try_clone()?) });
            self.started = Some(Instant::now());
            match tokio::process::Command::from(command).spawn() {
                Ok(child) => break child,
                // The program was just copied, and a child that another thread is starting still
                // holds the copy open.
                Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy && tries < 100 => {
                    tries += 1;
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(e) => {
                    let what = format!("starting {}: {e}", self.name);
                    return Err(io::Error::new(e.kind(), what));
                }
            }
        };
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        self.identity = pid.and_then(Identity::of);
        if let Some(identity) = self.identity {
            state_dir::record(&self.state_dir, &self.name.replace('/', "."), identity)?;
        }
        let stdout = child.stdout.take();
        self.child = Some(child);
        Ok(stdout)
    }

    /// Returns the exit status, once the process has ended.
    pub fn ended(&mut self) -> io::Result<Option<std::process::ExitStatus>> {
        match &mut self.child {
            Some(child) => child.try_wait(),
            None => Ok(None),
        }
    }

    /// Sends SIGKILL to this process only and waits for its end. The descendants must notice the
    /// end themselves.
    pub async fn kill(&mut self) -> io::Result<()> {
        if let Some(identity) = self.identity {
            identity.signal(Signal::KILL)?;
        }
        self.reap().await
    }

    /// Sends SIGKILL to the process and all its descendants.
    pub async fn kill_tree(&mut self) -> io::Result<()> {
        for identity in self.identities() {
            identity.signal(Signal::KILL)?;
        }
        self.reap().await
    }

    /// Sends SIGTERM to the process and waits at most `grace`, then sends SIGKILL to what is left
    /// of the process and its descendants.
    ///
    /// Returns whether all of them ended without SIGKILL.
    pub async fn stop(&mut self, grace: Duration) -> io::Result<bool> {
        let Some(identity) = self.identity else {
            return Ok(true);
        };
        let tree = self.identities();
        identity.signal(Signal::TERM)?;
        let in_time = tokio::time::timeout(grace, self.reap()).await.is_ok();
        let mut clean = in_time;
        for member in tree {
            if member.alive() {
                clean = false;
                member.signal(Signal::KILL)?;
            }
        }
        if !in_time {
            self.reap().await?;
        }
        Ok(clean)
    }

    async fn reap(&mut self) -> io::Result<()> {
        if let Some(child) = &mut self.child {
            child.wait().await?;
        }
        Ok(())
    }

    /// Returns the last `lines` lines of the log.
    pub fn log_tail(&self, lines: usize) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let all: Vec<&str> = text.lines().collect();
        all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
    }
}
