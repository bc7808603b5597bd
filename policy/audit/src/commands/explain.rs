//! What the rules are.

use std::io::Write;

use ebs_csi_audit::answer::Answer;
use ebs_csi_audit::rules::{self, NEVER_SEEN, RULES, Rule};
use ebs_csi_policy::profile::{self, Profile};

use crate::{Failure, named_profile};

/// The rules about all processes of a machine, what each compares, and why.
const OF_MACHINE: [(&str, &str, &str); 2] = [
    (
        "processes",
        "that a node-agent and a mount-helper run together, and that each was read in full",
        "a process that is not there was renamed, hides, or has failed",
    ),
    (
        "programs",
        "that no other program has a user of the driver or was started by it",
        "a copy of a program under another name is judged by no profile",
    ),
];

pub(crate) fn explain(what: Option<&str>, out: &mut impl Write) -> Result<u8, Failure> {
    match what.map(|what| what.split_once('/').ok_or(what)) {
        None => {
            for rule in RULES {
                writeln!(out, "{:<14} {}", rule.name, rule.about)?;
            }
            for (name, about, _) in OF_MACHINE {
                writeln!(out, "{}/{name:<10} {about}", Answer::MACHINE)?;
            }
        }
        Some(Err(name)) => {
            let profile = named_profile(name)?;
            for rule in RULES.iter().filter(|rule| rule.applies_to(profile)) {
                let expected = rules::expected(rule.name, profile);
                writeln!(out, "{name}/{:<14} {expected}", rule.name)?;
            }
        }
        Some(Ok((of, name))) if of == Answer::MACHINE => {
            let found = OF_MACHINE.iter().find(|(known, ..)| *known == name);
            let (_, about, why) = found.ok_or_else(|| unknown(of, name))?;
            writeln!(out, "{of}/{name}\ncompares  {about}\nwhy       {why}")?;
        }
        Some(Ok((of, name))) => {
            let profile = named_profile(of)?;
            let rule = Rule::named(name).filter(|rule| rule.applies_to(profile));
            write_rule(rule.ok_or_else(|| unknown(of, name))?, profile, out)?;
        }
    }
    Ok(0)
}

fn unknown(of: &str, name: &str) -> Failure {
    Failure::Usage(format!("there is no rule {:?}, see explain", format!("{of}/{name}")))
}

fn write_rule(rule: Rule, profile: &Profile, out: &mut impl Write) -> Result<(), Failure> {
    let Profile { name, about, .. } = profile;
    writeln!(out, "{name}/{}\nprocess   {name}, which {about}", rule.name)?;
    writeln!(out, "compares  {}", rule.about)?;
    writeln!(out, "expects   {}", rules::expected(rule.name, profile))?;
    for reason in rule.reasons(profile) {
        writeln!(out, "why       {reason}")?;
    }
    let seen = match rule.name {
        name if NEVER_SEEN.contains(&name) => "never, which leaves the exit status as it is",
        rules::DIGEST => "with --digests FILE",
        rules::PROCESSES => "with --tree and --all",
        _ => "always; a process that hides it makes the exit status 2",
    };
    writeln!(out, "seen      {seen}")?;
    let others = profile::ALL.into_iter().filter(|other| rule.applies_to(other));
    let others: Vec<_> = others.map(|other| other.name).collect();
    writeln!(out, "profiles  {}", others.join(" "))?;
    Ok(())
}
