//! Parsers of flag values. Most of the forms are Go's.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use ebs_csi_ec2::{Action, Rate};

use crate::request::parse_go_bool;

pub(super) type Rates = BTreeMap<Action, Rate>;

/// Parses a boolean as Go's flag package does.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    parse_go_bool(text).ok_or_else(|| "give true or false".to_owned())
}

/// Parses one of these values by its label.
pub(super) fn labelled<T, const N: usize>(
    all: [T; N],
    label: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = String> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(all.map(label)).try_map(|text| text.parse::<T>())
}

/// Feature gates that are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gates {
    /// `NonGracefulFailover`: a volume leaves a node only when `--safe-detach` says so.
    pub(super) non_graceful_failover: bool,
}

/// Parses feature gates as Kubernetes components write them: `NonGracefulFailover=true`.
pub(super) fn gates(text: &str) -> Result<Gates, String> {
    let mut gates = Gates::default();
    for entry in text.split(',').filter(|entry| !entry.is_empty()) {
        match entry.split_once('=') {
            Some(("NonGracefulFailover", value)) => {
                gates.non_graceful_failover =
                    boolean(value).map_err(|why| format!("{entry}: {why}"))?;
            }
            _ => {
                return Err(format!(
                    "{entry:?} is no gate of this driver: NonGracefulFailover=true or =false"
                ));
            }
        }
    }
    Ok(gates)
}

/// Parses a duration as Go writes it: `2s`, `1m30s`, `500ms`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let bad = || "give a duration such as 2s, 500ms or 1m30s".to_owned();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut seconds = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let number: f64 = rest[..digits].parse().map_err(|_| bad())?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        seconds += number
            * match &rest[..unit] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" => 1e-6,
                "ns" => 1e-9,
                _ => return Err(bad()),
            };
        rest = &rest[unit..];
    }
    if text.is_empty() {
        return Err(bad());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| bad())
}

/// Parses request rates: `AttachVolume=50/5,all=100/20`. A later entry wins over an earlier one.
pub(super) fn rates(text: &str) -> Result<Rates, String> {
    let mut rates = BTreeMap::new();
    for entry in text.split(',').filter(|entry| !entry.is_empty()) {
        let bad = || format!("{entry:?} is not ACTION=CAPACITY/REFILL with numbers of 1 or more");
        let (name, numbers) = entry.split_once('=').ok_or_else(bad)?;
        let (capacity, refill) = numbers.split_once('/').ok_or_else(bad)?;
        let number = |text: &str| {
            text.parse::<u32>().ok().filter(|n| *n >= 1).map(f64::from).ok_or_else(bad)
        };
        let rate = Rate { capacity: number(capacity)?, refill: number(refill)? };
        let before = rates.len();
        rates.extend(
            Action::ALL
                .into_iter()
                .filter(|a| name == "all" || a.name() == name)
                .map(|a| (a, rate)),
        );
        if rates.len() == before && name != "all" && !Action::ALL.iter().any(|a| a.name() == name) {
            return Err(format!("{name:?} is not an EC2 action that the controller calls"));
        }
    }
    Ok(rates)
}

pub(super) fn metadata_sources(text: &str) -> Result<String, String> {
    let text = text.to_lowercase();
    for source in text.split(',').map(str::trim) {
        if !["imds", "kubernetes", "metadata-labeler"].contains(&source) {
            return Err(format!("{source:?} is not one of imds, kubernetes, metadata-labeler"));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_request_rates_are_refused() {
        for bad in [
            "AttachVolume",
            "AttachVolume=5",
            "AttachVolume=0/1",
            "AttachVolume=-1/1",
            "Attach=1/1",
        ] {
            assert!(rates(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn go_durations_are_read() {
        let rows = [
            ("2s", Some(2000)),
            ("1m30s", Some(90_000)),
            ("500ms", Some(500)),
            ("1.5s", Some(1500)),
            ("1h", Some(3_600_000)),
            ("0", Some(0)),
            ("", None),
            ("2", None),
            ("s", None),
            ("-2s", None),
            ("2 s", None),
            ("1e99h", None),
        ];
        for (text, want) in rows {
            assert_eq!(duration(text).ok(), want.map(Duration::from_millis), "{text:?}");
        }
    }
}
