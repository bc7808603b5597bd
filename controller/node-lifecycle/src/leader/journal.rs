//! The nodes that were acted on recently, which the brake counts.
//!
//! The journal is an annotation of the leader's Lease, so that the next leader continues the count.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;

const ANNOTATION: &str = "ebs.csi.aws.com/acted-on";
/// How long a node counts.
const WINDOW: SignedDuration = SignedDuration::from_mins(10);

/// The nodes, each with the time when it was first acted on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journal {
    at: BTreeMap<String, Timestamp>,
}

impl Journal {
    /// Reads the journal of a Lease. An annotation that cannot be read counts as empty: the other
    /// half of the brake, for an outage, still applies.
    pub fn read(lease: &Lease) -> Self {
        let text = lease.annotations().get(ANNOTATION);
        let at: BTreeMap<String, String> =
            text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let at = at.into_iter().filter_map(|(node, time)| Some((node, time.parse().ok()?)));
        Self { at: at.collect() }
    }

    /// Returns whether the node was acted on within the window. A time in the future counts: the
    /// clock was set back.
    pub fn was_acted_on(&self, node: &str, now: Timestamp) -> bool {
        self.at.get(node).is_some_and(|at| now.duration_since(*at) < WINDOW)
    }

    /// Returns the nodes that count.
    pub fn nodes(&self, now: Timestamp) -> impl Iterator<Item = &str> {
        let counts = move |at: &Timestamp| now.duration_since(*at) < WINDOW;
        self.at.iter().filter(move |(_, at)| counts(at)).map(|(node, _)| node.as_str())
    }

    /// Records that the node is about to be acted on.
    pub fn add(&mut self, node: &str, now: Timestamp) {
        if !self.was_acted_on(node, now) {
            self.at.insert(node.to_owned(), now);
        }
    }

    /// Writes the journal to the Lease, without entries that no longer count.
    pub fn write(&self, lease: &mut Lease, now: Timestamp) {
        let at: BTreeMap<&str, String> = self
            .nodes(now)
            .filter_map(|node| Some((node, self.at.get(node)?.to_string())))
            .collect();
        // The serialization of a map of strings cannot fail.
        let text = serde_json::to_string(&at).unwrap_or_default();
        lease.annotations_mut().insert(ANNOTATION.to_owned(), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_leader_counts_journal_entries_for_10_minutes() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut journal = Journal::default();
        journal.add("a", start);
        let mut lease = Lease::default();
        journal.write(&mut lease, start);
        let read = Journal::read(&lease);
        assert_eq!(read, journal);
        assert!(read.was_acted_on("a", start + SignedDuration::from_secs(599)));
        assert!(!read.was_acted_on("a", start + SignedDuration::from_secs(600)));
        assert!(!read.was_acted_on("b", start));
        // The clock was set back.
        assert!(read.was_acted_on("a", start - SignedDuration::from_hours(5)));
        read.write(&mut lease, start + SignedDuration::from_mins(11));
        assert_eq!(Journal::read(&lease), Journal::default());
    }
}
