//! Compares the live processes of a world with the policy (`ebs_csi_audit`).

use std::io;

use ebs_csi_audit::Process;
use ebs_csi_policy::SANDBOX;
use ebs_csi_policy::process_status::Status;
use ebs_csi_policy::profile::{self, Profile};

use crate::world::World;

/// The profiles whose processes run all the time.
pub const ALWAYS_RUNNING: [&Profile; 6] = [
    profile::CONTROLLER,
    profile::NODE_AGENT,
    profile::SUPERVISOR,
    profile::BROKER,
    profile::DIRECTORIES,
    profile::OPENER,
];

/// One live process.
#[derive(Clone, Debug)]
pub struct ObservedProcess {
    /// The profile that the process should have.
    pub profile: &'static Profile,
    /// The component that the process belongs to: `controller`, `node-a`, …
    pub place: String,
    /// What `/proc` shows of it.
    pub process: Process,
    /// Proportional set size in KiB.
    pub pss_kib: u64,
    /// The differences from the profile.
    pub deviations: Vec<String>,
}

/// Reads the state of one process.
pub fn read(profile: &'static Profile, place: &str, pid: i32) -> io::Result<ObservedProcess> {
    let number = u32::try_from(pid).map_err(io::Error::other)?;
    observe(profile, place, Process::read(number)?)
}

fn observe(
    profile: &'static Profile,
    place: &str,
    process: Process,
) -> io::Result<ObservedProcess> {
    let deviations = process.deviations(profile, SANDBOX);
    Ok(ObservedProcess {
        profile,
        place: place.to_owned(),
        pss_kib: rollup_kib(i32::try_from(process.pid).map_err(io::Error::other)?, "Pss")?,
        process,
        deviations: deviations.iter().map(ToString::to_string).collect(),
    })
}

/// Returns a field of a process's `smaps_rollup` in KiB (proc(5)), or 0 if the kernel lacks it.
pub fn rollup_kib(pid: i32, field: &str) -> io::Result<u64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    Ok(line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).unwrap_or(0))
}

/// Returns the bounding set of this process: the capabilities that the machine can grant.
pub fn bounding_of_this_process() -> io::Result<u64> {
    let status = Status::parse(&std::fs::read("/proc/self/status")?);
    Ok(status.map_err(io::Error::other)?.bounding)
}

/// Returns the names of the broker's capabilities that are not in `set`.
pub fn missing_for_broker(set: u64) -> String {
    let held = profile::BROKER.capabilities.iter().map(|held| held.capability);
    let missing = held.filter(|capability| set & capability.bit() == 0);
    missing.map(|capability| capability.name).collect::<Vec<_>>().join(", ")
}

/// Reads the state of every process of the driver in `world`.
pub fn survey(world: &World) -> io::Result<Vec<ObservedProcess>> {
    let gone = |name: &str| io::Error::other(format!("{name} does not run"));
    let mut seen = Vec::new();
    let controller = world.controller.pid().ok_or_else(|| gone("the controller"))?;
    seen.push(read(profile::CONTROLLER, "controller", controller)?);
    for node in &world.nodes {
        let agent = node.agent.pid().ok_or_else(|| gone(node.agent.name()))?;
        seen.push(read(profile::NODE_AGENT, &node.name, agent)?);
        let supervisor = node.helper.pid().ok_or_else(|| gone(node.helper.name()))?;
        let tree = Process::tree(u32::try_from(supervisor).map_err(io::Error::other)?)?;
        for process in &tree {
            if let Some(wrong) = process.deviations_in(&tree).first() {
                return Err(io::Error::other(format!("{}: {wrong}", node.name)));
            }
            let Some(profile) = process.expected(&tree) else { continue };
            let is_lasting = ALWAYS_RUNNING.iter().any(|one| one.name == profile.name);
            // A runner or a tool may end before its state is read.
            match observe(profile, &node.name, process.clone()) {
                Err(_) if !is_lasting => {}
                seen_one => seen.push(seen_one?),
            }
        }
    }
    Ok(seen)
}

/// Formats the processes as a table with one line per process.
pub fn table(seen: &[ObservedProcess]) -> String {
    let mut text = String::from(
        "where       process         pid    uid  CapEff           CapPrm           CapBnd           seccomp   nnp   PSS KiB  as designed\n",
    );
    for process in seen {
        let status = &process.process.status;
        let is_tool = process.profile.name == profile::TOOL.name;
        let verdict = if process.deviations.is_empty() {
            "yes".to_owned()
        } else {
            process.deviations.join(", ")
        };
        text.push_str(&format!(
            "{:<11} {:<11} {:>7} {:>6}  {:016x} {:016x} {:016x} {:>7} {:>5} {:>9}  {verdict}\n",
            process.place,
            if is_tool { &process.process.program } else { process.profile.name },
            process.process.pid,
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
    fn audit_of_own_process_reads_memory_and_filter() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let own = read(profile::CONTROLLER, "test", pid).unwrap();
        assert!(own.pss_kib > 0);
        assert!(own.deviations.iter().any(|found| found.contains("seccomp")), "{own:?}");
    }
}
