//! System calls in `sandbox/*.toml`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{constants, literal};

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Group {
    #[serde(default)]
    why: String,
    kept: Option<String>,
    #[serde(default)]
    calls: Vec<String>,
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    calls: Vec<String>,
    argument: Option<u8>,
    masked: Option<String>,
    one_of: Option<Vec<String>>,
    // Beside `one_of`: the values of another argument, by its index.
    and: Option<BTreeMap<String, Vec<String>>>,
    has_bits: Option<String>,
    // Bits that no argument may have, by the argument's index.
    lacks_bits: Option<BTreeMap<String, String>>,
    // "kept": a descriptor below the profile's `kept_descriptors`; "new": any other.
    descriptor: Option<String>,
    // The argument is the process id of the caller.
    #[serde(default)]
    itself: bool,
    answer: Option<String>,
    // The error for every value that `one_of` or `descriptor` does not name; without it, such a
    // call ends the process.
    otherwise: Option<String>,
    // The rule belongs to the process only when its command line makes this choice.
    when: Option<String>,
    why: String,
    // Why the row stays though not every process with it was seen to make its calls.
    kept: Option<String>,
}

/// A rule of a process about one call, and where it stands.
pub(crate) struct Row {
    call: String,
    place: String,
    // That of the profile in whose list it is.
    kept_descriptors: u32,
    rule: Rule,
}

/// Returns the rules of a profile or of a group with their place.
pub(crate) fn rows(name: &str, rules: &[Rule], descriptors: u32) -> impl Iterator<Item = Row> {
    rules.iter().flat_map(move |rule| rule.rows(format!("[[{name}.rules]]"), descriptors))
}

impl Group {
    /// Returns all rules of the group, whose name this is.
    pub(crate) fn rows(&self, name: &str, descriptors: u32) -> impl Iterator<Item = Row> {
        let (calls, why, kept) = (self.calls.clone(), self.why.clone(), self.kept.clone());
        let free = Rule { calls, why, kept, ..Rule::default() };
        free.rows(format!("[{name}] calls"), descriptors).chain(rows(
            name,
            &self.rules,
            descriptors,
        ))
    }
}

/// Returns the literals of a process's rules, and of its choices.
pub(crate) fn compile(rows: &[Row]) -> Result<[String; 2], String> {
    for (at, row) in rows.iter().enumerate() {
        rows[..at].iter().try_for_each(|other| row.agrees_with(other))?;
    }
    let mut calls = Vec::new();
    let mut choices: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for row in rows {
        let list =
            row.rule.when.as_deref().map_or(&mut calls, |name| choices.entry(name).or_default());
        list.extend(literals(row)?);
    }
    let choices = choices.into_iter().map(|(name, calls)| {
        format!("Choice {{ name: {name:?}, calls: {} }}", literal::slice(calls))
    });
    Ok([literal::slice(calls), literal::slice(choices)])
}

impl Row {
    /// Refuses two rows about one call of which one undoes what the other says.
    fn agrees_with(&self, other: &Self) -> Result<(), String> {
        let ([one, two], call) = ([&other.rule, &self.rule], &self.call);
        if other.call != *call {
            return Ok(());
        }
        let shared = || {
            one.one_of
                .iter()
                .flatten()
                .find(|name| two.one_of.iter().flatten().any(|it| it == *name))
        };
        let [conditional, otherwise]: [fn(&Rule) -> bool; 2] =
            [Rule::has_condition, |rule| rule.otherwise.is_some()];
        let problem = match ([one, two].map(conditional), [one, two].map(otherwise)) {
            ([false, false], _) => "is free twice".to_owned(),
            ([false, true], _) => "is free and then conditional".to_owned(),
            ([true, false], _) => "is conditional and then free".to_owned(),
            (_, [true, _] | [_, true]) => "has another row beside one with `otherwise`".to_owned(),
            _ => match shared() {
                Some(name) => format!("has {name} twice"),
                None => return Ok(()),
            },
        };
        Err(format!("{call} {problem}: in {} and in {}", other.place, self.place))
    }
}

impl Rule {
    fn rows(&self, place: String, kept_descriptors: u32) -> impl Iterator<Item = Row> + use<> {
        let (rule, calls) = (self.clone(), self.calls.clone());
        let row =
            move |call| Row { call, place: place.clone(), kept_descriptors, rule: rule.clone() };
        calls.into_iter().map(row)
    }

    fn has_condition(&self) -> bool {
        self.argument.is_some() || self.lacks_bits.is_some()
    }

    /// Returns the rule's condition, and the opposite one where `otherwise` may name an answer to
    /// it. `descriptors` is the profile's number of kept descriptors.
    fn conditions(&self, call: &str, descriptors: u32) -> Result<(String, Option<String>), String> {
        let Self {
            argument, masked, one_of, and, has_bits, lacks_bits, descriptor, itself, ..
        } = self;
        let incomplete = || format!("{call}: the condition is not complete");
        let argument = argument.filter(|argument| *argument < 6);
        let kinds = [
            one_of.is_some(),
            has_bits.is_some(),
            lacks_bits.is_some(),
            descriptor.is_some(),
            *itself,
        ];
        let kinds = kinds.into_iter().filter(|given| *given).count();
        let belongs_to_values = masked.is_some() || and.is_some();
        if kinds > 1
            || (kinds == 1) != self.has_condition()
            || belongs_to_values && one_of.is_none()
        {
            return Err(incomplete());
        }
        // These name their arguments themselves.
        if let (Some(bits), None) = (lacks_bits, argument) {
            let bits = literal::rows(bits, |(argument, name)| {
                let argument: u8 = argument.parse().map_err(|_| incomplete())?;
                constants::argument_bits(call, argument)?;
                Ok(format!("({argument}, {})", literal::value(name)?))
            })?;
            return Ok((format!("Condition::LacksBits({bits})"), None));
        }
        if kinds == 0 {
            return Ok(("Condition::Always".to_owned(), None));
        }
        let argument = argument.ok_or_else(incomplete)?;
        let all = constants::argument_bits(call, argument)?;
        if *itself {
            return Ok((format!("Condition::Itself {{ argument: {argument} }}"), None));
        }
        if let Some(name) = has_bits {
            let bits = literal::value(name)?;
            return Ok((
                format!("Condition::HasBits {{ argument: {argument}, bits: {bits} }}"),
                None,
            ));
        }
        if let Some(which) = descriptor {
            let [below, not_below] = ["Below", "NotBelow"].map(|kind| {
                format!("Condition::{kind} {{ argument: {argument}, limit: {descriptors} }}")
            });
            return match which.as_str() {
                _ if descriptors == 0 => Err(format!("{call}: the profile keeps no descriptors")),
                "kept" => Ok((below, Some(not_below))),
                "new" => Ok((not_below, Some(below))),
                _ => Err(incomplete()),
            };
        }
        let values = literal::rows(one_of.iter().flatten(), |name| literal::value(name))?;
        let mask = masked.as_deref().map_or(Ok(all), constants::value)?;
        let [one, none] = ["OneOf", "NoneOf"].map(|kind| {
            format!("Condition::{kind} {{ argument: {argument}, mask: {mask}, values: {values}")
        });
        let other = match and.iter().flatten().collect::<Vec<_>>()[..] {
            [] => "None".to_owned(),
            [(other, names)] => {
                let other = other.parse().map_err(|_| incomplete())?;
                let mask = constants::argument_bits(call, other)?;
                let values = literal::rows(names, |name| literal::value(name))?;
                format!("Some(({other}, {mask}, {values}))")
            }
            _ => return Err(incomplete()),
        };
        let has_opposite = masked.is_none() && and.is_none();
        Ok((format!("{one}, and: {other} }}"), has_opposite.then(|| format!("{none} }}"))))
    }
}

/// Returns the literals of a row's rules: itself, and the one that `otherwise` adds.
fn literals(Row { call, rule: row, kept_descriptors, .. }: &Row) -> Result<Vec<String>, String> {
    let only = constants::ONLY_X86_64.contains(&call.as_str());
    let (condition, opposite) = row.conditions(call, *kept_descriptors)?;
    let errno = |name: &str| -> Result<String, String> {
        Ok(format!(
            "CallAnswer::Errno(Value {{ name: {name:?}, number: {} }})",
            constants::error(name)?
        ))
    };
    let answer = match &row.answer {
        None => "CallAnswer::Allow".to_owned(),
        Some(name) => errno(name)?,
    };
    let why = literal::reason(&row.why, call)?;
    let kept = literal::kept(row.kept.as_deref(), call)?;
    let entry = |condition: &str, answer: &str| {
        format!(
            "CallRule {{ call: {call:?}, only_x86_64: {only}, condition: {condition}, answer: {answer}, why: {why}, kept: {kept} }}"
        )
    };
    let mut entries = vec![entry(&condition, &answer)];
    if let Some(name) = &row.otherwise {
        let opposite = opposite
            .ok_or_else(|| format!("{call}: otherwise needs descriptor, or one_of alone"))?;
        entries.push(entry(&opposite, &errno(name)?));
    }
    Ok(entries)
}
