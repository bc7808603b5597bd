//! Which nodes were acted on lately: what the brake counts.
//!
//! It stands in an annotation of the leader's Lease, so that the next leader counts on.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;

const ANNOTATION: &str = "ebs.csi.aws.com/acted-on";
/// How long a node counts.
pub const WINDOW: SignedDuration = SignedDuration::from_mins(10);

/// The nodes, each with the time when it was first acted on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journal {
    at: BTreeMap<String, Timestamp>,
}

impl Journal {
    /// What the Lease carries. An annotation that cannot be read is none: the brake's other half, the outage, still holds.
    pub fn of(lease: &Lease) -> Self {
        let text = lease.annotations().get(ANNOTATION);
        let at: BTreeMap<String, String> = text
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let at = at
            .into_iter()
            .filter_map(|(node, time)| Some((node, time.parse().ok()?)));
        Self { at: at.collect() }
    }

    /// Whether the node was acted on within the window. A time that lies in the future counts: the clock was set back.
    pub fn counts(&self, node: &str, now: Timestamp) -> bool {
        self.at
            .get(node)
            .is_some_and(|at| now.duration_since(*at) < WINDOW)
    }

    /// The nodes that count.
    pub fn nodes(&self, now: Timestamp) -> impl Iterator<Item = &str> {
        let counts = move |at: &Timestamp| now.duration_since(*at) < WINDOW;
        self.at
            .iter()
            .filter(move |(_, at)| counts(at))
            .map(|(node, _)| node.as_str())
    }

    /// The node is about to be acted on.
    pub fn add(&mut self, node: &str, now: Timestamp) {
        if !self.counts(node, now) {
            self.at.insert(node.to_owned(), now);
        }
    }

    /// Onto the Lease, without what no longer counts.
    pub fn write(&self, lease: &mut Lease, now: Timestamp) {
        let at: BTreeMap<&str, String> = self
            .nodes(now)
            .filter_map(|node| Some((node, self.at.get(node)?.to_string())))
            .collect();
        // A map of texts can always be written.
        let text = serde_json::to_string(&at).unwrap_or_default();
        lease.annotations_mut().insert(ANNOTATION.to_owned(), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_leader_counts_what_the_last_one_did_for_ten_minutes() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut journal = Journal::default();
        journal.add("a", start);
        let mut lease = Lease::default();
        journal.write(&mut lease, start);
        let read = Journal::of(&lease);
        assert_eq!(read, journal);
        assert!(read.counts("a", start + SignedDuration::from_secs(599)));
        assert!(!read.counts("a", start + SignedDuration::from_secs(600)));
        assert!(!read.counts("b", start));
        // The clock was set back.
        assert!(read.counts("a", start - SignedDuration::from_hours(5)));
        read.write(&mut lease, start + SignedDuration::from_mins(11));
        assert_eq!(Journal::of(&lease), Journal::default());
    }
}
