//! The command line.

use crate::devices::{self, DeviceMode};
use crate::scenario::Scenario;
use crate::server::{ServeError, Server, ServerOptions};
use crate::sim::SimError;
use clap::{Parser, Subcommand};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};

/// Simulates EC2, STS and instance metadata on loopback.
#[derive(Debug, Parser)]
#[command(name = "ec2-sim", version)]
pub struct Command {
    #[command(subcommand)]
    verb: Verb,
    /// The log filter, such as `info` or `ec2_sim=debug`.
    #[arg(long, global = true, default_value = "info")]
    pub log_level: String,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Serve until SIGTERM or SIGINT. Prints one line of JSON when ready.
    Serve {
        /// The directory of the state, the images and the device directories. Created if absent.
        #[arg(long)]
        state_dir: PathBuf,
        /// The initial scenario: TOML, or JSON if the name ends in .json.
        #[arg(long)]
        scenario: Option<PathBuf>,
        /// How an attached volume appears.
        #[arg(long, value_enum, default_value = "none")]
        devices: DeviceMode,
        /// The address of EC2 and STS; loopback only.
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
    },
    /// Clear the loop devices that a state directory records, and remove what the simulator created
    /// there.
    Clean {
        /// The state directory.
        #[arg(long)]
        state_dir: PathBuf,
    },
}

/// Exit code for wrong usage.
pub const EX_USAGE: u8 = 64;
const EX_CONFIG: u8 = 78;

#[derive(Debug)]
pub struct Failed {
    /// The reason: one line for stderr.
    pub why: String,
    pub code: u8,
}

fn failed(code: u8, why: impl std::fmt::Display) -> Failed {
    Failed { why: why.to_string(), code }
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// Returns the exit code: 64 for wrong usage, 78 for a wrong scenario, 1 for everything else.
    pub fn run(self) -> Result<(), Failed> {
        match self.verb {
            Verb::Serve { state_dir, scenario, devices, listen } => {
                let scenario = match scenario {
                    Some(path) => Scenario::load(&path).map_err(|e| failed(EX_CONFIG, e))?,
                    None => Scenario::default(),
                };
                let options = ServerOptions { state_dir, scenario, devices, listen };
                tokio::runtime::Builder::new_multi_thread()
                    .enable_all()
                    .build()
                    .map_err(|e| failed(1, e))?
                    .block_on(serve_until_signal(options))
            }
            Verb::Clean { state_dir } => {
                let done = devices::clean(&state_dir)
                    .map_err(|e| failed(1, format!("{}: {e}", state_dir.display())))?;
                let _ = writeln!(std::io::stdout(), "{}", serde_json::json!(done));
                if done.held.is_empty() {
                    return Ok(());
                }
                let held = done.held.join(", ");
                let why = format!("still in use: {held}; unmount or close them, and they are gone");
                Err(failed(1, why))
            }
        }
    }
}

async fn serve_until_signal(options: ServerOptions) -> Result<(), Failed> {
    let mut terminate = signal(SignalKind::terminate()).map_err(|e| failed(1, e))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|e| failed(1, e))?;
    let server = Server::start(options).await.map_err(|e| {
        let code = match &e {
            ServeError::Sim(SimError::Scenario(_)) => EX_CONFIG,
            ServeError::NotLoopback(_) => EX_USAGE,
            _ => 1,
        };
        failed(code, e)
    })?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", server.ready())
        .and_then(|()| out.flush())
        .map_err(|e| failed(1, format!("stdout: {e}")))?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    server.shutdown();
    Ok(())
}
