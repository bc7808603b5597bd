//! What the programs' settings do to the policy.

use hmac_sha256::Hash;

use crate::{Policy, pattern};

/// A row of `settings.toml`: a flag whose value may change what is permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// `mount-helper` or `node-agent`.
    pub program: &'static str,
    /// The flag with its dashes.
    pub flag: &'static str,
    /// Values with which less is permitted. `*` at the end of a value stands for anything.
    pub narrower: &'static [&'static str],
    /// Values with which the policy is as without the flag.
    pub same: &'static [&'static str],
    /// Known values with which more is permitted; every value that no list has counts so, too.
    pub wider: &'static [&'static str],
    /// The value without the flag, which is never a wider one.
    pub default: Option<&'static str>,
    /// The flag has no value, and is wider.
    pub switch: bool,
    /// The flag counts each time that it is given.
    pub several: bool,
    /// Why its values are as they are.
    pub why: &'static str,
}

/// What a value of a setting does to the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Less is permitted.
    Narrower,
    /// Nothing changes.
    Same,
    /// More is permitted.
    Wider,
}

mod compiled {
    use super::Setting;
    include!(concat!(env!("OUT_DIR"), "/settings.rs"));
}

/// Every row.
pub const SETTINGS: &[Setting] = compiled::SETTINGS;

impl Setting {
    /// Returns what this value does.
    #[must_use]
    pub fn effect(&self, value: &str) -> Effect {
        let named =
            |patterns: &[&str]| patterns.iter().any(|pattern| pattern::matches(pattern, value));
        if self.switch {
            Effect::Wider
        } else if named(self.narrower) {
            Effect::Narrower
        } else if named(self.same) {
            Effect::Same
        } else {
            Effect::Wider
        }
    }
}

/// Returns the value that a flag of a program has when it is not given; empty without a row that
/// has one, which no value parses.
#[must_use]
pub fn default_of(program: &str, flag: &str) -> &'static str {
    let row = SETTINGS.iter().find(|row| row.program == program && row.flag == flag);
    row.and_then(|row| row.default).unwrap_or_default()
}

/// Returns the settings of a program that permit more than its policy, as `--flag` or
/// `--flag=value`, from its flags and their values; the value of a switch is ignored. A flag
/// without a row counts as wider.
#[must_use]
pub fn wider<'a>(program: &str, given: &[(&'a str, &'a str)]) -> Vec<String> {
    let row = |flag: &str| SETTINGS.iter().find(|row| row.program == program && row.flag == flag);
    let counts = |(at, (flag, _)): &(usize, &(&str, &str))| {
        let is_later = || given[at + 1..].iter().any(|(later, _)| later == flag);
        row(flag).is_some_and(|row| row.several) || !is_later()
    };
    let wider =
        given.iter().enumerate().filter(counts).filter_map(|(_, (flag, value))| {
            match row(flag).map(|row| (row, row.effect(value))) {
                Some((_, Effect::Narrower | Effect::Same)) => None,
                Some((Setting { switch: true, .. }, _)) => Some((*flag).to_owned()),
                _ => Some(format!("{flag}={value}")),
            }
        });
    let mut wider: Vec<String> = wider.collect();
    wider.sort();
    wider.dedup();
    wider
}

/// Returns the digest of what is in force with these settings of [`wider`]: the policy's own when
/// none permits more, otherwise SHA-256 over it and a line for each setting. A flag that chooses
/// the policy has its effect in the policy's digest.
#[must_use]
pub fn digest_in_force(policy: &Policy, wider: &[String]) -> String {
    let mut settings = wider.iter().filter(|one| Policy::chosen_by(one).is_none()).peekable();
    if settings.peek().is_none() {
        return policy.digest.to_owned();
    }
    let mut hash = Hash::new();
    hash.update(policy.digest.as_bytes());
    for setting in settings {
        // The length prevents two different sets of settings from having the same input.
        hash.update(format!("\n{} {setting}", setting.len()).as_bytes());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
