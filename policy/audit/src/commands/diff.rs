//! The command `diff`: the privileges that one policy gives and another does not.

mod keys;
mod privileges;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;

use ebs_csi_audit::answer::printable;
use privileges::read;
use tables::UNREPORTED;

use crate::Failure;
use crate::commands::policy_of;

/// The status when the second policy gives what the first did not.
const GAINED: u8 = 1;

/// Privileges by their names; with a number where more of it is a wider privilege.
type Privileges = BTreeMap<String, Option<u64>>;

/// What the files of a `policy/` directory say.
#[derive(Default)]
struct Given {
    privileges: Privileges,
    /// What is refused or looked at: fewer of these give more.
    restrictions: BTreeSet<String>,
}

/// Compares two checkouts, or their `policy/` directories.
pub(crate) fn diff(before: &str, after: &str, out: &mut impl Write) -> Result<u8, Failure> {
    let given = |checkout: &str| read(&policy_of(Path::new(checkout))).map_err(io::Error::other);
    let (before, after) = (given(before)?, given(after)?);
    let (gained, lost) = (gained(&before, &after), gained(&after, &before));
    for (word, lines) in [("gained", &gained), ("lost", &lost)] {
        for line in lines {
            writeln!(out, "{word:<6} {}", printable(line))?;
        }
    }
    writeln!(out, "{} gained, {} lost", gained.len(), lost.len())?;
    Ok(if gained.is_empty() { 0 } else { GAINED })
}

/// Returns what the second policy gives beyond the first.
fn gained(before: &Given, after: &Given) -> Vec<String> {
    let added = after.privileges.iter().filter_map(|(name, amount)| {
        let former = before.privileges.get(name);
        match (former, amount) {
            (Some(Some(former)), Some(now)) if now > former => {
                let shown =
                    |one: u64| if one == u64::MAX { "none".to_owned() } else { one.to_string() };
                Some(format!("{name}: {} instead of {}", shown(*now), shown(*former)))
            }
            (None, _) if !is_part(name, &before.privileges) => Some(name.clone()),
            _ => None,
        }
    });
    let removed = before.restrictions.difference(&after.restrictions);
    added.chain(removed.map(|one| format!("without {one}"))).collect()
}

/// Returns whether a privilege is part of a wider one: a call under a condition of the call without
/// any or with one condition less, a right on a file of the right on all.
fn is_part(privilege: &str, of: &Privileges) -> bool {
    let Some((profile, what)) = privilege.split_once(": ") else { return false };
    let has = |wider: &str| of.contains_key(&format!("{profile}: {wider}"));
    // The condition on a second argument stands in braces.
    let second = what.split_once(" and {").and_then(|(before, rest)| {
        let (_, after) = rest.split_once('}')?;
        Some(format!("{before}{after}"))
    });
    match what.split(' ').collect::<Vec<_>>()[..] {
        ["call", call, _, ..] => {
            has(&format!("call {call}")) || second.is_some_and(|wider| has(&wider))
        }
        ["file", ..] => has("files free"),
        _ => has(UNREPORTED),
    }
}
