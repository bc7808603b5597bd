//! Fault rules: which requests fail, how often, and how.

use std::collections::BTreeMap;

use crate::random::Random;
use crate::state::resources::CreateOutcome;
use crate::time::Millis;
use crate::wire::Params;
use serde::{Deserialize, Serialize};

/// The criteria by which a rule selects requests. All given keys must match.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RequestMatch {
    /// The action; may end in `*`.
    pub action: Option<String>,
    /// An id that is the value of one of the parameters.
    pub(crate) resource: Option<String>,
    /// An instance id that is the value of one of the parameters.
    pub instance: Option<String>,
    /// A text that the value of one of the parameters contains.
    pub contains: Option<String>,
}

/// A fault rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRule {
    /// The rule's name; generated if absent.
    #[serde(default)]
    pub id: String,
    #[serde(default, rename = "match")]
    pub(crate) matching: RequestMatch,
    /// The number of matches to skip first.
    #[serde(default)]
    pub skip: u64,
    /// If set, the rule applies only to the n-th match after `skip`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nth: Option<u64>,
    /// If set, the rule applies to every n-th match after `skip`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) every: Option<u64>,
    /// The probability with which the rule applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// The maximum number of times that the rule applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// How long the rule applies, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) for_ms: Option<u64>,
    pub(crate) fault: Fault,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct ActiveRule {
    #[serde(flatten)]
    pub rule: FaultRule,
    pub matches: u64,
    /// The number of requests to which the fault was applied.
    pub(crate) hits: u64,
    pub(crate) added: Millis,
}

#[derive(Debug)]
pub struct Faults {
    active: Vec<ActiveRule>,
    random: Random,
    named: u64,
}

impl Faults {
    pub fn new(seed: u64) -> Self {
        Self { active: Vec::new(), random: Random::new(seed, "faults"), named: 0 }
    }

    /// Adds a rule, or replaces the rule of the same name. Returns the name.
    pub fn add(&mut self, mut rule: FaultRule, now: Millis) -> String {
        if rule.id.is_empty() {
            self.named += 1;
            rule.id = format!("f{}", self.named);
        }
        let id = rule.id.clone();
        self.active.retain(|a| a.rule.id != id);
        self.active.push(ActiveRule { rule, matches: 0, hits: 0, added: now });
        id
    }

    /// Removes a rule. Returns false if there is no rule of this name.
    pub fn remove(&mut self, id: &str) -> bool {
        let before = self.active.len();
        self.active.retain(|a| a.rule.id != id);
        before != self.active.len()
    }

    pub fn clear(&mut self) {
        self.active.clear();
    }

    pub(crate) fn list(&self) -> &[ActiveRule] {
        &self.active
    }

    /// Returns the greatest age of a read that any rule demands, in milliseconds.
    pub(crate) fn most_stale(&self) -> u64 {
        let stale = |a: &ActiveRule| match a.rule.fault {
            Fault::Stale { ms } => ms,
            _ => 0,
        };
        self.active.iter().map(stale).max().unwrap_or(0)
    }

    /// Returns the names and faults of the rules that apply to this request. Each rule decides
    /// independently.
    pub(crate) fn apply(
        &mut self,
        action: &str,
        params: &Params,
        now: Millis,
    ) -> Vec<(String, Fault)> {
        let mut applied = Vec::new();
        for a in &mut self.active {
            if a.rule.for_ms.is_some_and(|ms| now.since(a.added) >= ms)
                || !matches(&a.rule.matching, action, params)
            {
                continue;
            }
            a.matches += 1;
            if a.matches <= a.rule.skip || a.rule.count.is_some_and(|c| a.hits >= c) {
                continue;
            }
            let n = a.matches - a.rule.skip;
            let counted = a.rule.nth.is_none_or(|k| k == n)
                && a.rule.every.is_none_or(|k| k > 0 && n % k == 0);
            if !counted || a.rule.probability.is_some_and(|p| self.random.unit() >= p) {
                continue;
            }
            a.hits += 1;
            applied.push((a.rule.id.clone(), a.rule.fault.clone()));
        }
        applied
    }
}

fn matches(m: &RequestMatch, action: &str, params: &Params) -> bool {
    let action_fits = m.action.as_deref().is_none_or(|a| match a.strip_suffix('*') {
        Some(prefix) => action.starts_with(prefix),
        None => a == action,
    });
    let has = |wanted: &Option<String>| {
        wanted.as_deref().is_none_or(|w| params.pairs().any(|(_, v)| v == w))
    };
    let contains = m.contains.as_deref().is_none_or(|w| params.pairs().any(|(_, v)| v.contains(w)));
    action_fits && has(&m.resource) && has(&m.instance) && contains
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Loss {
    /// The connection stays open without a reply, then closes.
    Hang,
    Close,
    Reset,
}

/// How a reply with status 200 is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Garble {
    Unparsable,
    Empty,
    WrongRoot,
    /// The body is cut-off XML; `Content-Length` matches the cut body.
    Cut,
    /// `Content-Length` is larger than the body.
    Short,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Body {
    #[default]
    Xml,
    Html,
    Empty,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Fault {
    /// Answers with this error; with `effect`, the change is made nevertheless.
    Error {
        code: String,
        #[serde(default = "internal")]
        status: u16,
        #[serde(default)]
        message: String,
        #[serde(default)]
        body: Body,
        #[serde(default)]
        effect: bool,
    },
    /// Replies with `RequestLimitExceeded`, and with the header `x-amz-retry-after` if given.
    Throttle { retry_after_ms: Option<u64> },
    /// Sends no reply; with `effect`, the change is made nevertheless.
    LoseReply {
        how: Loss,
        #[serde(default)]
        effect: bool,
        /// How long the connection hangs before it closes, in milliseconds.
        #[serde(default = "minute")]
        hold_ms: u64,
    },
    /// Replies with status 200 and a malformed body.
    Garble {
        how: Garble,
        #[serde(default = "yes")]
        effect: bool,
    },
    /// The reply arrives slowly.
    Slow {
        /// The delay before the first byte, in milliseconds.
        #[serde(default)]
        first_byte_ms: u64,
        /// The delay between bytes, in milliseconds.
        #[serde(default)]
        byte_ms: u64,
    },
    /// The request takes effect a second time.
    Duplicate { after_ms: u64 },
    /// AttachVolume: the attachment stays `attaching` for long; without a time, forever.
    StuckAttach { for_ms: Option<u64> },
    /// DescribeInstances shows `attached` this much earlier than DescribeVolumes does.
    SkewAttach { ms: u64 },
    /// DetachVolume: the attachment stays `detaching` or `busy` for long; without a time, forever.
    StuckDetach {
        for_ms: Option<u64>,
        #[serde(default)]
        busy: bool,
    },
    /// A Describe call shows the state of this much earlier. Without `consistency`, the state from
    /// before the rule was added is not kept: an older read shows the state at the time when the
    /// rule was added.
    Stale { ms: u64 },
    /// Describe calls do not show an existing resource.
    Unseen { id: String },
    /// AttachVolume: the device name is in use, though no Describe call lists it.
    DeviceTaken {},
    /// AttachVolume: another volume gets the device name on that instance just before.
    DeviceRaced {},
    /// Another user of the account makes this call.
    Foreign {
        action: String,
        /// The parameters of the action; `$VolumeId` stands for the client's parameter of that
        /// name, `$made` for the resource that the client's call created.
        #[serde(default)]
        parameters: BTreeMap<String, String>,
        /// How long after the client's request, in milliseconds; absent: just before.
        after_ms: Option<u64>,
    },
    /// CreateVolume and CopyVolumes are accepted and fail later; the client token stays used.
    FailCreate {
        outcome: CreateOutcome,
        /// How long after the reply the creation fails, in milliseconds.
        #[serde(default = "half_second")]
        after_ms: u64,
    },
    /// CopyVolumes: the copy has its source's encryption and key, whatever the request has.
    KeepSourceKey {},
    /// CreateSnapshot and CreateSnapshots are accepted; the snapshots end in `error`.
    FailSnapshot {
        /// The only one of CreateSnapshots that fails, in the order of the volumes' ids, from 0.
        member: Option<usize>,
        #[serde(default = "half_second")]
        after_ms: u64,
    },
    /// CreateSnapshot and CreateSnapshots: filters by tags find the first snapshot after this time,
    /// and each other one so much after the one before.
    TagsOneByOne { ms: u64 },
    /// ModifyVolume is accepted; the modification ends in `failed`.
    FailModify {
        #[serde(default = "half_second")]
        after_ms: u64,
    },
    /// EnableFastSnapshotRestores answers with status 200 and failures.
    Unsuccessful {
        code: String,
        #[serde(default)]
        message: String,
    },
}

fn internal() -> u16 {
    500
}
fn minute() -> u64 {
    60_000
}
fn half_second() -> u64 {
    500
}
fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(json: &str) -> FaultRule {
        serde_json::from_str(json).expect("rule")
    }

    fn hits(json: &str, n: usize) -> Vec<usize> {
        let mut f = Faults::new(1);
        f.add(rule(json), Millis(0));
        let p = Params::parse(b"VolumeId=vol-1");
        (1..=n).filter(|i| !f.apply("AttachVolume", &p, Millis(*i as i64)).is_empty()).collect()
    }

    #[test]
    fn fault_rule_hits_only_configured_matching_calls() {
        let t = r#""fault":{"kind":"throttle"}"#;
        for (json, expected) in [
            (format!("{{{t}}}"), vec![1, 2, 3, 4, 5, 6]),
            (format!(r#"{{"nth":3,{t}}}"#), vec![3]),
            (format!(r#"{{"every":2,{t}}}"#), vec![2, 4, 6]),
            (format!(r#"{{"every":0,{t}}}"#), vec![]),
            (format!(r#"{{"skip":2,"count":2,{t}}}"#), vec![3, 4]),
            (format!(r#"{{"for_ms":3,{t}}}"#), vec![1, 2]),
            (format!(r#"{{"probability":0.0,{t}}}"#), vec![]),
            (
                format!(r#"{{"match":{{"action":"Attach*","resource":"vol-1"}},{t}}}"#),
                vec![1, 2, 3, 4, 5, 6],
            ),
            (format!(r#"{{"match":{{"action":"Attach"}},{t}}}"#), vec![]),
            (format!(r#"{{"match":{{"resource":"vol"}},{t}}}"#), vec![]),
            (format!(r#"{{"match":{{"contains":"ol-"}},"nth":1,{t}}}"#), vec![1]),
        ] {
            assert_eq!(hits(&json, 6), expected, "{json}");
        }
    }

    #[test]
    fn fault_probability_is_kept_and_reproducible_per_seed() {
        let json = r#"{"probability":0.3,"fault":{"kind":"throttle"}}"#;
        let once = hits(json, 1000);
        assert!((250..350).contains(&once.len()), "{}", once.len());
        assert_eq!(once, hits(json, 1000));
    }

    #[test]
    fn rules_are_replaced_and_removed_and_typos_refused() {
        let mut f = Faults::new(1);
        let id = f.add(rule(r#"{"fault":{"kind":"throttle"}}"#), Millis(0));
        f.add(rule(r#"{"id":"x","fault":{"kind":"device_raced"}}"#), Millis(0));
        f.add(
            rule(r#"{"id":"x","fault":{"kind":"lose_reply","how":"reset","effect":true}}"#),
            Millis(0),
        );
        assert_eq!(f.list().len(), 2);
        assert!(f.remove(&id) && !f.remove(&id));
        for bad in [
            r#"{"fault":{"kind":"nope"}}"#,
            r#"{"fault":{"kind":"throttle","effct":true}}"#,
            r#"{"nht":1,"fault":{"kind":"throttle"}}"#,
        ] {
            assert!(serde_json::from_str::<FaultRule>(bad).is_err(), "{bad}");
        }
    }
}
