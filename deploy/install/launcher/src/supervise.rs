//! Runs a set of processes as one: forwards signals to all, and ends all when one ends.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use tokio::signal::unix::{SignalKind, signal};

/// A process that was started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Running {
    /// The process's name in the log.
    pub(crate) name: String,
    pub(crate) pid: Pid,
}

/// Writes `NAME:PID`, the form in which one image of the launcher passes it to the next.
impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.pid.as_raw_nonzero())
    }
}

impl FromStr for Running {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (name, pid) = text.split_once(':').ok_or(())?;
        let pid = pid.parse().ok().filter(|pid| *pid > 1).ok_or(())?;
        Ok(Self { name: name.to_owned(), pid: Pid::from_raw(pid).ok_or(())? })
    }
}

/// Waits until a signal asks to end or a process ends. Then ends the other processes and sends
/// SIGKILL after at most `grace`.
///
/// Returns the exit code: 0 only if a signal asked and all processes ended with 0.
pub(crate) async fn supervise(mut running: Vec<Running>, grace: Duration) -> io::Result<u8> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tracing::info!("SIGTERM and SIGINT are passed on");
    let mut code = 0;
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: ending all processes"),
        _ = interrupt.recv() => tracing::info!("SIGINT: ending all processes"),
        ended = wait_for_exit(&mut running) => {
            let (name, status) = ended?;
            tracing::error!(process = name, status = describe_exit(status), "a process ended; ending the others");
            code = exit_code_of(status);
        }
    }
    end_all(running, grace, code).await
}

/// Ends the running processes and sends SIGKILL after at most `grace`. Returns `code`, or the
/// failure of one of the processes when `code` is 0.
pub(crate) async fn end_all(
    mut running: Vec<Running>,
    grace: Duration,
    mut code: u8,
) -> io::Result<u8> {
    signal_all(&running, Signal::TERM);
    let all_ended = async {
        while !running.is_empty() {
            let (name, status) = wait_for_exit(&mut running).await?;
            if status.exit_status() != Some(0) {
                tracing::warn!(process = name, status = describe_exit(status), "ended");
                if code == 0 {
                    code = exit_code_of(status);
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
    signal_all(&running, Signal::KILL);
    Ok(if code == 0 { 1 } else { code })
}

/// Returns the exit code for a process that should not have ended; never 0.
fn exit_code_of(status: WaitStatus) -> u8 {
    status
        .exit_status()
        .and_then(|code| u8::try_from(code).ok())
        .filter(|code| *code != 0)
        .unwrap_or(1)
}

fn describe_exit(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown".to_owned(),
    }
}

fn signal_all(running: &[Running], signal: Signal) {
    for process in running {
        if let Err(e) = kill_process(process.pid, signal) {
            // The process belongs to another user and CAP_KILL is missing: it ends with the
            // container.
            tracing::warn!(process = process.name, "cannot signal it: {e}");
        }
    }
}

/// Waits until one of the processes ends, and removes it from `running`.
async fn wait_for_exit(running: &mut Vec<Running>) -> io::Result<(String, WaitStatus)> {
    loop {
        // As process 1 of a container, this process also reaps orphans.
        while let Some((pid, status)) = wait(WaitOptions::NOHANG)? {
            if let Some(index) = running.iter().position(|process| process.pid == pid) {
                return Ok((running.swap_remove(index).name, status));
            }
        }
        // Children rarely end, and nobody waits for the result, so polling is enough.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_argument_parses_only_as_name_and_pid() {
        let agent: Running = "node-agent:4711".parse().unwrap();
        assert_eq!((&*agent.name, &*agent.to_string()), ("node-agent", "node-agent:4711"));
        for invalid in ["", "agent", "agent:", "agent:0", "agent:1", "agent:-1", "a:b"] {
            assert!(invalid.parse::<Running>().is_err(), "{invalid}");
        }
    }
}
