//! The system calls of a profile in the form of the OCI runtime specification (`linux.seccomp`).
//!
//! A runtime joins several conditions on one argument by "or", so that "none of these" and "at
//! least" cannot be said directly. Both become ranges here, and each range becomes masked
//! comparisons, which cover it exactly.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use ebs_csi_policy::profile::{self, CallAnswer, CallRule, Condition, Profile};

use super::json;
use crate::{Failure, named_profile};

/// The lower half of an argument, which is all that the kernel reads of most.
const INT: u64 = u32::MAX as u64;

/// A condition on an argument: its index, a mask, and the value of the masked argument.
type Masked = (u8, u64, u64);

pub(crate) fn export(what: &str, out: &mut impl Write) -> Result<u8, Failure> {
    if what == "--all" {
        let all = profile::ALL.into_iter().flat_map(|profile| {
            let choices = profile.choices.iter().map(|choice| Some(choice.name));
            [None]
                .into_iter()
                .chain(choices)
                .map(move |choice| (name(profile, choice), profile, choice))
        });
        let all: Vec<_> = all
            .map(|(name, profile, choice)| {
                format!("{}: {}", json::string(&name), filter(&calls(profile, choice), 2))
            })
            .collect();
        writeln!(out, "{{\n  {}\n}}", all.join(",\n  "))?;
        return Ok(0);
    }
    let (of, choice) = match what.split_once('+') {
        Some((of, choice)) => (of, Some(choice)),
        None => (what, None),
    };
    let profile = named_profile(of)?;
    if choice.is_some_and(|wanted| profile.choices.iter().all(|choice| choice.name != wanted)) {
        return Err(Failure::Usage(format!("there is no choice {what:?}")));
    }
    writeln!(out, "{}", filter(&calls(profile, choice), 0))?;
    Ok(0)
}

fn name(profile: &Profile, choice: Option<&str>) -> String {
    choice.map_or_else(|| profile.name.to_owned(), |choice| format!("{}+{choice}", profile.name))
}

fn calls(profile: &Profile, choice: Option<&str>) -> Vec<CallRule> {
    let chosen = profile.choices.iter().filter(|one| Some(one.name) == choice);
    let rules = profile.calls.iter().chain(chosen.flat_map(|choice| choice.calls));
    rules.filter(|rule| !rule.only_x86_64 || cfg!(target_arch = "x86_64")).copied().collect()
}

fn filter(rules: &[CallRule], indent: usize) -> String {
    let (outer, inner) = (" ".repeat(indent), " ".repeat(indent + 2));
    let machine = std::env::consts::ARCH.to_uppercase();
    let mut entries = Vec::new();
    // A call without a condition outweighs its conditions.
    let always: BTreeSet<(i32, &str)> = rules
        .iter()
        .filter(|rule| matches!(rule.condition, Condition::Always))
        .map(|rule| (errno(rule), rule.call))
        .collect();
    let mut names: BTreeMap<i32, Vec<&str>> = BTreeMap::new();
    for (errno, call) in &always {
        names.entry(*errno).or_default().push(call);
    }
    entries.extend(names.iter().map(|(errno, names)| entry(names, *errno, &[])));
    for rule in rules.iter().filter(|rule| !always.contains(&(errno(rule), rule.call))) {
        let conditions = alternatives(rule.condition);
        entries.extend(conditions.iter().map(|all| entry(&[rule.call], errno(rule), all)));
    }
    format!(
        "{{\n{inner}\"defaultAction\": \"SCMP_ACT_KILL_PROCESS\",\n\
         {inner}\"architectures\": [\"SCMP_ARCH_{machine}\"],\n\
         {inner}\"syscalls\": {}\n{outer}}}",
        json::lines(&entries, indent + 2),
    )
}

/// Returns the error with which a rule answers; 0 for a call that is executed.
fn errno(rule: &CallRule) -> i32 {
    match rule.answer {
        CallAnswer::Allow => 0,
        CallAnswer::Errno(errno) => errno.number,
    }
}

fn entry(names: &[&str], errno: i32, conditions: &[Masked]) -> String {
    let names: Vec<_> = names.iter().map(|name| json::string(name)).collect();
    let mut members = vec![("names", format!("[{}]", names.join(", ")))];
    if errno == 0 {
        members.push(("action", json::string("SCMP_ACT_ALLOW")));
    } else {
        members.push(("action", json::string("SCMP_ACT_ERRNO")));
        members.push(("errnoRet", errno.to_string()));
    }
    if !conditions.is_empty() {
        let conditions = conditions.iter().map(|(index, mask, value)| {
            json::object(&[
                ("index", index.to_string()),
                // The specification's order: the mask first.
                ("value", mask.to_string()),
                ("valueTwo", value.to_string()),
                ("op", json::string("SCMP_CMP_MASKED_EQ")),
            ])
        });
        let conditions: Vec<_> = conditions.collect();
        members.push(("args", format!("[{}]", conditions.join(", "))));
    }
    json::object(&members)
}

/// Returns the lists of conditions of which one must hold in full. None for a rule about the
/// caller's own process id, which is not known before the process runs.
fn alternatives(condition: Condition) -> Vec<Vec<Masked>> {
    let each = |argument: u8, ranges: Vec<(u64, u64)>| {
        ranges.into_iter().map(|(mask, value)| vec![(argument, mask, value)]).collect()
    };
    match condition {
        Condition::Always => vec![Vec::new()],
        Condition::Itself { .. } => Vec::new(),
        Condition::OneOf { argument, mask, values, and } => {
            let first = values.iter().map(|value| (argument, mask, value.number));
            match and {
                None => first.map(|one| vec![one]).collect(),
                Some((other, mask, others)) => first
                    .flat_map(|one| {
                        others.iter().map(move |value| vec![one, (other, mask, value.number)])
                    })
                    .collect(),
            }
        }
        Condition::NoneOf { argument, mask, values } => {
            let all = if mask > INT { u64::MAX } else { INT };
            let values: BTreeSet<u64> = values.iter().map(|value| value.number & all).collect();
            let mut ranges = Vec::new();
            let mut first = Some(0);
            for value in values {
                ranges.extend(first.filter(|first| *first < value).map(|first| (first, value - 1)));
                first = value.checked_add(1).filter(|next| *next <= all);
            }
            ranges.extend(first.map(|first| (first, all)));
            each(argument, ranges.into_iter().flat_map(|range| masks(range, all)).collect())
        }
        Condition::HasBits { argument, bits } => vec![vec![(argument, bits.number, bits.number)]],
        Condition::LacksBits(bits) => {
            vec![bits.iter().map(|(argument, bits)| (*argument, bits.number, 0)).collect()]
        }
        Condition::Below { argument, limit } => {
            each(argument, masks((0, u64::from(limit).saturating_sub(1)), INT))
        }
        Condition::NotBelow { argument, limit } => each(argument, masks((limit.into(), INT), INT)),
    }
}

/// Returns masks and values that together cover the range from the first number to the last, of
/// numbers in which the bits of `all` count.
fn masks((mut first, last): (u64, u64), all: u64) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    loop {
        // The largest block that begins here and ends within the range: its size less one.
        let aligned = if first == 0 { all } else { (1 << first.trailing_zeros()) - 1 };
        let mut block = aligned;
        while block > last - first {
            block >>= 1;
        }
        found.push((all & !block, first));
        match first.checked_add(block).and_then(|end| end.checked_add(1)) {
            Some(next) if next <= last => first = next,
            _ => return found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_cover_range_and_nothing_beside() {
        for (first, last) in [(0, 15), (0, 0), (15, 15), (1, 14), (5, 11), (0, 8), (8, 15), (3, 3)]
        {
            let masks = masks((first, last), 15);
            for number in 0..16_u64 {
                let matching = masks.iter().filter(|(mask, value)| number & mask == *value).count();
                let expected = usize::from((first..=last).contains(&number));
                assert_eq!(matching, expected, "{number} in {first}..={last}: {masks:?}");
            }
        }
        assert_eq!(masks((0, u64::MAX), u64::MAX), [(0, 0)]);
        assert_eq!(masks((u64::MAX, u64::MAX), u64::MAX), [(u64::MAX, u64::MAX)]);
    }
}
