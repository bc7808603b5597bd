//! What the fuzz targets do with an input, and the replay of their inputs. A target returns whether
//! the input was accepted.

use ebs_csi_wire::InstanceId;

use crate::facts::dmi::{Machine, is_instance_type};
use crate::facts::node_facts_file::{facts, parse};
use crate::http_endpoint::log_page::{Bin, Statistics};

#[cfg(test)]
#[path = "../../proto/wire/fuzz/replay.rs"]
pub(crate) mod replay;

/// Reads the input as a node facts file, on a machine whose firmware tells nothing and on one whose
/// firmware knows the instance. What was read can be written as kubelet writes it, and is then read
/// as the same. Accepts a file that suffices.
pub fn facts_file(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let entries = parse(text);
    let held: usize = entries.iter().map(|(key, value)| key.len() + value.len()).sum();
    assert!(held <= text.len() && entries.len() <= text.lines().count());
    let again: String =
        entries.iter().map(|(key, value)| format!("{key}={}\n", quoted(value))).collect();
    assert_eq!(parse(&again), entries, "{again:?}");
    let firmware = InstanceId::parse("i-0123456789abcdef0").expect("an id");
    let known = Machine { instance: Some(firmware.clone()), instance_type: None };
    if let Ok(found) = facts(&known, &entries) {
        assert_eq!(found.instance, firmware);
        let stated = entries.get("ebs.csi.aws.com/instance-id");
        let is_same = stated.is_none_or(|id| id.is_empty() || id == firmware.as_str());
        assert!(is_same, "facts of {stated:?} on {firmware}");
    }
    let Ok(found) = facts(&Machine::default(), &entries) else { return false };
    assert_eq!(InstanceId::parse(found.instance.as_str()), Ok(found.instance.clone()));
    assert!(is_instance_type(&found.instance_type), "{found:?}");
    assert!(found.network_interfaces <= 1000 && found.other_volumes <= 1000, "{found:?}");
    let stated: Vec<&str> = entries.values().map(String::as_str).collect();
    for (key, value) in found.topology() {
        assert!(value == "linux" || stated.contains(&&*value), "{key}={value:?} was not stated");
        assert!(!value.is_empty(), "{key} is empty");
    }
    true
}

/// Quotes a value as kubelet does.
pub(crate) fn quoted(value: &str) -> String {
    let escape = |one: char| match one {
        '"' => "\\\"".to_owned(),
        '\\' => "\\\\".to_owned(),
        '\n' => "\\n".to_owned(),
        '\t' => "\\t".to_owned(),
        '\r' => "\\r".to_owned(),
        other => other.to_string(),
    };
    format!("\"{}\"", value.chars().map(escape).collect::<String>())
}

/// Size of a page, in bytes.
const PAGE: usize = 4096;

/// Reads the input as a page of statistics: as it is, and as the pieces of a page, each after its
/// place (16 bits, little-endian) and its length (8 bits). What was read can be written to a page,
/// and is then read as the same.
pub fn statistics_page(input: &[u8]) -> bool {
    assert!(input.len() == PAGE || Statistics::parse(input).is_err());
    let Ok(found) = Statistics::parse(&pieces(input)) else { return false };
    assert!(found.latency.iter().all(|bins| bins.len() <= 64));
    assert_eq!(Statistics::parse(&page(&found)), Ok(found));
    true
}

fn pieces(mut input: &[u8]) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    while let [low, high, length, rest @ ..] = input {
        let (piece, after) = rest.split_at(rest.len().min((*length).into()));
        let at = usize::from(u16::from_le_bytes([*low, *high]));
        if let Some(place) = page.get_mut(at..at + piece.len()) {
            place.copy_from_slice(piece);
        }
        input = after;
    }
    page
}

pub(crate) fn page(statistics: &Statistics) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &[0x10, 0xb5, 0x23, 0x3c]);
    for (index, counter) in statistics.counters.iter().enumerate() {
        put(8 + index * 8, &counter.to_le_bytes());
    }
    for (at, bins) in [512, 2056].into_iter().zip(&statistics.latency) {
        put(at, &(bins.len() as u64).to_le_bytes());
        for (index, Bin { upper_us, count }) in bins.iter().enumerate() {
            let bin = at + 8 + index * 24;
            put(bin + 8, &upper_us.to_le_bytes());
            put(bin + 16, &count.to_le_bytes());
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::replay::replay;
    use super::*;

    #[test]
    fn facts_file_corpus_is_accepted_as_named() {
        replay("facts_file", 3, facts_file);
    }

    #[test]
    fn statistics_page_corpus_is_accepted_as_named() {
        replay("statistics_page", 3, statistics_page);
    }
}
