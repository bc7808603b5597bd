//! The row of a key, and the parser of a class by its table of rows.

use std::collections::HashMap;

use ebs_csi_policy::format_option::{self, OptionKind};
use ebs_csi_proto::Failure;

use crate::{parse_boolean, truncate};

/// One key of a class.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The key as pages write it. `_N` at its end stands for any text.
    pub key: &'static str,
    /// The form of the value.
    pub form: Form,
    /// What applies without the key; empty when there is nothing to say.
    pub default: &'static str,
    /// What the Go driver (v1.64) does differently; empty when nothing.
    pub go_driver: &'static str,
    /// A value that is accepted; of a format option, see [`Row::example`].
    pub(crate) example: &'static str,
    /// The other keys that the example needs, with their values.
    pub(crate) example_with: &'static [(&'static str, &'static str)],
    /// What the key does, in one sentence.
    pub meaning: &'static str,
}

/// What may be written as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Text, described by a few words.
    Text(&'static str),
    /// One of these words.
    Words(&'static [&'static str]),
    /// `true` or `false`; empty is `false`.
    Switch,
    /// A whole number of at most `most`; 0 means "not given", as in the Go driver.
    Number {
        /// The largest number.
        most: u32,
        /// The unit; empty for a plain number.
        unit: &'static str,
    },
    /// An option of a new file system. A number may end with k, m or g, powers of 1024.
    FormatOption(&'static format_option::OptionRow),
    /// Set by a sidecar, never by a user.
    SetBySidecar,
    /// Accepted without effect.
    Ignored,
}

impl Form {
    /// Any number that the Go driver takes.
    pub(crate) const NUMBER: Self = Self::number("");

    /// Returns the form of any number of this unit.
    pub(crate) const fn number(unit: &'static str) -> Self {
        Self::Number { most: i32::MAX.unsigned_abs(), unit }
    }
}

impl Row {
    /// The values of what a row does not name.
    pub(crate) const NONE: Self = Self {
        key: "",
        form: Form::Text("any text"),
        default: "",
        go_driver: "",
        example: "",
        example_with: &[],
        meaning: "",
    };

    /// Returns the row of a format option.
    pub(crate) fn of_format_option(option: &'static format_option::OptionRow) -> Self {
        Self {
            key: option.key,
            form: Form::FormatOption(option),
            default: option.default,
            go_driver: option.go_driver,
            meaning: option.about,
            ..Self::NONE
        }
    }

    /// Returns entries that are accepted: one of this key, then those that it needs.
    #[must_use]
    pub fn example(&self) -> Vec<(&'static str, String)> {
        let switch = |key| (key, "true".to_owned());
        let Form::FormatOption(option) = self.form else {
            let own = std::iter::once((self.key, self.example));
            let entries = own.chain(self.example_with.iter().copied());
            return entries.map(|(key, value)| (key, value.to_owned())).collect();
        };
        let own = match option.kind {
            OptionKind::Number => (self.key, option.example.to_string()),
            OptionKind::Switch => switch(self.key),
        };
        std::iter::once(own).chain(option.requires.map(switch)).collect()
    }

    /// Returns whether the value is `true` or `false`.
    #[must_use]
    pub fn is_switch(&self) -> bool {
        match self.form {
            Form::FormatOption(option) => option.kind == OptionKind::Switch,
            form => form == Form::Switch,
        }
    }

    /// Returns the beginning of the keys that end with any text.
    #[must_use]
    pub fn prefix(&self) -> Option<&'static str> {
        self.key.strip_suffix("_N")
    }

    /// Returns whether a user sets the key to some effect.
    #[must_use]
    pub fn is_for_users(&self) -> bool {
        !matches!(self.form, Form::SetBySidecar | Form::Ignored)
    }
}

/// An entry of a class.
pub(crate) struct Given<'a> {
    pub(crate) row: &'a Row,
    /// The name of the class's map in the request.
    list: &'static str,
    /// The key as written.
    pub(crate) key: &'a str,
    pub(crate) value: &'a str,
}

impl Given<'_> {
    pub(crate) fn invalid(&self, reason: impl std::fmt::Display) -> Failure {
        Failure::invalid(&format!("{}.{}", self.list, self.key), reason)
    }

    /// Returns the value unless it is empty.
    pub(crate) fn text(&self) -> Option<String> {
        Some(self.value.to_owned()).filter(|value| !value.is_empty())
    }

    pub(crate) fn switch(&self) -> Result<bool, Failure> {
        parse_boolean(self.list, self.key, self.value)
    }

    /// Parses a whole number in the range of the row. Zero means "not given".
    pub(crate) fn number(&self) -> Result<Option<u32>, Failure> {
        let Form::Number { most, unit } = self.row.form else {
            return Err(self.invalid("is not a number"));
        };
        match self.value.parse::<i32>().map(u32::try_from) {
            Ok(Ok(number)) if number <= most => Ok(Some(number).filter(|n| *n > 0)),
            Ok(Ok(_)) => Err(Failure::invalid(
                &format!("{}.{}", self.list, self.row.key),
                format!("is from 1 to {most} {unit}"),
            )),
            _ => Err(self.invalid(format!(
                "{:?} is not a whole number from 0 to {}",
                truncate(self.value),
                i32::MAX
            ))),
        }
    }

    /// Checks the form of a tag, and returns it unchanged.
    pub(crate) fn tag(&self) -> Result<String, Failure> {
        match self.value.split_once('=') {
            Some((name, _)) if !name.is_empty() => Ok(self.value.to_owned()),
            _ => Err(self.invalid(format!(
                "{:?} is not a tag; write it as key=value, for example team=storage (each tag under a key of its own: tagSpecification_1, tagSpecification_2)",
                truncate(self.value)
            ))),
        }
    }
}

/// Reads the value of a row into a class.
pub(crate) type Store<C> = fn(&mut C, &Given<'_>) -> Result<(), Failure>;

pub(crate) trait Class: Default {
    /// The name of the class's map in the request, for error texts.
    const LIST: &'static str;
    /// Whether keys are matched in any letter case. The keys that end with any text never are:
    /// `TAGSPECIFICATION_1` has never been a tag's key.
    const ANY_CASE: bool;
    /// The word before the last one of the known keys.
    const AND: &'static str = " and ";

    /// Returns every key, those that end with any text after the others.
    fn table() -> impl Iterator<Item = (Row, Store<Self>)>;
}

pub(crate) fn rows<C: Class>() -> Vec<Row> {
    C::table().map(|(row, _)| row).collect()
}

/// Reads a class, in the order of its keys, so that the same class gives the same error.
///
/// # Errors
/// An unknown key, a key given in two spellings, or an invalid value; the text names the key.
pub(crate) fn read<C: Class>(entries: &HashMap<String, String>) -> Result<C, Failure> {
    let mut entries: Vec<_> = entries.iter().collect();
    entries.sort_unstable();
    let mut class = C::default();
    let mut seen_keys = Vec::new();
    for (key, value) in entries {
        let is_of_key = |row: &Row| match row.prefix() {
            Some(prefix) => key.starts_with(prefix),
            None if C::ANY_CASE => row.key.eq_ignore_ascii_case(key),
            None => row.key == key,
        };
        let Some((row, store)) = C::table().find(|(row, _)| is_of_key(row)) else {
            return Err(unknown_key::<C>(key));
        };
        if row.prefix().is_none() {
            if seen_keys.contains(&row.key) {
                return Err(Failure::invalid(
                    C::LIST,
                    format!(
                        "{} is given twice, in different spellings; keep one",
                        row.key.to_ascii_lowercase()
                    ),
                ));
            }
            seen_keys.push(row.key);
        }
        store(&mut class, &Given { row: &row, list: C::LIST, key, value })?;
    }
    Ok(class)
}

fn unknown_key<C: Class>(key: &str) -> Failure {
    let mut known: Vec<_> =
        C::table().filter(|(row, _)| row.is_for_users()).map(|(row, _)| row.key).collect();
    let last = known.pop().unwrap_or_default();
    Failure::invalid(
        C::LIST,
        format!(
            "{:?} is not a parameter of this driver; known are {}{}{last}",
            truncate(key),
            known.join(", "),
            C::AND
        ),
    )
}
