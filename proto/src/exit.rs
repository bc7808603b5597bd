//! The end of a program: a line on standard error and an exit status (sysexits.h).

use std::io::Write as _;
use std::panic::UnwindSafe;
use std::process::ExitCode;

/// EX_SOFTWARE: a fault of the program itself.
const FAULT: u8 = 70;

/// Why a program ends without having done its work.
#[derive(Debug)]
pub struct Exit {
    status: u8,
    line: String,
}

impl Exit {
    /// Creates the reason, with the exit status and the line to print.
    pub fn new(status: u8, line: impl ToString) -> Self {
        Self { status, line: line.to_string() }
    }
}

/// Calls `main` and returns the program's exit status. Prints why `main` failed, on one line that
/// begins with the program's name. A panic, which the panic hook has printed already, has a status
/// of its own.
pub fn run_main(
    program: &str,
    main: impl FnOnce() -> Result<ExitCode, Exit> + UnwindSafe,
) -> ExitCode {
    let fault = || Exit::new(FAULT, "a fault of the driver; please report it");
    match std::panic::catch_unwind(main).unwrap_or_else(|_| Err(fault())) {
        Ok(status) => status,
        Err(exit) => {
            // Without a standard error there is nowhere to report to.
            let _ = writeln!(std::io::stderr(), "{program}: {}", exit.line);
            ExitCode::from(exit.status)
        }
    }
}
