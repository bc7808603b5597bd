//! `ebs-csi-policy`: shows the compiled-in policy, and compares live processes with it.

use std::io::{self, Write};
use std::process::ExitCode;

use ebs_csi_policy::audit::{self, Process};
use ebs_csi_policy::blank::{self, Area};
use ebs_csi_policy::flag::{self, FlagRule, RefusedFlag};
use ebs_csi_policy::place::{self, Place};
use ebs_csi_policy::profile::{self, CallAnswer, Condition, FilePlace, Files, Profile};
use ebs_csi_policy::tool::{self, Tool};
use ebs_csi_policy::{PRODUCTION, Policy};

const USAGE: &str = "\
Usage: ebs-csi-policy COMMAND

Commands:
  audit --pid PID --as PROFILE   compare one process with a profile
  audit --tree PID               compare a process and all that descend from it with the profiles they should have
  audit --all                    the same for every process of the driver on this machine
      --policy guest|sandbox     with audit: the mount-helper may enforce this policy instead of production
  digest                         the digests of the compiled-in policies
  show [PROFILE]                 all profiles in short, or one with every rule and its reason
  show flags|places|tools|blank  the rules about mounts, tools and blank disks

Profiles: controller, node-lifecycle, launcher, router, node-agent, supervisor, broker, directories, opener, runner, tool

Exit status: 0 no deviation, 1 deviations or a process that cannot be read, 64 bad usage
";

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
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut out = io::stdout().lock();
    let outcome = run(&arguments, &mut out).and_then(|status| {
        out.flush()?;
        Ok(status)
    });
    let (message, status) = match outcome {
        Ok(status) => return ExitCode::from(status),
        Err(Failure::Usage(message)) => (message, EX_USAGE),
        // A reader that closes the pipe early is not a failure.
        Err(Failure::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            return ExitCode::SUCCESS;
        }
        Err(Failure::Io(error)) => (error.to_string(), 1),
    };
    // A closed standard error leaves no way to report the message.
    let _ = writeln!(io::stderr(), "ebs-csi-policy: {message}");
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
        ["digest"] => {
            for policy in Policy::ALL {
                writeln!(out, "{:<10} {}", policy.name, policy.digest)?;
            }
            Ok(0)
        }
        ["show", what @ ..] if what.len() <= 1 => show(what.first().copied(), out),
        ["audit", rest @ .., "--policy", name] => {
            let policy = Policy::named(name)
                .ok_or_else(|| Failure::Usage(format!("there is no policy {name:?}")))?;
            audit(rest, policy, out)
        }
        ["audit", rest @ ..] => audit(rest, PRODUCTION, out),
        [] => Err(Failure::Usage("no command, see --help".to_owned())),
        _ => Err(unknown_command(arguments)),
    }
}

fn unknown_command(arguments: &[&str]) -> Failure {
    Failure::Usage(format!("{:?} is not understood, see --help", arguments.join(" ")))
}

/// Compares the processes that the words name with their profiles.
fn audit(arguments: &[&str], policy: Policy, out: &mut impl Write) -> Result<u8, Failure> {
    match arguments {
        ["--pid", pid, "--as", name] => {
            let profile = named_profile(name)?;
            let pid = parse_pid(pid)?;
            let process = Process::read(pid).map_err(|error| unreadable(pid, &error))?;
            report(&[(process, Some(profile))], policy, out)
        }
        ["--tree", pid] => {
            let pid = parse_pid(pid)?;
            let tree = Process::tree(pid).map_err(|error| unreadable(pid, &error))?;
            report(&with_profiles(tree), policy, out)
        }
        ["--all"] => {
            let mut rows: Vec<(Process, Option<&'static Profile>)> = Vec::new();
            for pid in audit::running()? {
                // A process may end meanwhile, or be part of the tree of a process that was listed
                // before it.
                if rows.iter().any(|(known, _)| known.pid == pid) {
                    continue;
                }
                if let Ok(tree) = Process::tree(pid) {
                    rows.retain(|(known, _)| tree.iter().all(|one| one.pid != known.pid));
                    rows.extend(with_profiles(tree));
                }
            }
            report(&rows, policy, out)
        }
        _ => Err(unknown_command(arguments)),
    }
}

fn parse_pid(text: &str) -> Result<u32, Failure> {
    text.parse().map_err(|_| Failure::Usage(format!("{text:?} is not a process number")))
}

fn unreadable(pid: u32, error: &io::Error) -> Failure {
    Failure::Io(io::Error::new(error.kind(), format!("process {pid} cannot be read: {error}")))
}

fn named_profile(name: &str) -> Result<&'static Profile, Failure> {
    profile::named(name).ok_or_else(|| Failure::Usage(format!("there is no profile {name:?}")))
}

fn with_profiles(tree: Vec<Process>) -> Vec<(Process, Option<&'static Profile>)> {
    let profiles: Vec<_> = tree.iter().map(|one| one.expected(&tree)).collect();
    tree.into_iter().zip(profiles).collect()
}

fn report(
    rows: &[(Process, Option<&'static Profile>)],
    policy: Policy,
    out: &mut impl Write,
) -> Result<u8, Failure> {
    writeln!(
        out,
        "{:>8} {:<22} {:<12} {:>6} {:>10} {:>10} {:>10} {:>3} {:>7}  VERDICT",
        "PID", "PROGRAM", "PROFILE", "UID", "EFFECTIVE", "PERMITTED", "BOUNDING", "NNP", "SECCOMP"
    )?;
    let mut has_deviations = false;
    for (process, profile) in rows {
        let status = &process.status;
        let deviations = profile.map(|profile| process.deviations(profile, policy));
        let verdict = match &deviations {
            None => "not of the driver".to_owned(),
            Some(none) if none.is_empty() => "as its profile says".to_owned(),
            Some(some) => format!("{} deviations", some.len()),
        };
        writeln!(
            out,
            "{:>8} {:<22} {:<12} {:>6} {:>10x} {:>10x} {:>10x} {:>3} {:>7}  {verdict}",
            process.pid,
            process.program,
            profile.map_or("-", |profile| profile.name),
            status.uids[1],
            status.effective,
            status.permitted,
            status.bounding,
            u8::from(status.no_new_privs),
            status.seccomp,
        )?;
        let enforced = process.policy();
        if profile.is_some() && enforced != PRODUCTION {
            writeln!(out, "{:>8} policy {} {}", "", enforced.name, enforced.digest)?;
        }
        for deviation in deviations.into_iter().flatten() {
            has_deviations = true;
            writeln!(out, "{:>8} {deviation}", "")?;
        }
    }
    writeln!(out, "Landlock is not visible in /proc: each process logs it when it starts.")?;
    Ok(u8::from(has_deviations || rows.is_empty()))
}

fn show(what: Option<&str>, out: &mut impl Write) -> Result<u8, Failure> {
    match what {
        None => {
            for Profile { name, identity, calls, about, .. } in profile::ALL {
                let (uid, rules) = (identity.uid, calls.len());
                writeln!(
                    out,
                    "{name:<12} user {uid:>5}  {rules:>3} rules on system calls  {about}"
                )?;
            }
        }
        Some("flags") => {
            for FlagRule { name, file_systems, value, effect, why, .. } in flag::FLAGS {
                let file_systems: Vec<_> = file_systems.iter().map(|fs| fs.as_str()).collect();
                let file_systems = file_systems.join(",");
                writeln!(out, "{name:<22} {file_systems:<15} {value:?} {effect:?}  {why}")?;
            }
            for RefusedFlag { name, why } in flag::REFUSED {
                writeln!(out, "{name:<22} refused: {why}")?;
            }
        }
        Some("places") => {
            for Place { class, pattern, operations, why, .. } in place::PLACES {
                let class = class.as_str();
                writeln!(out, "{class:<10} {pattern:<52} {operations:?}  {why}")?;
            }
        }
        Some("tools") => {
            for Tool { key, path, arguments, tail, about, .. } in tool::TOOLS {
                let (arguments, tail) = (arguments.join(" "), tail.join(" "));
                writeln!(out, "{key:<12} {path} {arguments} … {tail}  {about}")?;
            }
        }
        Some("blank") => {
            for Area { from, offset, length, why } in blank::AREAS {
                writeln!(out, "{from:?} {offset:>14} length {length:>8}  {why}")?;
            }
        }
        Some(name) => {
            show_profile(named_profile(name)?, out)?;
        }
    }
    Ok(0)
}

fn show_profile(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let identity = &profile.identity;
    writeln!(out, "{}: {}", profile.name, profile.about)?;
    writeln!(
        out,
        "user {} group {} groups {:?}: {}",
        identity.uid, identity.gid, identity.groups, identity.why
    )?;
    for held in profile.capabilities {
        let how = if held.effective { "effective" } else { "raised when needed" };
        writeln!(out, "capability {} ({how}): {}", held.capability.name, held.why)?;
    }
    for limit in profile.limits {
        writeln!(out, "limit {:?} {}: {}", limit.resource, limit.value, limit.why)?;
    }
    let landlock = &profile.landlock;
    writeln!(
        out,
        "landlock from ABI {} tcp {:?} scopes {:?}: {}",
        landlock.floor, landlock.tcp, landlock.scopes, landlock.why
    )?;
    match landlock.files {
        Files::Free => writeln!(out, "files: free")?,
        Files::Inherited => writeln!(out, "files: inherited")?,
        Files::Listed(rules) => {
            for rule in rules {
                let place = match rule.place {
                    FilePlace::Path(path) => path.to_owned(),
                    FilePlace::Named(name) => format!("<{name}>"),
                };
                writeln!(out, "files {place} {:?}: {}", rule.rights, rule.why)?;
            }
        }
    }
    let chosen = profile.choices.iter().flat_map(|choice| {
        let rules = choice.calls.iter();
        rules.map(|rule| (rule, format!(" when chosen ({})", choice.name)))
    });
    let always = profile.calls.iter().map(|rule| (rule, String::new()));
    for (rule, when) in always.chain(chosen) {
        let condition = match rule.condition {
            Condition::Always => String::new(),
            Condition::OneOf { argument, values, .. } => {
                let names: Vec<_> = values.iter().map(|value| value.name).collect();
                format!(" argument {argument} one of {}", names.join(" "))
            }
            Condition::NoneOf { argument, .. } => format!(" argument {argument} any other"),
            Condition::HasBits { argument, bits } => {
                format!(" argument {argument} with {}", bits.name)
            }
            Condition::LacksBits { argument, bits } => {
                format!(" argument {argument} without {}", bits.name)
            }
            Condition::Itself { argument } => format!(" argument {argument} the process itself"),
        };
        let answer = match rule.answer {
            CallAnswer::Allow => String::new(),
            CallAnswer::Errno(errno) => format!(" answered with {}", errno.name),
        };
        writeln!(out, "call {}{condition}{answer}{when}: {}", rule.call, rule.why)?;
    }
    Ok(())
}
