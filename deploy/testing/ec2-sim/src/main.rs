//! Simulates EC2, STS and instance metadata on loopback.

use clap::Parser as _;
use clap::error::ErrorKind;
use ec2_sim::{Command, EX_USAGE};
use std::io::Write as _;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let command = match Command::try_parse() {
        Ok(command) => command,
        Err(e) if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            let _ = write!(std::io::stdout(), "{e}");
            return ExitCode::SUCCESS;
        }
        Err(e) => {
            let text = e.to_string();
            let line = text.lines().next().unwrap_or("bad usage");
            return print_error(line.trim_start_matches("error: "), EX_USAGE);
        }
    };
    let Ok(filter) = EnvFilter::try_new(&command.log_level) else {
        return print_error(
            &format!("--log-level {:?} is not a filter, as info", command.log_level),
            EX_USAGE,
        );
    };
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => print_error(&failed.why, failed.code),
    }
}

fn print_error(line: &str, code: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "ec2-sim: {line}");
    ExitCode::from(code)
}
