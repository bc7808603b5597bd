//! The exported seccomp profiles against the compiled filters: for every call and for arguments
//! around each value that a rule names, both have the same answer.

#[path = "../../confine/src/call_number.rs"]
#[allow(dead_code)]
mod call_number;

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};

use ebs_csi_policy::profile::{self, CallRule, Condition, Profile};
use rustix::process::Pid;
use serde_json::Value;

/// The results of a filter (linux/seccomp.h).
const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;
const ALLOW: u32 = 0x7fff_0000;
/// `AUDIT_ARCH_X86_64` and `AUDIT_ARCH_AARCH64` of linux/audit.h.
const MACHINE: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
/// The process of the filters, which a rule may name.
const PROCESS: i32 = 7;
/// Beyond the numbers of all calls.
const LAST_CALL: i64 = 1024;

fn export(what: &str) -> Output {
    let program = env!("CARGO_BIN_EXE_ebs-csi-policy");
    Command::new(program).args(["export", what]).output().expect("the binary starts")
}

/// Runs a filter on a call, as the kernel does.
fn run(program: &[u8], number: i64, arguments: &[u64; 6]) -> u32 {
    let mut data = [0; 64];
    data[..4].copy_from_slice(&u32::try_from(number).unwrap().to_ne_bytes());
    data[4..8].copy_from_slice(&MACHINE.to_ne_bytes());
    for (index, argument) in arguments.iter().enumerate() {
        data[16 + 8 * index..][..8].copy_from_slice(&argument.to_ne_bytes());
    }
    let (mut at, mut accumulator) = (0, 0_u32);
    loop {
        let instruction: [u8; 8] = program[8 * at..][..8].try_into().unwrap();
        let [code0, code1, jt, jf, k @ ..] = instruction;
        let (code, k) = (u16::from_ne_bytes([code0, code1]), u32::from_ne_bytes(k));
        at += 1;
        let holds = match code {
            // BPF_LD | BPF_W | BPF_ABS, BPF_ALU | BPF_AND | BPF_K, BPF_RET, BPF_JMP | BPF_JA
            0x20 => {
                let word = data[k as usize..][..4].try_into().unwrap();
                accumulator = u32::from_ne_bytes(word);
                continue;
            }
            0x54 => {
                accumulator &= k;
                continue;
            }
            0x06 => return k,
            0x05 => {
                at += k as usize;
                continue;
            }
            // BPF_JMP with BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET
            0x15 => accumulator == k,
            0x25 => accumulator > k,
            0x35 => accumulator >= k,
            0x45 => accumulator & k != 0,
            other => panic!("instruction {other:#x}"),
        };
        at += usize::from(if holds { jt } else { jf });
    }
}

/// Returns the answer of all filters of a process: the strictest.
fn compiled(filters: &[Vec<u8>], number: i64, arguments: &[u64; 6]) -> u32 {
    let answers = filters.iter().map(|filter| run(filter, number, arguments));
    answers.min_by_key(|answer| (answer & 0xffff_0000).cast_signed()).unwrap()
}

/// Returns the answer of an exported profile, by the entries of each call.
fn exported(entries: &[&Value], arguments: &[u64; 6]) -> u32 {
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
            Some("SCMP_ACT_ALLOW") => ALLOW,
            Some("SCMP_ACT_ERRNO") => {
                ERRNO | u32::try_from(entry["errnoRet"].as_u64().unwrap()).unwrap()
            }
            other => panic!("{other:?}"),
        })
        .collect();
    answers.dedup();
    assert!(answers.len() <= 1, "two answers: {entries:?} {arguments:?}");
    answers.first().copied().unwrap_or(KILL_PROCESS)
}

/// Returns values around those that the conditions on an argument name.
fn values(rules: &[&CallRule], index: u8) -> Vec<u64> {
    let mut named = vec![0, u64::from(u32::MAX)];
    for rule in rules {
        if let Condition::OneOf { and: Some((other, mask, values)), .. } = rule.condition
            && other == index
        {
            named.push(mask);
            named.extend(values.iter().map(|value| value.number));
        }
        match rule.condition {
            Condition::OneOf { argument, values, mask, .. }
            | Condition::NoneOf { argument, values, mask }
                if argument == index =>
            {
                named.push(mask);
                named.extend(values.iter().map(|value| value.number));
            }
            Condition::HasBits { argument, bits } if argument == index => named.push(bits.number),
            Condition::LacksBits(bits) => {
                let own = bits.iter().filter(|(argument, _)| *argument == index);
                named.extend(own.map(|(_, bits)| bits.number));
            }
            Condition::Below { argument, limit } | Condition::NotBelow { argument, limit }
                if argument == index =>
            {
                named.push(limit.into());
            }
            Condition::Itself { argument } if argument == index => named.push(8),
            _ => {}
        }
    }
    let around = named.into_iter().flat_map(|one| {
        let near =
            [one, one.wrapping_add(1), one.wrapping_sub(1), one ^ 0x8000_0000, one << 1, !one];
        // What stands in the upper half of most arguments is not read.
        near.into_iter().flat_map(|one| [one, one ^ (1 << 40)])
    });
    let mut all: Vec<_> = around.collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn is_about_caller(rules: &[&CallRule]) -> bool {
    rules.iter().any(|rule| matches!(rule.condition, Condition::Itself { .. }))
}

/// Returns the arguments that the conditions are about.
fn indices(rules: &[&CallRule]) -> BTreeSet<u8> {
    let of = |rule: &&CallRule| match rule.condition {
        Condition::Always => Vec::new(),
        Condition::LacksBits(bits) => bits.iter().map(|(argument, _)| *argument).collect(),
        Condition::OneOf { argument, and: Some((other, ..)), .. } => vec![argument, other],
        Condition::OneOf { argument, .. }
        | Condition::NoneOf { argument, .. }
        | Condition::HasBits { argument, .. }
        | Condition::Itself { argument }
        | Condition::Below { argument, .. }
        | Condition::NotBelow { argument, .. } => vec![argument],
    };
    rules.iter().flat_map(of).collect()
}

/// Compares the answers about a call for all combinations of the arguments that a rule is about.
fn compare(filters: &[Vec<u8>], entries: &[&Value], rules: &[&CallRule], number: i64) -> usize {
    let mut all = vec![[0; 6], [u64::MAX; 6]];
    for index in indices(rules) {
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
            assert_eq!(found, KILL_PROCESS);
        } else {
            let expected = compiled(filters, number, arguments);
            assert_eq!(found, expected, "{rules:?} {arguments:x?}");
        }
    }
    all.len()
}

fn check(name: &str, profile: &'static Profile, choice: Option<&str>, exported: &Value) {
    let choice = choice.map(|name| profile.choices.iter().find(|one| one.name == name).unwrap());
    let process = Pid::from_raw(PROCESS).unwrap();
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
        let call = known.get(&number).copied().unwrap_or_default();
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
