//! What the `main` of every program does the same way: parse flags, start the runtime, and end with
//! one line on standard error and an exit status (sysexits.h).
//!
//! A `main` reads its settings, binds its sockets, confines itself, serves and drains, in this
//! order. All but the last two run on one thread, because a process confines itself before it
//! starts its first thread.

use std::ffi::OsString;
use std::fmt::{self, Display};
use std::future::Future;
use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::panic::UnwindSafe;
use std::process::ExitCode;

use clap::{Args, Parser};

use crate::Endpoint;
use crate::endpoint::Listener;

/// EX_USAGE: the command line is wrong.
const USAGE: u8 = 64;
/// EX_SOFTWARE: a fault of the program itself.
const FAULT: u8 = 70;
/// EX_NOPERM: the process could not be confined.
const NOT_CONFINED: u8 = 77;
/// EX_CONFIG: a setting cannot be used.
const CONFIGURATION: u8 = 78;

/// Why a program ends before it has served, or without having done its work.
#[derive(Debug, PartialEq, Eq)]
pub enum Exit {
    /// This text goes to standard output, and the status is 0: help or version.
    Print(String),
    /// This line goes to standard error.
    Failure {
        /// The exit status.
        status: u8,
        /// What went wrong, in one line.
        line: String,
    },
    /// The status alone: the log or the output has said why.
    Status(u8),
}

impl Exit {
    /// Creates a failure with an exit status and the line to print.
    pub fn new(status: u8, line: impl ToString) -> Self {
        Self::Failure { status, line: line.to_string() }
    }

    /// Creates the failure of a command line: status 64.
    pub fn usage(line: impl Display) -> Self {
        Self::new(USAGE, format_args!("{line}; see --help"))
    }

    /// Creates the failure of a setting that cannot be used: status 78.
    pub fn setting(line: impl ToString) -> Self {
        Self::new(CONFIGURATION, line)
    }

    /// Creates the failure of the confinement: status 77.
    pub fn not_confined(fault: impl ToString) -> Self {
        Self::new(NOT_CONFINED, fault)
    }

    /// Creates any other failure: status 1.
    pub fn failed(line: impl ToString) -> Self {
        Self::new(1, line)
    }
}

impl Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Print(text) | Self::Failure { line: text, .. } => f.write_str(text),
            Self::Status(status) => write!(f, "status {status}"),
        }
    }
}

impl std::error::Error for Exit {}

impl From<std::io::Error> for Exit {
    fn from(error: std::io::Error) -> Self {
        Self::failed(error)
    }
}

impl From<clap::Error> for Exit {
    /// Keeps help and version whole, and shortens an error to its first line.
    fn from(error: clap::Error) -> Self {
        let text = error.to_string();
        if !error.use_stderr() {
            return Self::Print(text);
        }
        let line = text.lines().next().unwrap_or("bad command line");
        Self::usage(line.trim_start_matches("error: "))
    }
}

/// Calls `main` and returns the program's exit status. Prints why `main` ended early. A panic,
/// which the panic hook has printed already, has a status of its own.
pub fn run(program: &str, main: impl FnOnce() -> Result<(), Exit> + UnwindSafe) -> ExitCode {
    let fault = || Exit::new(FAULT, "a fault of the driver; please report it");
    let status = match std::panic::catch_unwind(main).unwrap_or_else(|_| Err(fault())) {
        Ok(()) => 0,
        Err(Exit::Status(status)) => status,
        Err(Exit::Print(text)) => u8::from(print(&text).is_err()),
        Err(Exit::Failure { status, line }) => {
            // Without a standard error there is nowhere to report to.
            let _ = writeln!(std::io::stderr(), "{program}: {line}");
            status
        }
    };
    ExitCode::from(status)
}

/// Writes to standard output.
///
/// # Errors
/// [`Exit`] with the kernel's error.
pub fn print(text: &str) -> Result<(), Exit> {
    std::io::stdout().write_all(text.as_bytes()).map_err(Exit::failed)
}

/// Parses the arguments that follow the program's name.
///
/// # Errors
/// [`Exit`] with the help, the version or the first line of what is wrong.
pub fn parse<F: Parser>(arguments: impl IntoIterator<Item = OsString>) -> Result<F, Exit> {
    let name = F::command().get_name().to_owned();
    Ok(F::try_parse_from(std::iter::once(name.into()).chain(arguments))?)
}

/// Runs a future to its end on a runtime of this thread alone. Tasks that remain are dropped: they
/// belong to calls whose grace period has ended, and their callers retry.
///
/// # Errors
/// [`Exit`] of the future, or that the runtime cannot be started.
pub fn block_on<T>(future: impl Future<Output = Result<T, Exit>>) -> Result<T, Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Exit::failed(format_args!("starting the runtime: {error}")))?;
    let ended = runtime.block_on(future);
    runtime.shutdown_background();
    ended
}

/// Binds the endpoint that a flag gives.
///
/// # Errors
/// [`Exit`] with the flag, the endpoint and the kernel's error.
pub fn bind(flag: &str, endpoint: &Endpoint, mode: u32) -> Result<Listener, Exit> {
    endpoint.bind(mode).map_err(|error| Exit::failed(format_args!("{flag} {endpoint}: {error}")))
}

/// Where metrics and health are served, the same for every program.
#[derive(Args, Clone, Copy, Debug)]
pub struct HttpFlags {
    /// Address of /metrics, /healthz and /readyz, such as 127.0.0.1:9808, [::1]:9808 or :9808;
    /// empty: served nowhere.
    #[arg(long, value_name = "ADDRESS", default_value = "", value_parser = HttpAddress::parse)]
    http_endpoint: HttpAddress,
}

/// An address, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HttpAddress(Option<SocketAddr>);

impl HttpAddress {
    /// Parses an address as Go does: `:3301` is that port on all addresses, and `localhost` is
    /// 127.0.0.1.
    fn parse(text: &str) -> Result<Self, String> {
        let address = match text {
            "" => return Ok(Self(None)),
            _ if text.starts_with(':') => format!("[::]{text}"),
            _ => text.replacen("localhost:", "127.0.0.1:", 1),
        };
        let address = address.parse();
        address.map(|address| Self(Some(address))).map_err(|_| {
            format!("{text:?} is not an address; give :PORT, 127.0.0.1:PORT or [::1]:PORT")
        })
    }
}

impl HttpFlags {
    /// Returns the address, if one is given.
    pub const fn address(&self) -> Option<SocketAddr> {
        self.http_endpoint.0
    }

    /// Binds the address.
    ///
    /// # Errors
    /// [`Exit`] with the address and the kernel's error.
    pub fn bind(&self) -> Result<Option<TcpListener>, Exit> {
        let bind = |address: SocketAddr| {
            let bound = match TcpListener::bind(address) {
                Err(_) if address.ip() == Ipv6Addr::UNSPECIFIED => {
                    // As Go does on a machine without IPv6.
                    TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port()))
                }
                bound => bound,
            };
            bound.map_err(|error| Exit::failed(format_args!("--http-endpoint {address}: {error}")))
        };
        self.address().map(bind).transpose()
    }
}

#[cfg(test)]
mod tests {
    use crate::observe::LogFlags;

    use super::*;

    #[derive(Debug, Parser)]
    #[command(name = "program", version)]
    struct Flags {
        #[command(flatten)]
        log: LogFlags,
        #[command(flatten)]
        http: HttpFlags,
    }

    fn parsed(line: &str) -> Result<Flags, Exit> {
        parse(line.split_whitespace().map(Into::into))
    }

    #[test]
    fn listen_address_takes_ip_localhost_or_empty_host() {
        for (text, want) in [
            (":3301", Some("[::]:3301")),
            ("localhost:3301", Some("127.0.0.1:3301")),
            ("0.0.0.0:80", Some("0.0.0.0:80")),
            ("[::1]:80", Some("[::1]:80")),
            ("localhost", None),
            ("localhost:x", None),
            ("example.com:80", None),
        ] {
            let flags = parsed(&format!("--http-endpoint={text}"));
            let read = flags.ok().and_then(|flags| flags.http.address());
            assert_eq!(read.map(|address| address.to_string()).as_deref(), want, "{text}");
        }
        assert_eq!(parsed("").unwrap().http.address(), None);
    }

    #[test]
    fn verbosity_has_go_and_short_forms() {
        for line in ["-v 4", "-v4", "--v 4", "--v=4"] {
            assert_eq!(parsed(line).unwrap().log.v, 4, "{line}");
        }
    }

    #[test]
    fn wrong_argument_is_named_in_one_line() {
        for (line, says) in [
            ("--no-such-flag", "--no-such-flag"),
            ("--v=many", "many"),
            ("--logging-format=xml", "xml"),
            ("--http-endpoint=localhost", "localhost"),
            ("serve", "serve"),
        ] {
            let Err(Exit::Failure { status: USAGE, line }) = parsed(line) else {
                panic!("{line} was taken");
            };
            assert!(line.contains(says) && line.lines().count() == 1, "{line}");
        }
        assert!(matches!(parsed("--version"), Err(Exit::Print(_))));
    }
}
