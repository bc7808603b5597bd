//! The exported seccomp profiles against the compiled filters: for every call and for arguments
//! around each value that a rule names, both have the same answer.

#[path = "../../confine/src/call_number.rs"]
#[allow(dead_code)]
mod call_number;
#[path = "../../confine/src/syscall_filter/tests/kernel.rs"]
mod kernel;

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};

use ebs_csi_policy::profile::{self, CallRule, Condition, Profile};
use kernel::{Answer, MACHINES, OWN, answer, named};
use rustix::process::Pid;
use serde_json::Value;

/// Beyond the numbers of all calls.
const LAST_CALL: u32 = 1024;

fn export(what: &str) -> Output {
    let program = env!("CARGO_BIN_EXE_ebs-csi-policy");
    Command::new(program).args(["export", what]).output().expect("the binary starts")
}

/// Returns the answer of an exported profile, by the entries of each call.
fn exported(entries: &[&Value], arguments: &[u64; 6]) -> Answer {
    let matches = |entry: &&&Value| {
        entry["args"].as_array().into_iter().flatten().all(|condition| {
            assert_eq!(condition["op"], "SCMP_CMP_MASKED_EQ");
            let [index, mask, value] =
                ["index", "value", "valueTwo"].map(|name| condition[name].as_u64().unwrap());
            arguments[usize::try_from(index).unwrap()] & mask == value
        })
    };
    let mut answers: Vec<_> = entries
        .iter()
        .filter(matches)
        .map(|entry| match entry["action"].as_str() {
            Some("SCMP_ACT_ALLOW") => Answer::Allow,
            Some("SCMP_ACT_ERRNO") => {
                Answer::Errno(i32::try_from(entry["errnoRet"].as_i64().unwrap()).unwrap())
            }
            other => panic!("{other:?}"),
        })
        .collect();
    answers.dedup();
    assert!(answers.len() <= 1, "two answers: {entries:?} {arguments:?}");
    answers.first().copied().unwrap_or(Answer::Kill)
}

/// Returns values around those that the conditions on an argument name.
fn values(rules: &[&CallRule], index: u8) -> BTreeSet<u64> {
    let named = rules.iter().flat_map(|rule| named(rule.condition));
    let named = named.filter(|(argument, _)| *argument == index).map(|(_, value)| value);
    let near = named.chain([0, u64::from(u32::MAX)]).flat_map(|one| {
        [one, one.wrapping_add(1), one.wrapping_sub(1), one ^ 0x8000_0000, one << 1, !one]
    });
    // What stands in the upper half of most arguments is not read.
    near.flat_map(|one| [one, one ^ (1 << 40)]).collect()
}

fn is_about_caller(rules: &[&CallRule]) -> bool {
    rules.iter().any(|rule| matches!(rule.condition, Condition::Itself { .. }))
}

/// Compares the answers about a call for all combinations of the arguments that a rule is about.
fn compare(filters: &[Vec<u8>], entries: &[&Value], rules: &[&CallRule], number: u32) -> usize {
    let mut all = vec![[0; 6], [u64::MAX; 6]];
    let named = rules.iter().flat_map(|rule| named(rule.condition));
    for index in named.map(|(argument, _)| argument).collect::<BTreeSet<u8>>() {
        let values = values(rules, index);
        let varied = all.iter().flat_map(|arguments| {
            values.iter().map(move |value| {
                let mut arguments = *arguments;
                arguments[usize::from(index)] = *value;
                arguments
            })
        });
        all = varied.collect();
    }
    for arguments in &all {
        let found = exported(entries, arguments);
        if is_about_caller(rules) {
            assert_eq!(found, Answer::Kill);
        } else {
            let expected = answer(filters, MACHINES[0], number, *arguments);
            assert_eq!(found, expected, "{rules:?} {arguments:x?}");
        }
    }
    all.len()
}

fn check(name: &str, profile: &'static Profile, choice: Option<&str>, exported: &Value) {
    let choice = choice.map(|name| profile.choices.iter().find(|one| one.name == name).unwrap());
    let process = Pid::from_raw(OWN).unwrap();
    let filters = ebs_csi_confine::filters(profile, choice, process).unwrap();
    assert_eq!(exported["defaultAction"], "SCMP_ACT_KILL_PROCESS");
    let mut entries: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for entry in exported["syscalls"].as_array().unwrap() {
        for call in entry["names"].as_array().unwrap() {
            entries.entry(call.as_str().unwrap()).or_default().push(entry);
        }
    }
    let known: BTreeMap<i64, &str> =
        call_number::names().map(|name| (call_number::of(name).unwrap(), name)).collect();
    let unknown = entries.keys().find(|name| call_number::of(name).is_none());
    assert_eq!(unknown, None, "{name}");
    let chosen = choice.map_or(&[][..], |choice| choice.calls);
    let mut compared = 0;
    for number in 0..LAST_CALL {
        let call = known.get(&i64::from(number)).copied().unwrap_or_default();
        let rules = profile.calls.iter().chain(chosen).filter(|rule| rule.call == call);
        let rules: Vec<_> = rules.collect();
        let own = entries.get(call).map_or(&[][..], Vec::as_slice);
        compared += compare(&filters, own, &rules, number);
        if is_about_caller(&rules) {
            assert_eq!((name, call), ("tool", "tgkill"), "left out");
        }
    }
    println!("{name}: {compared} calls compared");
}

#[test]
fn exported_profiles_answer_as_compiled_filters() {
    let all: Value = serde_json::from_slice(&export("--all").stdout).expect("JSON");
    let mut names = 0;
    for profile in profile::ALL {
        let choices = profile.choices.iter().map(|choice| Some(choice.name));
        for choice in [None].into_iter().chain(choices) {
            let more = choice.map_or_else(String::new, |choice| format!("+{choice}"));
            let name = format!("{}{more}", profile.name);
            let own: Value = serde_json::from_slice(&export(&name).stdout).expect("JSON");
            assert_eq!(all[&name], own, "{name}");
            check(&name, profile, choice, &own);
            names += 1;
        }
    }
    assert_eq!(all.as_object().unwrap().len(), names);
}

#[test]
fn export_of_unknown_name_is_bad_usage() {
    for name in ["nobody", "broker+vsock", "", "+vsock"] {
        assert_eq!(export(name).status.code(), Some(64), "{name}");
    }
}
