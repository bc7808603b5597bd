//! A failed confinement ends the process, and a tolerated deviation is reported.
//!
//! As in `denied`, every case runs in a child of this program with one thread.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::File;
use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Barrier, OnceLock};

use ebs_csi_confine::{Enforced, Entering, Fault, LandlockState, Places, ThreadStarts};
use ebs_csi_policy::process_status::Status;
use ebs_csi_policy::profile::{self, Profile};
use landlock::{AccessFs, LandlockStatus, Ruleset, RulesetAttr, RulesetError};
use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use seccompiler::{SeccompAction, SeccompFilter};

#[path = "../harness/mod.rs"]
mod harness;
mod identity;
mod start;

use harness::TestResult;

type Case = fn() -> TestResult;

const CASES: &[(&str, Case)] = &[
    ("a_kernel_without_landlock_is_below_the_supervisors_floor", || {
        hide_landlock();
        below_the_floor(profile::SUPERVISOR)
    }),
    ("a_kernel_without_landlock_is_below_the_floor_of_the_directories_process", || {
        hide_landlock();
        below_the_floor(profile::DIRECTORIES)
    }),
    ("a_kernel_without_landlock_is_reported_where_the_policy_tolerates_it", || {
        hide_landlock();
        let enforced = enter(profile::NODE_AGENT, false)?;
        expect(enforced.landlock == LandlockState::Missing, &enforced)?;
        expect(enforced.to_string().contains("landlock=\"missing\""), &enforced)
    }),
    ("a_tools_side_goes_without_landlock_only_when_it_is_told_to", || {
        hide_landlock();
        let enforced = enter(profile::SUPERVISOR, true)?;
        expect(enforced.landlock == LandlockState::Missing, &enforced)
    }),
    ("a_second_thread_is_a_fault", || {
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || wait.recv());
        let entered = Entering::begin(profile::NODE_AGENT);
        drop(go);
        let _ = thread.join();
        expect(matches!(entered, Err(Fault::ManyThreads(2))), &entered.err())
    }),
    ("a_place_that_the_policy_needs_and_nobody_names_is_a_fault", || {
        let entered = Entering::begin(profile::DIRECTORIES)
            .and_then(Entering::identity)
            .and_then(|entering| entering.files(&Places::new()));
        let right =
            |fault: &Fault| matches!(fault, Fault::Place { place, .. } if place == "kubelet-root");
        expect(entered.as_ref().is_err_and(right), &entered.err())
    }),
    ("the_last_filter_can_bind_threads_that_are_there_already", || {
        let entering = Entering::begin(profile::BROKER)
            .and_then(Entering::identity)
            .and_then(|entering| entering.files(&Places::new()))?;
        // These make no call but futex(2), which the filter allows.
        let steps = Arc::new([(); 3].map(|()| Barrier::new(2)));
        let status = Arc::new(OnceLock::new());
        let (met, told) = (Arc::clone(&steps), Arc::clone(&status));
        std::thread::spawn(move || {
            // Opens the file now, because the filter forbids opening by name.
            let file = File::open("/proc/thread-self/status");
            met[0].wait();
            met[1].wait();
            let mut text = String::new();
            // Without a limit, the library would ask for the length of the file.
            let read = file.and_then(|file| file.take(1 << 16).read_to_string(&mut text));
            let _ = told.set(read.map(|_| text));
            met[2].wait();
            loop {
                std::thread::park();
            }
        });
        steps[0].wait();
        let enforced = entering.calls_of_all_threads()?;
        steps[1].wait();
        steps[2].wait();
        let status = status.get().and_then(|status| status.as_ref().ok()).ok_or("no status")?;
        let filters = enforced.status.seccomp_filters;
        let other = Status::parse(status.as_bytes())?;
        expect(other.seccomp == 2 && other.seccomp_filters == filters, &enforced)?;
        expect(other.effective == 1 << 21 && other.uids == [65531; 4], &enforced)
    }),
    ("threads_that_have_begun_need_no_random_numbers_later", || {
        let entering = Entering::begin(profile::OPENER)?.identity()?.files(&Places::new())?;
        let starts = ThreadStarts::default();
        let steps = Arc::new([(); 2].map(|()| Barrier::new(2)));
        let met = Arc::clone(&steps);
        let hash = || drop(std::hash::RandomState::new());
        starts.spawn(std::thread::Builder::new(), move || {
            met[0].wait();
            hash();
            met[1].wait();
            loop {
                std::thread::park();
            }
        })?;
        starts.wait();
        // The opener's filter has no getrandom(2).
        entering.calls_of_all_threads()?;
        steps[0].wait();
        hash();
        steps[1].wait();
        Ok(())
    }),
    ("the_filters_are_as_many_as_the_kernel_counts", || {
        let own = rustix::process::getpid();
        let filters = ebs_csi_confine::filters(profile::NODE_AGENT, None, own)?;
        // A program is a list of `struct sock_filter` of 8 bytes (linux/filter.h).
        let whole = |program: &Vec<u8>| !program.is_empty() && program.len().is_multiple_of(8);
        expect(filters.iter().all(whole), &filters)?;
        let before = std::fs::read("/proc/self/status")?;
        let before = Status::parse(&before)?.seccomp_filters.ok_or("the kernel does not say")?;
        let enforced = enter(profile::NODE_AGENT, false)?;
        let added = enforced.status.seccomp_filters.map(|all| all - before);
        expect(added.map(usize::try_from) == Some(Ok(filters.len())), &(filters.len(), added))
    }),
    ("a_start_without_settings_reports_no_places", || {
        let enforced = enter(profile::DIRECTORIES, false)?;
        expect(!enforced.to_string().contains("places="), &enforced)
    }),
    ("the_places_of_settings_are_reported", || {
        let places =
            Places::new().with_directory("kubelet-root", "--kubelet-root", "/tmp".as_ref())?;
        let enforced = ebs_csi_confine::enter(profile::DIRECTORIES, &places)?;
        let told = enforced.to_string().contains(" places=\"kubelet-root=/tmp\"");
        expect(told, &enforced)
    }),
    ("a_choice_that_the_profile_lacks_is_a_fault", || {
        let entering = Entering::begin(profile::NODE_AGENT)?;
        let chosen = entering.choose(Some("tcp"));
        expect(matches!(chosen, Err(Fault::UnknownChoice("tcp"))), &chosen.err())
    }),
    ("the_landlock_abi_is_the_one_the_kernel_reports", || {
        let found = (ebs_csi_confine::landlock_abi(), reported_landlock()?);
        expect(i32::from(found.0) == found.1, &found)
    }),
];

fn all_cases() -> impl Iterator<Item = &'static (&'static str, Case)> {
    [CASES, identity::CASES, start::CASES].into_iter().flatten()
}

/// The groups of a process with a given primary group.
type Groups = fn(u32) -> Vec<u32>;

/// The supplementary groups that a container runtime gives to a process.
const RUNTIMES: [(&str, Groups); 3] = [
    ("no groups", |_| Vec::new()),
    ("its own group", |gid| vec![gid]),
    ("a pod's groups", |gid| vec![gid, 2000, 2001]),
];

/// Enters a profile in a process that a container runtime started under the profile's own user.
fn under_its_own_user(profile: &'static Profile, groups: &[u32]) -> TestResult {
    let identity = &profile.identity;
    become_user(identity.uid, identity.gid, groups)?;
    let entered = enter(profile, false);
    let extra = groups.iter().any(|group| *group >= 2000 && *group < 3000);
    match profile.name {
        // These processes start as user 0, because only user 0 can hold what they need. They set
        // their groups themselves.
        "broker" => expect_fault(entered, |fault| {
            matches!(fault, Fault::CapabilityMissing("CAP_SYS_ADMIN"))
        }),
        "directories" => {
            let enforced = entered?;
            expect(enforced.status.groups == identity.groups, &enforced)
        }
        "node-agent" | "supervisor" | "opener" | "relay" | "runner" if extra => {
            expect_fault(entered, |fault| matches!(fault, Fault::Identity { what: "groups", .. }))
        }
        _ => {
            let enforced = entered?;
            expect(enforced.status.uids == [identity.uid; 4], &enforced)?;
            // The kernel sorts the groups.
            let mut wanted = groups.to_vec();
            wanted.sort_unstable();
            expect(enforced.status.groups == wanted, &enforced)?;
            let told = enforced.to_string().contains("extra_groups=[2000, 2001]");
            expect(told == extra, &enforced)
        }
    }
}

/// The end of the names of the cases about variables.
const VARIABLES: &str = " keeps its variables";

fn child(name: &str) -> TestResult {
    if let Some(profile) = name.strip_suffix(VARIABLES) {
        return start::keeps_variables(profile::named(profile).ok_or("no such profile")?);
    }
    if let Some((profile, groups)) = name.split_once(" with ") {
        let profile = profile::named(profile).ok_or("no such profile")?;
        let (_, groups) =
            RUNTIMES.iter().find(|(known, _)| *known == groups).ok_or("no such groups")?;
        return under_its_own_user(profile, &groups(profile.identity.gid));
    }
    let (_, case) = all_cases().find(|(known, _)| *known == name).ok_or("no such case")?;
    case()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, flag, name] = arguments.as_slice()
        && flag == "--child"
    {
        let outcome = child(name);
        if let Err(problem) = &outcome {
            println!("    {problem}");
        }
        return ExitCode::from(u8::from(outcome.is_err()));
    }
    let cases = all_cases().map(|(name, _)| (*name).to_owned());
    // No container runtime starts a tool: the runner confines the tool under the runner's user.
    let started = profile::ALL.iter().filter(|one| one.name != "tool");
    let starts = started
        .flat_map(|profile| RUNTIMES.map(|(groups, _)| format!("{} with {groups}", profile.name)));
    let keeping = profile::ALL.iter().map(|profile| format!("{}{VARIABLES}", profile.name));
    harness::run(cases.chain(starts).chain(keeping).map(|name| {
        let child = name.clone();
        let case = move || {
            let mut command = Command::new(std::env::current_exe()?);
            if child.ends_with(VARIABLES) {
                let variables = start::variables().into_iter();
                command.env_clear().envs(variables.map(|name| (name, "a value")));
            }
            let status = command.args(["--child", &child]).stdin(Stdio::null()).status()?;
            expect(status.success(), &status)
        };
        (name, case)
    }))
}

fn enter(profile: &'static Profile, allow_missing_landlock: bool) -> Result<Enforced, Fault> {
    let places = Places::new().with("kubelet-root", "/tmp")?.with("service-account", "/tmp")?;
    let places = places.with("backend-socket-directory", "/tmp")?;
    let places = ebs_csi_confine::tool::programs(places)?;
    Entering::begin(profile)?
        .allow_missing_landlock(allow_missing_landlock)
        .identity()?
        .files(&places)?
        .calls()
}

fn below_the_floor(profile: &'static Profile) -> TestResult {
    expect_fault(enter(profile, false), |fault| {
        matches!(fault, Fault::LandlockMissing { found: 0, profile_floor: 1 })
    })
}

fn expect(holds: bool, found: &dyn Debug) -> TestResult {
    if holds { Ok(()) } else { Err(format!("{found:?}").into()) }
}

fn expect_fault(entered: Result<Enforced, Fault>, right: impl Fn(&Fault) -> bool) -> TestResult {
    expect(entered.as_ref().is_err_and(right), &entered)
}

/// Makes the kernel look as if it was built without Landlock.
fn hide_landlock() {
    refuse(libc::SYS_landlock_create_ruleset, libc::ENOSYS);
}

/// Makes the kernel answer every call of this number with this error.
fn refuse(call: libc::c_long, errno: i32) {
    let rules = BTreeMap::from([(call, Vec::new())]);
    let machine = std::env::consts::ARCH.try_into().expect("a known machine");
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(errno.unsigned_abs()),
        machine,
    )
    .expect("a filter");
    let program: seccompiler::BpfProgram = filter.try_into().expect("a program");
    seccompiler::apply_filter(&program).expect("the kernel takes it");
}

fn become_user(uid: u32, gid: u32, groups: &[u32]) -> TestResult {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    // The kernel clears the capability sets with this change.
    Ok(set_thread_res_uid(uid, uid, uid)?)
}

/// Returns the kernel's Landlock ABI as the crate that makes the rules reports it; 0 where there is
/// no Landlock. Restricts the process.
fn reported_landlock() -> Result<i32, RulesetError> {
    let rules = Ruleset::default().handle_access(AccessFs::Execute)?;
    let status = rules.create()?.restrict_self()?;
    Ok(match status.landlock {
        LandlockStatus::Available { effective_abi, kernel_abi } => {
            kernel_abi.unwrap_or(effective_abi as i32)
        }
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => 0,
    })
}
