//! The command `audit`: what each process is, and where it differs from its profile.

use std::io::{self, Write};

use ebs_csi_audit::{Process, deviations_of_machine, running, unreadable};
use ebs_csi_policy::deviation::Deviation;
use ebs_csi_policy::profile::Profile;
use ebs_csi_policy::{PRODUCTION, Policy};

use crate::{DEVIATIONS, Failure, INCOMPLETE, named_profile, unknown_command};

/// A process with the profile that it should have.
struct AuditRow {
    process: Process,
    profile: Option<&'static Profile>,
    /// The deviations of the process as a member of its tree.
    in_tree: Vec<Deviation>,
    /// Why the process cannot be compared in full.
    unreadable: Option<io::Error>,
}

/// Compares the processes that the words name with their profiles.
pub(crate) fn audit(
    arguments: &[&str],
    policy: Policy,
    out: &mut impl Write,
) -> Result<u8, Failure> {
    match arguments {
        ["--pid", pid, "--as", name] => {
            let profile = named_profile(name)?;
            let pid = parse_pid(pid)?;
            let process = Process::read(pid).map_err(|error| unreadable(pid, &error))?;
            report(&[row(process, Some(profile), Vec::new())], policy, out)
        }
        ["--tree", pid] => report(&tree(parse_pid(pid)?)?, policy, out),
        ["--all"] => {
            let mut rows: Vec<AuditRow> = Vec::new();
            let (pids, mut hidden) = running()?;
            for pid in pids {
                // It may be part of the tree of a process that was listed before it.
                if rows.iter().any(|known| known.process.pid == pid) {
                    continue;
                }
                match tree(pid) {
                    Ok(tree) => {
                        rows.retain(|known| {
                            tree.iter().all(|one| one.process.pid != known.process.pid)
                        });
                        rows.extend(tree);
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => hidden.push(error),
                }
            }
            let known = rows.iter().filter_map(|row| Some((&row.process, row.profile?)));
            let of_machine = deviations_of_machine(known);
            let status = report(&rows, policy, out)?;
            for deviation in &of_machine {
                writeln!(out, "on this machine: {deviation}")?;
            }
            for error in &hidden {
                writeln!(out, "{error}")?;
            }
            Ok(match status {
                _ if !hidden.is_empty() => INCOMPLETE,
                0 if !of_machine.is_empty() => DEVIATIONS,
                status => status,
            })
        }
        _ => Err(unknown_command(arguments)),
    }
}

fn parse_pid(text: &str) -> Result<u32, Failure> {
    text.parse().map_err(|_| Failure::Usage(format!("{text:?} is not a process number")))
}

fn tree(root: u32) -> io::Result<Vec<AuditRow>> {
    let tree = Process::tree(root)?;
    let known: Vec<_> =
        tree.iter().map(|one| (one.expected(&tree), one.deviations_in(&tree))).collect();
    let rows = tree.into_iter().zip(known);
    Ok(rows.map(|(process, (profile, in_tree))| row(process, profile, in_tree)).collect())
}

fn row(
    mut process: Process,
    profile: Option<&'static Profile>,
    in_tree: Vec<Deviation>,
) -> AuditRow {
    let read = if profile.is_some() { process.read_filters() } else { Ok(()) };
    AuditRow { process, profile, in_tree, unreadable: read.err() }
}

fn report(rows: &[AuditRow], policy: Policy, out: &mut impl Write) -> Result<u8, Failure> {
    writeln!(
        out,
        "{:>8} {:<22} {:<12} {:>6} {:>10} {:>10} {:>10} {:>3} {:>7}  VERDICT",
        "PID", "PROGRAM", "PROFILE", "UID", "EFFECTIVE", "PERMITTED", "BOUNDING", "NNP", "SECCOMP"
    )?;
    let mut status_of_all = if rows.is_empty() { DEVIATIONS } else { 0 };
    for AuditRow { process, profile, in_tree, unreadable } in rows {
        let status = &process.status;
        let of_profile = profile.map(|profile| process.deviations(profile, policy));
        let deviations: Vec<_> = of_profile.iter().flatten().chain(in_tree).collect();
        let verdict = match deviations.len() {
            0 if unreadable.is_some() => "cannot be read in full".to_owned(),
            0 if profile.is_none() => "not of the driver".to_owned(),
            0 => "as its profile says".to_owned(),
            some => format!("{some} deviations"),
        };
        writeln!(
            out,
            "{:>8} {:<22} {:<12} {:>6} {:>10x} {:>10x} {:>10x} {:>3} {:>7}  {verdict}",
            process.pid,
            process.program.escape_debug().to_string(),
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
        for deviation in deviations {
            status_of_all = status_of_all.max(DEVIATIONS);
            writeln!(out, "{:>8} {deviation}", "")?;
        }
        if let Some(error) = unreadable {
            status_of_all = INCOMPLETE;
            writeln!(
                out,
                "{:>8} system call filters: {error}; root reads them, from outside a container",
                ""
            )?;
        }
    }
    writeln!(out, "Landlock is not visible in /proc: each process logs it when it starts.")?;
    Ok(status_of_all)
}
