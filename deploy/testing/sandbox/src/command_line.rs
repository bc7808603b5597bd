//! What the programs of the sandbox and of the bench do with a command line that cannot be parsed.

use std::process::ExitCode;

use clap::Parser;

/// sysexits.h EX_USAGE.
const EX_USAGE: u8 = 64;

/// Parses the command line. Prints help and version, and one line about a mistake, and returns the
/// exit status then.
pub fn parse<C: Parser>(program: &str) -> Result<C, ExitCode> {
    C::try_parse().map_err(|error| {
        let text = error.to_string();
        if error.use_stderr() {
            return fail(program, EX_USAGE, text.lines().next().unwrap_or("bad usage"));
        }
        print!("{text}");
        ExitCode::SUCCESS
    })
}

/// Prints why the program fails and returns its exit status.
#[expect(clippy::print_stderr, reason = "the one place that writes to standard error")]
pub fn fail(program: &str, status: u8, text: &str) -> ExitCode {
    eprintln!("{program}: {text}");
    ExitCode::from(status)
}
