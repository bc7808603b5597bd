//! Runs a set of processes as one: signals go to all, the end of one ends all.

use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};

/// A process that was started.
#[derive(Debug)]
pub struct Running {
    /// Its name in the log.
    pub name: &'static str,
    /// The process.
    pub child: Child,
}

/// The path of a program of the driver: beside this one.
///
/// # Errors
/// When this program has no path.
pub fn sibling(name: &str) -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own
        .parent()
        .map_or_else(|| PathBuf::from(name), |directory| directory.join(name)))
}

/// The variables that a process other than the controller may inherit. Credentials, and what names them, are the controller's alone.
pub const FOR_ALL: &[&str] = &["PATH", "RUST_LOG", "RUST_BACKTRACE", "LLVM_PROFILE_FILE"];

/// What the node-agent reads besides: the node's name, and where instance metadata is.
pub const FOR_NODE_AGENT: &[&str] = &[
    "CSI_NODE_NAME",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE",
];

/// Which variables a process inherits.
#[derive(Clone, Copy, Debug)]
pub enum Environment {
    /// Every one: for the controller, whose SDK reads many.
    Whole,
    /// [`FOR_ALL`] and these.
    Only(&'static [&'static str]),
}

/// Starts `name` from beside this program.
///
/// # Errors
/// When it cannot be run; the text names it.
pub fn start(
    name: &'static str,
    program: &str,
    arguments: &[String],
    environment: Environment,
) -> io::Result<Running> {
    let path = sibling(program)?;
    let mut command = Command::new(&path);
    command.args(arguments);
    if let Environment::Only(further) = environment {
        command.env_clear();
        for variable in FOR_ALL.iter().chain(further) {
            if let Some(value) = std::env::var_os(variable) {
                command.env(variable, value);
            }
        }
    }
    let child = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| io::Error::new(e.kind(), format!("starting {}: {e}", path.display())))?;
    tracing::info!(process = name, pid = child.id(), "started");
    Ok(Running { name, child })
}

/// Waits until a signal asks to end or a process ends; then ends the others, with at most `grace` before SIGKILL.
///
/// Answers the exit code: 0 only if a signal asked and all ended with 0.
///
/// # Errors
/// When signals or processes cannot be waited for.
pub async fn supervise(mut running: Vec<Running>, grace: Duration) -> io::Result<u8> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut code = 0;
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: ending all processes"),
        _ = interrupt.recv() => tracing::info!("SIGINT: ending all processes"),
        ended = first_end(&mut running) => {
            let (name, status) = ended?;
            tracing::error!(process = name, %status, "a process ended; ending the others");
            running.retain(|process| process.name != name);
            code = failure(status);
        }
    }
    send(&running, Signal::TERM);
    let all_ended = async {
        while !running.is_empty() {
            let (name, status) = first_end(&mut running).await?;
            running.retain(|process| process.name != name);
            if !status.success() {
                tracing::warn!(process = name, %status, "ended");
                if code == 0 {
                    code = failure(status);
                }
            }
        }
        Ok::<_, io::Error>(())
    };
    if let Ok(ended) = tokio::time::timeout(grace, all_ended).await {
        ended?;
        return Ok(code);
    }
    tracing::error!("processes were still running after the grace period");
    send(&running, Signal::KILL);
    Ok(if code == 0 { 1 } else { code })
}

/// The code of a process that ended when it should not have.
fn failure(status: ExitStatus) -> u8 {
    status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .filter(|code| *code != 0)
        .unwrap_or(1)
}

fn send(running: &[Running], signal: Signal) {
    for process in running {
        let pid = process
            .child
            .id()
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(Pid::from_raw);
        if let Some(pid) = pid
            && let Err(e) = kill_process(pid, signal)
        {
            // Another user's process, and no CAP_KILL: it ends with the container.
            tracing::warn!(process = process.name, "cannot signal it: {e}");
        }
    }
}

async fn first_end(running: &mut [Running]) -> io::Result<(&'static str, ExitStatus)> {
    loop {
        for process in running.iter_mut() {
            if let Some(status) = process.child.try_wait()? {
                return Ok((process.name, status));
            }
        }
        // A child's end is rare and nobody waits for its notice.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
