//! `ebs-csi-sandbox`: demo, up, clean.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use ebs_csi_sandbox::binaries::Binaries;
use ebs_csi_sandbox::world::{clean, keeper};
use ebs_csi_sandbox::{World, WorldOptions, command_line, demo};
use tokio::signal::unix::{SignalKind, signal};

const PROGRAM: &str = "ebs-csi-sandbox";

/// A world for the driver on this machine: EC2 simulator, controller, two nodes, real block
/// devices.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show the whole life cycle of a volume, verify each step, and end without a trace.
    Demo(Programs),
    /// Keep the world running until interrupted; prints the sockets' paths.
    Up(Programs),
    /// Remove what dead worlds left behind.
    Clean {
        /// State directory; without it, every state directory whose world is dead.
        state_dir: Option<PathBuf>,
    },
    /// Wait for the end of standard input, then clean a state directory (started by the others).
    #[command(name = keeper::COMMAND, hide = true)]
    Keep {
        /// State directory.
        state_dir: PathBuf,
    },
}

#[derive(Args, Debug)]
struct Programs {
    /// Directory of the driver's programs when it is not this program's own, for example of a
    /// release build.
    #[arg(long, value_name = "DIR")]
    driver_dir: Option<PathBuf>,
}

fn main() -> ExitCode {
    let command: Command = match command_line::parse(PROGRAM) {
        Ok(command) => command,
        Err(status) => return status,
    };
    run(command.what).unwrap_or_else(|why| command_line::fail(PROGRAM, 1, &why))
}

fn run(what: What) -> Result<ExitCode, String> {
    let binaries = Binaries::of_this_build().map_err(|e| e.to_string())?;
    match what {
        What::Keep { state_dir } => keeper::run(&state_dir, &binaries)
            .map_err(|e| format!("cleaning {}: {e}", state_dir.display()))?,
        What::Clean { state_dir } => return Ok(clean_up(state_dir, &binaries)),
        What::Demo(programs) => demo(options(programs, binaries))?,
        What::Up(programs) => up(options(programs, binaries))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn options(programs: Programs, binaries: Binaries) -> WorldOptions {
    let mut options = WorldOptions::new(binaries);
    options.driver = programs.driver_dir.map(Binaries::at);
    options
}

fn clean_up(state_dir: Option<PathBuf>, binaries: &Binaries) -> ExitCode {
    let directories =
        state_dir.map_or_else(clean::abandoned_state_dirs, |directory| vec![directory]);
    let mut code = ExitCode::SUCCESS;
    for directory in directories {
        let cleaned = clean::clean(&directory, binaries);
        println!("{}: {cleaned}", directory.display());
        if !cleaned.problems.is_empty() {
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// Resolves at SIGINT, SIGTERM or SIGHUP.
async fn interrupted() -> Result<&'static str, String> {
    let fail = |e: std::io::Error| format!("waiting for signals: {e}");
    let mut interrupt = signal(SignalKind::interrupt()).map_err(fail)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(fail)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(fail)?;
    Ok(tokio::select! {
        _ = interrupt.recv() => "SIGINT",
        _ = terminate.recv() => "SIGTERM",
        _ = hangup.recv() => "SIGHUP",
    })
}

/// Starts a world, unless a signal comes first.
async fn start(
    options: WorldOptions,
    stop: impl Future<Output = Result<&'static str, String>>,
) -> Result<World, String> {
    tokio::select! {
        world = World::start(options) => world.map_err(|e| e.to_string()),
        signal = stop => Err(format!("{} before the world was up", signal?)),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn demo(mut options: WorldOptions) -> Result<(), String> {
    options.scenario = demo::SCENARIO.to_owned();
    let mut stop = Box::pin(interrupted());
    let mut world = start(options, &mut stop).await?;
    let shown = tokio::select! {
        shown = demo::run(&mut world) => shown.map_err(|e| e.to_string()),
        signal = &mut stop => Err(format!("ended by {}", signal?)),
    };
    if let Err(why) = &shown {
        println!("\nNOT SHOWN: {why}");
        for (process, log) in world.logs(15) {
            println!("-- end of the log of {process}\n{log}");
        }
    }
    let ended = world.shutdown().await.map_err(|e| e.to_string())?;
    let mut left = ended.leftovers;
    left.extend(ended.cleaned.problems);
    if shown.is_ok() {
        left.extend(ended.killed.iter().map(|name| format!("{name} did not end by SIGTERM")));
    }
    if !left.is_empty() {
        return Err(format!("not ended clean: {}", left.join("; ")));
    }
    println!("ended: no process, mount, loop device or file left");
    shown
}

#[tokio::main(flavor = "current_thread")]
async fn up(mut options: WorldOptions) -> Result<(), String> {
    // csi-sanity and people choose their own paths beneath the kubelet directory.
    options.helper_arguments = vec!["--paths=any".to_owned()];
    // csi-sanity requests no zone.
    options.one_zone = true;
    let mut stop = Box::pin(interrupted());
    let mut world = start(options, &mut stop).await?;
    println!("simulator   {}", world.simulator.ec2());
    println!("control     {}", world.simulator.process().socket().display());
    println!("controller  unix://{}", world.controller_socket().display());
    for node in &world.nodes {
        println!("{:<11} unix://{}", node.name, node.csi_socket.display());
        println!("  instance  {}", node.instance);
        println!("  kubelet   {}", node.kubelet_root.display());
    }
    println!("logs        {}", world.state_dir().join("log").display());
    println!("ctrl-c ends it");
    let mut ended = loop {
        tokio::select! {
            signal = &mut stop => {
                signal?;
                break world.shutdown().await.map_err(|e| e.to_string())?;
            }
            () = tokio::time::sleep(std::time::Duration::from_millis(500)) => {
                for name in world.restart_ended().await.map_err(|e| e.to_string())? {
                    println!("{name} had ended and was started again");
                }
            }
        }
    };
    ended.leftovers.append(&mut ended.cleaned.problems);
    match ended.leftovers.is_empty() {
        true => Ok(()),
        false => Err(format!("left behind: {}", ended.leftovers.join("; "))),
    }
}
