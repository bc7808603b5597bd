//! Runs cases one after the other in the main thread, and reports as cargo's harness does.

use std::error::Error;
use std::process::ExitCode;

pub(crate) type TestResult = Result<(), Box<dyn Error>>;

/// Runs the cases whose names have a word of the command line, or all where it has none.
pub(crate) fn run<N: AsRef<str>, C: FnOnce() -> TestResult>(
    cases: impl IntoIterator<Item = (N, C)>,
) -> ExitCode {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return ExitCode::SUCCESS;
    }
    let words: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let mut failed = false;
    for (name, case) in cases {
        let name = name.as_ref();
        if !words.is_empty() && !words.iter().any(|word| name.contains(word)) {
            continue;
        }
        let outcome = case();
        println!("test {name} ... {}", if outcome.is_ok() { "ok" } else { "FAILED" });
        if let Err(problem) = outcome {
            println!("    {problem}");
            failed = true;
        }
    }
    ExitCode::from(u8::from(failed))
}
