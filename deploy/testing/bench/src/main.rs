//! `ebs-csi-bench`: measures the driver side by side with its lower bound, and with another
//! driver's programs where they are given. The bench is the driver's CSI caller, and the EC2
//! simulator stands in for EC2.

mod api_server;
mod contestant;
mod controller;
mod delay;
mod echo;
mod error;
mod extent;
mod failover;
mod memory_limit;
mod node;
mod process_usage;
mod report;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use delay::Latency;
use ebs_csi_sandbox::binaries::Binaries;
use ebs_csi_sandbox::command_line;
use error::{BenchError, Result};
use extent::Run;
use report::figure::{Figure, Role, with_unit};
use report::page;
use report::results::Results;

const PROGRAM: &str = "ebs-csi-bench";

/// Measures the driver beside its bounds, on simulated EC2 and real loop devices.
#[derive(Debug, Parser)]
#[command(name = PROGRAM, version, about)]
struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Stage, publish and their reverse, memory, many at once, growth. Needs root.
    Node(Run),
    /// Attempts, makespan, latency, throughput, fairness, processor time, memory, start. Needs
    /// root.
    Controller(Run),
    /// node-lifecycle and the evidence at 5,000 nodes: memory, EC2 calls, time from evidence to
    /// act, churn. Needs root.
    Failover(Run),
    /// All of them.
    All(Run),
    /// Write the page and its pictures from the kept results.
    Report(Report),
    /// Answer the controller's calls with nothing behind them (the bound of throughput; started by
    /// `controller`).
    #[command(hide = true)]
    Echo {
        /// Socket to serve, `unix://PATH`.
        #[arg(long)]
        endpoint: String,
    },
    /// Answer reads, writes and flushes of a file late, until standard input ends (started by
    /// `node --latency`).
    #[command(hide = true)]
    ServeDelayed {
        #[arg(long)]
        latency: Latency,
        file: PathBuf,
    },
}

#[derive(Args, Debug)]
struct Report {
    /// Directory of kept results.
    #[arg(long, value_name = "DIR")]
    results: PathBuf,
    /// The page; its pictures go to a directory of its name beside it.
    #[arg(long, value_name = "FILE")]
    page: PathBuf,
}

fn main() -> ExitCode {
    let command: Command = match command_line::parse(PROGRAM) {
        Ok(command) => command,
        Err(status) => return status,
    };
    let done = match command.what {
        What::Node(run) => measure(&run, &["node"]),
        What::Controller(run) => measure(&run, &["controller"]),
        What::Failover(run) => measure(&run, &["failover"]),
        What::All(run) => measure(&run, &["node", "controller", "failover"]),
        What::Report(report) => page::write(&report.results, &report.page),
        What::Echo { endpoint } => echo::serve(&endpoint),
        What::ServeDelayed { latency, file } => {
            delay::server::serve(&file, latency).map_err(BenchError::from)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => command_line::fail(PROGRAM, 1, &e.to_string()),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn measure(run: &Run, parts: &[&str]) -> Result<()> {
    let binaries = Binaries::of_this_build()?;
    for part in parts {
        let options = run.options(part);
        let mut results =
            Results::begin(part, format!("./deploy/testing/bench/run {part}{options}"));
        let file = format!("{part}.json");
        let out = run.out.join(&file);
        let measurements = match *part {
            "node" if run.latency.is_some() => node::OF_LATENCY,
            "node" => node::MEASUREMENTS,
            "failover" => failover::MEASUREMENTS,
            _ => controller::MEASUREMENTS,
        };
        for name in run.chosen(measurements)? {
            println!("{part}: {name}");
            let mut figures = match *part {
                "node" => node::measure(&binaries, run, name).await?,
                "failover" => failover::measure(&binaries, run.extent(), name).await?,
                _ => controller::measure(&binaries, run, name).await?,
            };
            for figure in &mut figures {
                figure.command =
                    format!("./deploy/testing/bench/run {part} --only {name}{options}");
                println!("{}", table(figure));
            }
            results.figures.extend(figures);
            results.write(&out)?;
            let Some(keep) = run.keep.as_ref().map(|keep| keep.join(&file)) else { continue };
            let mut kept = results.clone();
            if keep.exists() {
                kept.keep_from(Results::read(&keep)?);
            }
            kept.for_keeping().write(&keep)?;
        }
        println!("all samples: {}", out.display());
    }
    Ok(())
}

fn table(figure: &Figure) -> String {
    let mut text = format!("\n{} [{}]\n", figure.title, figure.unit);
    for row in &figure.rows {
        let s = &row.summary;
        let role = match row.role {
            Role::Ours => "*",
            Role::Bound => "|",
            Role::Peer => "~",
            Role::Part => " ",
        };
        text.push_str(&format!(
            "{role} {:<64} median {:>10.3}  quartiles {:>9.3}..{:<9.3} p99 {:>10.3}  n {}\n",
            row.label, s.median, s.lower, s.upper, s.p99, s.count
        ));
    }
    for verdict in figure.verdicts() {
        let word = if verdict.met { "met   " } else { "MISSED" };
        let measured = with_unit(verdict.measured, &figure.unit);
        text.push_str(&format!("  {word} {}: {measured}\n", verdict.target));
    }
    text
}
