//! The compiled-in policy in words.

use std::io::{self, Write};

use ebs_csi_policy::Value;
use ebs_csi_policy::blank::{self, Area};
use ebs_csi_policy::flag::{self, FlagRule, RefusedFlag};
use ebs_csi_policy::place::{self, Place, RequestProperties};
use ebs_csi_policy::profile::{self, CallAnswer, Condition, FilePlace, Files, Profile};
use ebs_csi_policy::tool::{self, Tool};

use crate::{Failure, named_profile};

pub(crate) fn show(what: Option<&str>, out: &mut impl Write) -> Result<u8, Failure> {
    match what {
        None => {
            for Profile { name, identity, calls, about, .. } in profile::ALL {
                let (uid, rules) = (identity.uid, calls.len());
                writeln!(
                    out,
                    "{name:<12} user {uid:>5}  {rules:>3} rules on system calls  {about}"
                )?;
            }
        }
        Some("flags") => {
            for FlagRule { name, file_systems, value, effect, why, .. } in flag::FLAGS {
                let file_systems: Vec<_> = file_systems.iter().map(|fs| fs.as_str()).collect();
                let file_systems = file_systems.join(",");
                writeln!(out, "{name:<22} {file_systems:<15} {value:?} {effect:?}  {why}")?;
            }
            for RefusedFlag { name, why } in flag::REFUSED {
                writeln!(out, "{name:<22} refused: {why}")?;
            }
        }
        Some("places") => {
            for Place { class, pattern, operations, why, .. } in place::PLACES {
                let class = class.as_str();
                writeln!(out, "{class:<10} {pattern:<52} {operations:?}  {why}")?;
            }
        }
        Some("requests") => {
            for RequestProperties { name, about, slots, workers, paths, .. } in place::REQUESTS {
                let rules = paths.iter().map(|rule| format!("{} at {:?} ", rule.field, rule.uses));
                let (paths, about) = (rules.collect::<String>(), about.trim());
                writeln!(out, "{name:<18} {workers:?} {slots:?} {paths} {about}")?;
            }
        }
        Some("tools") => {
            for Tool { key, path, arguments, tail, about, .. } in tool::TOOLS {
                let (arguments, tail) = (arguments.join(" "), tail.join(" "));
                writeln!(out, "{key:<12} {path} {arguments} … {tail}  {about}")?;
            }
        }
        Some("blank") => {
            for Area { from, offset, length, why } in blank::AREAS {
                writeln!(out, "{from:?} {offset:>14} length {length:>8}  {why}")?;
            }
        }
        Some(name) => {
            show_profile(named_profile(name)?, out)?;
        }
    }
    Ok(0)
}

fn show_profile(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let identity = &profile.identity;
    writeln!(out, "{}: {}", profile.name, profile.about)?;
    writeln!(
        out,
        "user {} group {} groups {:?}: {}",
        identity.uid, identity.gid, identity.groups, identity.why
    )?;
    for held in profile.capabilities {
        let how = if held.effective { "effective" } else { "raised when needed" };
        let (name, why, kept) = (held.capability.name, held.why, kept(held.kept));
        writeln!(out, "capability {name} ({how}): {why}{kept}")?;
    }
    for limit in profile.limits {
        writeln!(out, "limit {:?} {}: {}", limit.resource, limit.value, limit.why)?;
    }
    for listener in profile.listeners {
        let how = match listener.accepted_by {
            None => "listens where".to_owned(),
            Some(other) => format!("serves what {other} accepts where"),
        };
        writeln!(out, "{how} {} says: {}", listener.flag, listener.why)?;
    }
    let landlock = &profile.landlock;
    writeln!(
        out,
        "landlock from ABI {} tcp {:?} scopes {:?}: {}",
        landlock.floor, landlock.tcp, landlock.scopes, landlock.why
    )?;
    match landlock.files {
        Files::Free => writeln!(out, "files: free")?,
        Files::Inherited => writeln!(out, "files: inherited")?,
        Files::Listed(rules) => {
            for rule in rules {
                let place = match rule.place {
                    FilePlace::Path(path) => path.to_owned(),
                    FilePlace::Named(name) => format!("<{name}>"),
                };
                writeln!(out, "files {place} {:?}: {}", rule.rights, rule.why)?;
            }
        }
    }
    let chosen = profile.choices.iter().flat_map(|choice| {
        let rules = choice.calls.iter();
        rules.map(|rule| (rule, format!(" when chosen ({})", choice.name)))
    });
    let always = profile.calls.iter().map(|rule| (rule, String::new()));
    for (rule, when) in always.chain(chosen) {
        let condition = match rule.condition {
            Condition::Always => String::new(),
            Condition::OneOf { argument, values, and, .. } => {
                let one_of = |argument: u8, values: &[Value]| {
                    let names: Vec<_> = values.iter().map(|value| value.name).collect();
                    format!(" argument {argument} one of {}", names.join(" "))
                };
                let beside = and.map(|(argument, _, values)| one_of(argument, values));
                one_of(argument, values) + &beside.unwrap_or_default()
            }
            Condition::NoneOf { argument, .. } => format!(" argument {argument} any other"),
            Condition::HasBits { argument, bits } => {
                format!(" argument {argument} with {}", bits.name)
            }
            Condition::LacksBits(bits) => {
                let all = bits.iter();
                all.map(|(argument, bits)| format!(" argument {argument} without {}", bits.name))
                    .collect()
            }
            Condition::Itself { argument } => format!(" argument {argument} the process itself"),
            Condition::Below { argument, limit } => format!(" argument {argument} below {limit}"),
            Condition::NotBelow { argument, limit } => {
                format!(" argument {argument} from {limit} on")
            }
        };
        let answer = match rule.answer {
            CallAnswer::Allow => String::new(),
            CallAnswer::Errno(errno) => format!(" answered with {}", errno.name),
        };
        let (call, why, kept) = (rule.call, rule.why, kept(rule.kept));
        writeln!(out, "call {call}{condition}{answer}{when}: {why}{kept}")?;
    }
    Ok(())
}

/// Returns the reason for which a rule stays that was not seen to be used.
fn kept(why: Option<&str>) -> String {
    why.map_or_else(String::new, |why| format!(" (kept: {why})"))
}
