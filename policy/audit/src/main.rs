//! `ebs-csi-policy`: shows the compiled-in policy, and compares live processes with it.

mod commands;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use commands::{audit, diff, digest, explain, export, show};
use ebs_csi_audit::Collected;
use ebs_csi_audit::answer::printable;
use ebs_csi_policy::profile::{self, Profile};

const USAGE: &str = "\
Usage: ebs-csi-policy COMMAND

Commands:
  audit --pid PID --as PROFILE   compare one process with a profile
  audit --tree PID               compare a process and all that descend from it with the profiles they should have
  audit --all                    the same for every process of the driver on this machine
      --policy guest|sandbox     the mount-helper may enforce this policy instead of production
      --expect SETTING           this setting may widen the policy, as in --expect=--paths=any; several times
      --digests FILE             the programs must be those of the build that wrote this digests.yaml
      --from DIR                 judge what collect wrote there, instead of this machine
      --format text|json         form of the report [default: text]
  collect DIR                    write what audit --all reads to this new directory, without values of the environment
  explain PROFILE/RULE           what a rule compares, what the profile says, and why
  explain [PROFILE]              the rules, or those of one profile
  export PROFILE|--all           the system calls as seccomp profiles of the OCI runtime specification;
                                 PROFILE+CHOICE (node-agent+vsock) adds those of a choice
  diff A B                       the privileges that the policy of checkout B gives and that of A does not, and the reverse
  digest [DIR]                   the digests of the compiled-in policies and of their files, or of those that the
                                 checkout DIR compiles to, with the files that this program has otherwise
  show [PROFILE]                 all profiles in short, or one with every rule and its reason
  show flags|places|requests|tools|blank
                                 the rules about mounts, the mount-helper's requests, tools and blank disks

Profiles: controller, node-lifecycle, launcher, router, node-agent, supervisor, broker, directories, opener, relay, runner, tool

Exit status of audit: 0 every rule conforms; 1 a rule deviates; 2 something was not seen, or a process is missing;
of diff: 0 nothing gained; 1 a privilege gained; 2 a file cannot be read;
of digest DIR: 0 equal; 1 a file differs; 2 one cannot be read; of all: 64 bad usage
";

/// The status when the report cannot be written or made.
const INCOMPLETE: u8 = 2;
/// sysexits.h EX_USAGE.
const EX_USAGE: u8 = 64;

enum Failure {
    Usage(String),
    Io(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn main() -> ExitCode {
    // An argument that is no UTF-8 names nothing that is known here.
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|one| one.to_string_lossy().into_owned()).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut out = io::BufWriter::new(io::stdout().lock());
    let outcome = run(&arguments, &mut out).and_then(|status| {
        out.flush()?;
        Ok(status)
    });
    let (message, status) = match outcome {
        Ok(status) => return ExitCode::from(status),
        Err(Failure::Usage(message)) => (message, EX_USAGE),
        Err(Failure::Io(error)) => (error.to_string(), INCOMPLETE),
    };
    // A closed standard error leaves no way to report the message.
    let _ = writeln!(io::stderr(), "ebs-csi-policy: {}", printable(&message));
    ExitCode::from(status)
}

fn run(arguments: &[&str], out: &mut impl Write) -> Result<u8, Failure> {
    match arguments {
        ["--help" | "-h" | "help"] => {
            out.write_all(USAGE.as_bytes())?;
            Ok(0)
        }
        ["--version" | "-V"] => {
            writeln!(out, "ebs-csi-policy {}", env!("CARGO_PKG_VERSION"))?;
            Ok(0)
        }
        ["digest"] => digest::own(out),
        ["digest", checkout] => digest::of_checkout(checkout, out),
        ["show", what @ ..] if what.len() <= 1 => show::show(what.first().copied(), out),
        ["explain", what @ ..] if what.len() <= 1 => explain::explain(what.first().copied(), out),
        ["collect", directory] => {
            Collected::of_machine()?.write(Path::new(directory))?;
            Ok(0)
        }
        ["diff", before, after] => diff::diff(before, after, out),
        ["export", what] => export::export(what, out),
        ["audit", rest @ ..] => audit::audit(rest, out),
        [] => Err(Failure::Usage("no command, see --help".to_owned())),
        _ => Err(unknown_command(arguments)),
    }
}

fn unknown_command(arguments: &[&str]) -> Failure {
    Failure::Usage(format!("{:?} is not understood, see --help", arguments.join(" ")))
}

fn named_profile(name: &str) -> Result<&'static Profile, Failure> {
    profile::named(name).ok_or_else(|| Failure::Usage(format!("there is no profile {name:?}")))
}
