//! `ebs-csi-bench`: node, controller, failover, all, report.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use ebs_csi_bench::delay::{self, Latency};
use ebs_csi_bench::error::BenchError;
use ebs_csi_bench::extent::{Extent, Wanted, chosen};
use ebs_csi_bench::report::figure::{Figure, Role, with_unit};
use ebs_csi_bench::report::page;
use ebs_csi_bench::report::results::Results;
use ebs_csi_bench::{controller, echo, failover, node};
use ebs_csi_sandbox::binaries::Binaries;
use ebs_csi_sandbox::command_line;

const PROGRAM: &str = "ebs-csi-bench";

/// Measures the driver beside its bounds, on simulated EC2 and real loop devices.
#[derive(Debug, Parser)]
#[command(name = "ebs-csi-bench", version, about)]
struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Stage, publish and their reverse, memory, many at once, growth. Needs root.
    Node {
        #[command(flatten)]
        run: Run,
        /// On disks that answer each request after this time, such as 0.5ms or 1ms: stage, publish
        /// and their reverse, restore, expansion.
        #[arg(long, value_name = "TIME")]
        latency: Option<Latency>,
    },
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

#[derive(Args, Clone, Debug)]
struct Run {
    /// Tiny numbers, to see that the harness works. The figures mean nothing.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Also what takes hours: 5,000 volumes at EC2's own rates, a million calls, 100,000 cycles.
    #[arg(long)]
    full: bool,
    /// Only these figures, by the name of their measurement (not with `all`, whose parts have
    /// different ones).
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<String>,
    /// Another driver's program, measured in turns with this one: its controller
    /// (`PATH controller --endpoint=…`), its node service (`PATH node --endpoint=…`).
    #[arg(long, value_name = "PATH", env = "PEER_BIN")]
    peer_bin: Option<PathBuf>,
    /// Directory for the results with all samples.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Also keep the results, without samples, in this directory.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
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
        What::Node { run, latency } => in_runtime(measure(run, latency, &["node"])),
        What::Controller(run) => in_runtime(measure(run, None, &["controller"])),
        What::Failover(run) => in_runtime(measure(run, None, &["failover"])),
        What::All(run) => in_runtime(measure(run, None, &["node", "controller", "failover"])),
        What::Report(report) => {
            page::write(&report.results, &report.page).map_err(BenchError::from)
        }
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

fn in_runtime(work: impl Future<Output = Result<(), BenchError>>) -> Result<(), BenchError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

async fn measure(run: Run, latency: Option<Latency>, parts: &[&str]) -> Result<(), BenchError> {
    let extent = match (run.quick, run.full) {
        (true, _) => Extent::Quick,
        (_, true) => Extent::Full,
        _ => Extent::Usual,
    };
    let binaries = Binaries::of_this_build()?;
    let wanted = Wanted { only: run.only, peer: run.peer_bin, latency, extent };
    for part in parts {
        let mut options = extent.option().to_owned();
        if *part == "controller" {
            options.push_str(&wanted.peer_option());
        }
        if let Some(latency) = latency {
            options.push_str(&format!(" --latency {latency}"));
        }
        let mut results =
            Results::begin(part, format!("./deploy/testing/bench/run {part}{options}"));
        let file = format!("{part}.json");
        let out = run.out.join(&file);
        let measurements = match *part {
            "node" if latency.is_some() => node::OF_LATENCY,
            "node" => node::MEASUREMENTS,
            "failover" => failover::MEASUREMENTS,
            _ => controller::MEASUREMENTS,
        };
        for name in chosen(&wanted.only, measurements)? {
            println!("{part}: {name}");
            let mut figures = match *part {
                "node" => node::measure(&binaries, &wanted, name).await?,
                "failover" => failover::measure(&binaries, extent, name).await?,
                _ => controller::measure(&binaries, &wanted, name).await?,
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
        text.push_str(&format!(
            "  {} {}: {}\n",
            if verdict.met { "met   " } else { "MISSED" },
            verdict.target,
            with_unit(verdict.measured, &figure.unit)
        ));
    }
    text
}
