//! Compares what the kernel reports of the live processes with what `deploy/docs/architecture.md`
//! allows each.

use std::collections::BTreeSet;
use std::io;

use ebs_csi_policy::profile;

use crate::procfs::process_status::{differently_confined_threads, mask, numbers};
use crate::procfs::process_table;
use crate::tier::{PARTS, Tier, tier_of};
use crate::world::World;
use crate::world::container::{NODE_AGENT_ID, capability};

pub use crate::procfs::process_status::pss_kib;

/// The user of the supervisor, of runners and of tools.
const RUNNERS: u32 = profile::SUPERVISOR.identity.uid;

/// The capabilities that `deploy/docs/architecture.md` gives the broker.
pub const BROKER: u64 =
    capability::SYS_ADMIN | capability::SYS_RESOURCE | capability::DAC_READ_SEARCH;

/// The rights that a tier may have.
struct Allowed {
    uid: Option<u32>,
    capabilities: u64,
    /// The subset of `capabilities` that the tier must have.
    needed: u64,
}

impl Tier {
    fn allowed(self) -> Allowed {
        let nothing = |uid| Allowed { uid, capabilities: 0, needed: 0 };
        match self {
            Self::Controller => nothing(None),
            Self::NodeAgent => nothing(Some(NODE_AGENT_ID)),
            Self::Supervisor | Self::Runner | Self::Tool => nothing(Some(RUNNERS)),
            Self::Directories => nothing(Some(0)),
            // The simulator's disks belong to a group, so the opener need not run as root.
            Self::Opener => nothing(Some(profile::OPENER.identity.uid)),
            Self::Broker => Allowed {
                uid: Some(profile::BROKER.identity.uid),
                capabilities: BROKER,
                needed: capability::SYS_ADMIN,
            },
        }
    }
}

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
    /// Real, effective, saved and file system user.
    pub uids: Vec<u32>,
    /// Effective capabilities.
    pub effective: u64,
    /// Permitted capabilities.
    pub permitted: u64,
    /// Capability bounding set.
    pub bounding: u64,
    /// Ambient capabilities.
    pub ambient: u64,
    /// Seccomp mode; 2 means that a filter is active.
    pub seccomp: u32,
    /// Whether exec can no longer grant privileges.
    pub no_new_privs: bool,
    /// Proportional set size in KiB.
    pub pss_kib: u64,
    /// Threads whose confinement differs from the main thread's.
    pub odd_threads: usize,
    /// The differences from `deploy/docs/architecture.md`.
    pub deviations: Vec<String>,
}

/// Reads the state of one process.
///
/// # Errors
/// Returns an error when the process ends meanwhile.
pub fn look(tier: Tier, place: &str, pid: i32) -> io::Result<ObservedProcess> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let mut seen = ObservedProcess {
        tier,
        place: place.to_owned(),
        pid,
        program: process_table::name(pid).unwrap_or_default(),
        uids: numbers(&status, "Uid"),
        effective: mask(&status, "CapEff")?,
        permitted: mask(&status, "CapPrm")?,
        bounding: mask(&status, "CapBnd")?,
        ambient: mask(&status, "CapAmb")?,
        seccomp: numbers(&status, "Seccomp").first().copied().unwrap_or(0),
        no_new_privs: numbers(&status, "NoNewPrivs").first() == Some(&1),
        pss_kib: pss_kib(pid)?,
        odd_threads: differently_confined_threads(pid, &status),
        deviations: Vec::new(),
    };
    seen.deviations = deviations(&seen);
    Ok(seen)
}

fn deviations(seen: &ObservedProcess) -> Vec<String> {
    let allowed = seen.tier.allowed();
    let mut found = Vec::new();
    match allowed.uid {
        Some(uid) if seen.uids.iter().take(3).any(|has| *has != uid) => {
            found.push(format!("uid {:?}, not {uid}", seen.uids));
        }
        None if seen.uids.contains(&0) => found.push("runs as root".to_owned()),
        _ => {}
    }
    for (set, has) in [
        ("CapEff", seen.effective),
        ("CapPrm", seen.permitted),
        ("CapBnd", seen.bounding),
        ("CapAmb", seen.ambient),
    ] {
        let extra = has & !allowed.capabilities;
        if extra != 0 {
            found.push(format!("{set} has {extra:x} beyond architecture.md"));
        }
    }
    if seen.effective & allowed.needed != allowed.needed {
        found.push(format!("CapEff lacks {:x}", allowed.needed & !seen.effective));
    }
    if seen.seccomp != 2 {
        found.push(format!("Seccomp is {}, not 2", seen.seccomp));
    }
    if !seen.no_new_privs {
        found.push("NoNewPrivs is 0".to_owned());
    }
    if seen.odd_threads > 0 {
        found.push(format!("{} threads are confined in another way", seen.odd_threads));
    }
    found
}

/// Returns the bounding set of this process: the capabilities that the machine can grant.
///
/// # Errors
/// Returns an error when `/proc` cannot be read.
pub fn bounding_of_this_process() -> io::Result<u64> {
    mask(&std::fs::read_to_string("/proc/self/status")?, "CapBnd")
}

/// Returns the names of the broker's capabilities that are in `set`.
pub fn names(set: u64) -> String {
    let known = [
        (capability::SYS_ADMIN, "CAP_SYS_ADMIN"),
        (capability::SYS_RESOURCE, "CAP_SYS_RESOURCE"),
        (capability::DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"),
    ];
    known
        .iter()
        .filter(|(bit, _)| set & bit != 0)
        .map(|(_, name)| *name)
        .collect::<Vec<_>>()
        .join(", ")
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
    seen.push(look(
        Tier::Controller,
        "controller",
        world.controller.pid().ok_or_else(|| gone("the controller"))?,
    )?);
    for node in &world.nodes {
        let agent = node.agent.pid().ok_or_else(|| gone(node.agent.name()))?;
        seen.push(look(Tier::NodeAgent, &node.name, agent)?);
        let family = node.helper.process_tree();
        let supervisor = *family.first().ok_or_else(|| gone(node.helper.name()))?;
        let mut tiers = BTreeSet::new();
        for pid in family {
            let Some(tier) = tier_of(pid, supervisor) else {
                continue;
            };
            // A runner or a tool may end before its state is read.
            match look(tier, &node.name, pid) {
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
            process.uids.first().copied().unwrap_or_default(),
            process.effective,
            process.permitted,
            process.bounding,
            process.seccomp,
            u8::from(process.no_new_privs),
            process.pss_kib,
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(tier: Tier) -> ObservedProcess {
        let allowed = tier.allowed();
        ObservedProcess {
            tier,
            place: "node-a".to_owned(),
            pid: 1,
            program: "x".to_owned(),
            uids: vec![allowed.uid.unwrap_or(1000); 4],
            effective: allowed.needed,
            permitted: allowed.capabilities,
            bounding: allowed.capabilities,
            ambient: 0,
            seccomp: 2,
            no_new_privs: true,
            pss_kib: 1,
            odd_threads: 0,
            deviations: Vec::new(),
        }
    }

    const TIERS: [Tier; 8] = [
        Tier::Controller,
        Tier::NodeAgent,
        Tier::Supervisor,
        Tier::Broker,
        Tier::Directories,
        Tier::Opener,
        Tier::Runner,
        Tier::Tool,
    ];

    #[test]
    fn every_tier_as_designed_has_no_deviation() {
        for tier in TIERS {
            assert_eq!(deviations(&process(tier)), Vec::<String>::new(), "{tier:?}");
        }
    }

    #[test]
    fn excess_privileges_are_reported_as_deviations() {
        type Change = fn(&mut ObservedProcess);
        let changes: [(&str, Change); 8] = [
            ("CapEff", |seen| seen.effective |= capability::SETUID),
            ("CapPrm", |seen| seen.permitted |= capability::SETUID),
            ("CapBnd", |seen| seen.bounding |= capability::SETUID),
            ("CapAmb", |seen| seen.ambient |= capability::SETUID),
            ("Seccomp", |seen| seen.seccomp = 0),
            ("NoNewPrivs", |seen| seen.no_new_privs = false),
            ("threads", |seen| seen.odd_threads = 1),
            ("uid", |seen| seen.uids = vec![12; 4]),
        ];
        for tier in TIERS {
            for (name, change) in changes {
                let mut seen = process(tier);
                change(&mut seen);
                let found = deviations(&seen);
                if name == "uid" && tier == Tier::Controller {
                    assert!(found.is_empty(), "any user but root will do for the controller");
                } else {
                    assert!(
                        found.iter().any(|text| text.contains(name)),
                        "{tier:?} {name}: {found:?}"
                    );
                }
            }
        }
        let mut root = process(Tier::Controller);
        root.uids = vec![0; 4];
        assert_eq!(deviations(&root), ["runs as root"]);
    }

    #[test]
    fn audit_of_own_process_reads_memory_and_threads() {
        let own =
            look(Tier::Controller, "test", i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(own.pss_kib > 0);
        assert_eq!(own.odd_threads, 0);
    }
}
