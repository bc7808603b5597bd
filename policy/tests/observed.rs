//! What processes were seen to do: `observed/NAME.txt` has the system calls that processes of a
//! profile made under their whole filter, as `deploy/testing/observed-calls --write` found them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use ebs_csi_policy::profile::{ALL, CallAnswer, CallRule, Profile};

/// A runner has no filter of its own, and a relay needs vsock, which few machines have.
const NOT_OBSERVED: [&str; 2] = ["relay", "runner"];
/// Calls that arm64 lacks, and the form there. The calls were observed on x86-64.
const ON_ARM64: [(&str, &str); 6] = [
    ("access", "faccessat"),
    ("dup2", "dup3"),
    ("epoll_wait", "epoll_pwait"),
    ("open", "openat"),
    ("poll", "ppoll"),
    ("unlink", "unlinkat"),
];

fn observed_profiles() -> impl Iterator<Item = &'static Profile> {
    ALL.into_iter().filter(|profile| !NOT_OBSERVED.contains(&profile.name))
}

fn rules(profile: &'static Profile) -> impl Iterator<Item = &'static CallRule> {
    profile.calls.iter().chain(profile.choices.iter().flat_map(|choice| choice.calls))
}

/// Returns the calls of each profile that were seen, by its name.
fn observed() -> BTreeMap<&'static str, BTreeSet<String>> {
    let root = std::env::var_os("CARGO_MANIFEST_DIR").expect("tests are run by cargo");
    let directory = Path::new(&root).join("observed");
    let of_profile = |profile: &Profile| {
        let file = directory.join(format!("{}.txt", profile.name));
        let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let calls: BTreeSet<String> = text.lines().map(str::to_owned).collect();
        assert!(calls.len() > 10, "{} has few calls", file.display());
        (profile.name, calls)
    };
    let all: BTreeMap<_, _> = observed_profiles().map(of_profile).collect();
    assert_eq!(fs::read_dir(directory).unwrap().count(), all.len());
    all
}

#[test]
fn every_observed_call_has_a_rule() {
    let observed = observed();
    for profile in observed_profiles() {
        let known: BTreeSet<&str> = rules(profile).map(|rule| rule.call).collect();
        let calls = observed[profile.name].iter();
        let unknown: Vec<_> = calls.filter(|call| !known.contains(call.as_str())).collect();
        assert!(unknown.is_empty(), "{}: {unknown:?}", profile.name);
    }
}

/// A call that is answered with an error gives nothing and needs no observation. A row of a group
/// counts for all profiles that use it.
#[test]
fn allowed_call_is_observed_or_kept() {
    let observed = observed();
    let is_used = |profile: &Profile, call: &str| {
        let seen = &observed[profile.name];
        let stands_for = |(here, there): &(&str, &str)| *there == call && seen.contains(*here);
        seen.contains(call) || ON_ARM64.iter().any(stands_for)
    };
    let mut unused = Vec::new();
    let mut kept: BTreeMap<_, Vec<bool>> = BTreeMap::new();
    for profile in observed_profiles() {
        for rule in rules(profile).filter(|rule| rule.answer == CallAnswer::Allow) {
            let is_used = is_used(profile, rule.call);
            match rule.kept {
                None if is_used => {}
                None => unused.push((profile.name, rule.call)),
                Some(why) => kept.entry((rule.call, rule.why, why)).or_default().push(is_used),
            }
        }
    }
    assert!(unused.is_empty(), "neither observed nor kept: {unused:?}");
    let needless: Vec<_> = kept.iter().filter(|(_, used)| used.iter().all(|used| *used)).collect();
    assert!(needless.is_empty(), "kept, and observed wherever it stands: {needless:?}");
    assert!(kept.len() > 10, "{kept:?}");
}
