//! Compares what the kernel reports of the live processes with the profiles that
//! `deploy/docs/architecture.md` describes.

use std::collections::BTreeSet;
use std::io;

use ebs_csi_policy::SANDBOX;
use ebs_csi_policy::audit::{Process, Status};
use ebs_csi_policy::profile;

use crate::procfs::process_status::differently_confined_threads;
use crate::procfs::process_table;
use crate::tier::{PARTS, Tier, tier_of};
use crate::world::World;

pub use crate::procfs::process_status::pss_kib;

/// One live process.
#[derive(Clone, Debug)]
pub struct ObservedProcess {
    /// The process's tier.
    pub tier: Tier,
    /// The component that the process belongs to: `controller`, `node-a`, …
    pub place: String,
    /// Process id.
    pub pid: i32,
    /// The program's name.
    pub program: String,
    /// `/proc/PID/status`.
    pub status: Status,
    /// Proportional set size in KiB.
    pub pss_kib: u64,
    /// The differences from the process's profile, and threads that are confined differently.
    pub deviations: Vec<String>,
}

/// Reads the state of one process.
///
/// # Errors
/// Returns an error when the process ends meanwhile.
pub fn read(tier: Tier, place: &str, pid: i32) -> io::Result<ObservedProcess> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let odd_threads = differently_confined_threads(pid, &text);
    let number = u32::try_from(pid).map_err(io::Error::other)?;
    let process = Process::read(number)?;
    let profile = tier.profile();
    let deviations = process.deviations(profile, SANDBOX);
    let mut deviations: Vec<String> = deviations.iter().map(ToString::to_string).collect();
    // The policy accepts any bounding set of a process without capabilities, and a container
    // runtime grants only what the process needs.
    let allowed: u64 = profile.capabilities.iter().map(|held| held.capability.bit()).sum();
    if process.status.bounding & !allowed != 0 {
        deviations.push(format!("bounding set {:#x}", process.status.bounding));
    }
    if odd_threads > 0 {
        deviations.push(format!("{odd_threads} threads are confined in another way"));
    }
    Ok(ObservedProcess {
        tier,
        place: place.to_owned(),
        pid,
        program: process_table::name(pid).unwrap_or_default(),
        status: process.status,
        pss_kib: pss_kib(pid)?,
        deviations,
    })
}

/// Returns the bounding set of this process: the capabilities that the machine can grant.
///
/// # Errors
/// Returns an error when `/proc` cannot be read.
pub fn bounding_of_this_process() -> io::Result<u64> {
    let status = Status::parse(&std::fs::read_to_string("/proc/self/status")?);
    Ok(status.map_err(io::Error::other)?.bounding)
}

/// Returns the names of the broker's capabilities that are not in `set`.
pub fn missing_for_broker(set: u64) -> String {
    let held = profile::BROKER.capabilities.iter().map(|held| held.capability);
    let missing = held.filter(|capability| set & capability.bit() == 0);
    missing.map(|capability| capability.name).collect::<Vec<_>>().join(", ")
}

/// Reads the state of every process of the driver in `world`.
///
/// The user and group of each process tell the helper's tiers apart: `deploy/docs/architecture.md`
/// gives each tier its own.
///
/// # Errors
/// Returns an error when a process ends meanwhile, or when a tier that must run does not.
pub fn survey(world: &World) -> io::Result<Vec<ObservedProcess>> {
    let gone = |name: &str| io::Error::other(format!("{name} does not run"));
    let mut seen = Vec::new();
    let controller = world.controller.pid().ok_or_else(|| gone("the controller"))?;
    seen.push(read(Tier::Controller, "controller", controller)?);
    for node in &world.nodes {
        let agent = node.agent.pid().ok_or_else(|| gone(node.agent.name()))?;
        seen.push(read(Tier::NodeAgent, &node.name, agent)?);
        let tree = node.helper.process_tree();
        let supervisor = *tree.first().ok_or_else(|| gone(node.helper.name()))?;
        let mut tiers = BTreeSet::new();
        for pid in tree {
            let Some(tier) = tier_of(pid, supervisor) else {
                continue;
            };
            // A runner or a tool may end before its state is read.
            match read(tier, &node.name, pid) {
                Ok(process) => {
                    tiers.insert(tier);
                    seen.push(process);
                }
                Err(e) if !matches!(tier, Tier::Runner | Tier::Tool) => return Err(e),
                Err(_) => {}
            }
        }
        for needed in PARTS {
            if !tiers.contains(&needed) {
                return Err(gone(&format!("{} of {}", needed.name(), node.name)));
            }
        }
    }
    Ok(seen)
}

/// Formats the processes as a table with one line per process.
pub fn table(seen: &[ObservedProcess]) -> String {
    let mut text = format!(
        "{:<11} {:<11} {:>7} {:>6}  {:<16} {:<16} {:<16} {:>7} {:>5} {:>9}  {}\n",
        "where",
        "process",
        "pid",
        "uid",
        "CapEff",
        "CapPrm",
        "CapBnd",
        "seccomp",
        "nnp",
        "PSS KiB",
        "as designed"
    );
    for process in seen {
        let status = &process.status;
        let verdict = if process.deviations.is_empty() {
            "yes".to_owned()
        } else {
            process.deviations.join(", ")
        };
        text.push_str(&format!(
            "{:<11} {:<11} {:>7} {:>6}  {:016x} {:016x} {:016x} {:>7} {:>5} {:>9}  {verdict}\n",
            process.place,
            if process.tier == Tier::Tool { &process.program } else { process.tier.name() },
            process.pid,
            status.uids[0],
            status.effective,
            status.permitted,
            status.bounding,
            status.seccomp,
            u8::from(status.no_new_privs),
            process.pss_kib,
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_of_own_process_reads_memory_and_threads() {
        let own =
            read(Tier::Controller, "test", i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(own.pss_kib > 0);
        assert!(own.deviations.iter().any(|found| found.contains("seccomp")), "{own:?}");
        assert!(!own.deviations.iter().any(|found| found.contains("threads")), "{own:?}");
    }
}
