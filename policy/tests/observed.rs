//! What processes were seen to do under their whole filter, as `deploy/testing/observed-calls
//! --write` found it: `observed/NAME.txt` has the system calls of a profile, the rows by which
//! files were opened, and the capabilities that the kernel granted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use ebs_csi_policy::profile::{ALL, CallAnswer, CallRule, FilePlace, Profile};

/// It has no filter of its own.
const NOT_OBSERVED: &str = "runner";
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
    ALL.into_iter().filter(|profile| profile.name != NOT_OBSERVED)
}

fn rules(profile: &'static Profile) -> impl Iterator<Item = &'static CallRule> {
    profile.calls.iter().chain(profile.choices.iter().flat_map(|choice| choice.calls))
}

/// Returns what may stand in a profile's file.
fn allowed(profile: &'static Profile) -> BTreeSet<String> {
    let calls = rules(profile).map(|rule| rule.call.to_owned());
    let held = profile.capabilities.iter();
    let capabilities = held.map(|held| format!("capability {}", held.capability.name));
    let opens = profile.landlock.files.rules().iter().flat_map(|row| {
        let place = match row.place {
            FilePlace::Path(path) => path.to_owned(),
            FilePlace::Named(name) => format!("<{name}>"),
        };
        row.rights.iter().map(move |right| format!("open {place} {right:?}"))
    });
    calls.chain(capabilities).chain(opens).collect()
}

/// Returns the lines of each profile's file, by its name.
fn observed() -> BTreeMap<&'static str, BTreeSet<String>> {
    let root = std::env::var_os("CARGO_MANIFEST_DIR").expect("tests are run by cargo");
    let directory = Path::new(&root).join("observed");
    let of_profile = |profile: &Profile| {
        let file = directory.join(format!("{}.txt", profile.name));
        let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let lines: BTreeSet<String> = text.lines().map(str::to_owned).collect();
        assert!(lines.len() > 10, "{} has few calls", file.display());
        (profile.name, lines)
    };
    let all: BTreeMap<_, _> = observed_profiles().map(of_profile).collect();
    assert_eq!(fs::read_dir(directory).unwrap().count(), all.len());
    all
}

#[test]
fn observed_call_open_and_capability_have_a_rule() {
    let observed = observed();
    for profile in observed_profiles() {
        let allowed = allowed(profile);
        let unknown: Vec<_> = observed[profile.name].difference(&allowed).collect();
        assert!(unknown.is_empty(), "{}: {unknown:?}", profile.name);
    }
}

#[test]
fn capability_was_granted_or_is_kept() {
    let observed = observed();
    for profile in observed_profiles() {
        for held in profile.capabilities {
            let line = format!("capability {}", held.capability.name);
            let granted = observed[profile.name].contains(&line);
            assert_eq!(granted, held.kept.is_none(), "{}: {held:?}", profile.name);
        }
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
