//! The values of a table, each of the kind that is expected.

use ebs_csi_document::{Table, Value};

pub(super) fn table(value: &Value) -> Result<&Table, String> {
    if let Value::Table(table) = value { Ok(table) } else { Err("not a table".to_owned()) }
}

pub(super) fn required<'a>(table: &'a Table, key: &str) -> Result<&'a Value, String> {
    table.get(key).ok_or_else(|| format!("it has no {key}"))
}

pub(super) fn word<'a>(table: &'a Table, key: &str) -> Result<&'a str, String> {
    match required(table, key)? {
        Value::Text(text) => Ok(text),
        _ => Err(format!("{key} is not a text")),
    }
}

pub(super) fn number(table: &Table, key: &str) -> Result<u64, String> {
    match required(table, key)? {
        Value::Number(number) => Ok(*number),
        _ => Err(format!("{key} is not a number")),
    }
}

pub(super) fn is_set(table: &Table, key: &str) -> Result<bool, String> {
    match table.get(key) {
        None => Ok(false),
        Some(Value::Switch(switch)) => Ok(*switch),
        Some(_) => Err(format!("{key} is not true or false")),
    }
}

pub(super) fn list<'a>(table: &'a Table, key: &str) -> Result<&'a [Value], String> {
    match table.get(key) {
        None => Ok(&[]),
        Some(Value::List(list)) => Ok(list),
        Some(_) => Err(format!("{key} is not a list")),
    }
}

/// Fails for a key that is none of these words: this program does not know it, and it could give
/// anything.
pub(super) fn only(table: &Table, known: &str) -> Result<(), String> {
    match table.keys().find(|key| known.split(' ').all(|one| one != *key)) {
        None => Ok(()),
        Some(key) => Err(format!("{key} is not known to this program")),
    }
}
