//! How long a kind of change takes at EC2, learned from the latest changes that ended.
//!
//! A poll before a change can have ended is wasted, and one long after makes a caller wait. The
//! durations of ended changes show when the next change is likely to end. A small prior and wide
//! spans keep the estimate open, so that a kind that became faster or slower is noticed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebs_csi_proto::lock;

/// How many of the latest changes count.
const MAX_SPANS: usize = 48;
/// How much less or more time the next change of the kind may take, as a part of the measured time.
const SPREAD: f64 = 0.1;
/// The prior, in seconds: of the changes that still run at some age, half end within a further time
/// of that age plus this constant. The prior counts as much as one observed change.
const PRIOR_AGE: f64 = 0.1;
/// The part of the time since the start of a watch that must pass between polls: a delay of a
/// fiftieth is not noticed.
const MIN_INTERVAL_PART: f64 = 0.02;
/// The part of the time spent waiting for a turn before the watch that must pass as well.
const MIN_INTERVAL_PART_OF_WAIT: f64 = 0.06;
/// The longest such pause in seconds, however long the caller has waited.
const MAX_INTERVAL: f64 = 3.0;

/// The change that a volume is watched for. EC2 takes a different time for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchedChange {
    /// Until the volume is available.
    Creation,
    /// Until the volume is attached.
    Attachment,
    /// Until the volume is detached.
    Detachment,
    /// Until reads show a change that was already made.
    Visibility,
}

/// The durations of each kind of change of a volume.
#[derive(Debug, Default)]
pub(crate) struct Changes([Arc<DurationEstimate>; 4]);

impl Changes {
    pub(crate) fn of(&self, watched: WatchedChange) -> &Arc<DurationEstimate> {
        let [creation, attachment, detachment, visibility] = &self.0;
        match watched {
            WatchedChange::Creation => creation,
            WatchedChange::Attachment => attachment,
            WatchedChange::Detachment => detachment,
            WatchedChange::Visibility => visibility,
        }
    }
}

/// The durations of one kind of change.
#[derive(Debug, Default)]
pub(crate) struct DurationEstimate(Mutex<VecDeque<Span>>);

/// When a change may end, in seconds since its request.
#[derive(Clone, Copy, Debug)]
struct Span {
    earliest: f64,
    latest: f64,
}

impl DurationEstimate {
    /// Notes a change that a poll at the age `unfinished` found unfinished and a poll at the age
    /// `finished` found finished.
    pub(crate) fn record(&self, unfinished: Duration, finished: Duration) {
        let (unfinished, finished) = (unfinished.as_secs_f64(), finished.as_secs_f64());
        let middle = f64::midpoint(unfinished, finished.max(unfinished));
        let half = (middle * SPREAD).max(finished - middle).max(0.001);
        let mut spans = lock(&self.0);
        if spans.len() == MAX_SPANS {
            spans.pop_front();
        }
        spans.push_back(Span { earliest: (middle - half).max(0.0), latest: middle + half });
    }

    /// Returns how late, in seconds, a poll at the age `to` is expected to find the end of a change
    /// that a poll at the age `from` found running. `waited` is how long the caller had waited
    /// before the change began.
    pub(crate) fn lateness(&self, waited: Duration, from: Duration, to: Duration) -> f64 {
        let (from, to) = (from.as_secs_f64(), to.as_secs_f64());
        let min_interval =
            from * MIN_INTERVAL_PART + waited.as_secs_f64() * MIN_INTERVAL_PART_OF_WAIT;
        if to - from < min_interval.min(MAX_INTERVAL) {
            return 0.0;
        }
        // The part `prior_from / (age + PRIOR_AGE)` of the changes outlasts an age. This is the
        // integral of the part that has ended.
        let prior_from = from + PRIOR_AGE;
        let mut late = (to - from) - prior_from * ((to + PRIOR_AGE) / prior_from).ln();
        let mut weight = 1.0;
        for span in lock(&self.0).iter() {
            let width = span.latest - span.earliest;
            let begin = span.earliest.max(from);
            if begin >= span.latest {
                continue;
            }
            weight += (span.latest - begin) / width;
            let end = span.latest.min(to);
            if end > begin {
                // The mean of `to - age` over the part of the span between the polls.
                late += (end - begin) * (to - f64::midpoint(begin, end)) / width;
            }
        }
        late / weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn that_took(milliseconds: impl IntoIterator<Item = u64>) -> DurationEstimate {
        let durations = DurationEstimate::default();
        for took in milliseconds {
            durations.record(ms(took - took / 50), ms(took + took / 50));
        }
        durations
    }

    /// Returns when the next poll is worthwhile, after one at `from`.
    fn next(durations: &DurationEstimate, from: u64) -> u64 {
        (from..).find(|to| durations.lateness(ms(0), ms(from), ms(*to)) >= 0.01).unwrap()
    }

    #[test]
    fn polls_are_rare_before_likely_end_then_dense() {
        let durations = that_took((0..40).map(|n| 2000 + n * 5));
        // Polls are rare before the changes end, and dense while they end.
        assert!(next(&durations, 0) > 600, "{}", next(&durations, 0));
        assert!(next(&durations, 1000) > 1500, "{}", next(&durations, 1000));
        let gap = next(&durations, 2050) - 2050;
        assert!((20..80).contains(&gap), "{gap}");
    }

    #[test]
    fn unseen_kind_is_polled_less_as_change_ages() {
        let unknown = DurationEstimate::default();
        let gaps = [0, 1000, 4000, 60_000, 600_000].map(|from| next(&unknown, from) - from);
        assert!(gaps.is_sorted(), "{gaps:?}");
        assert!(gaps[0] <= 60 && gaps[2] <= 400 && gaps[4] <= 4000, "{gaps:?}");
    }

    #[test]
    fn change_outlasting_history_uses_prior_alone() {
        let durations = that_took([500; 48]);
        assert_eq!(next(&durations, 5000), next(&DurationEstimate::default(), 5000));
    }

    #[test]
    fn queue_wait_delays_next_poll_up_to_3s() {
        let unknown = DurationEstimate::default();
        let soon = ms(500);
        assert!(unknown.lateness(ms(0), ms(0), soon) > 0.1);
        assert!(unknown.lateness(ms(8_000), ms(0), soon) > 0.1);
        assert_eq!(unknown.lateness(ms(12_000), ms(0), soon), 0.0);
        assert!(unknown.lateness(ms(3_600_000), ms(0), ms(3000)) > 1.0);
    }

    #[test]
    fn polling_adapts_after_48_faster_changes() {
        let durations = that_took([3000; 48]);
        assert!(next(&durations, 0) < 1500, "{}", next(&durations, 0));
        for _ in 0..MAX_SPANS {
            durations.record(ms(0), ms(20));
        }
        assert!(next(&durations, 0) <= 50, "{}", next(&durations, 0));
    }

    proptest! {
        #[test]
        fn lateness_never_decreases_or_exceeds_time_since_poll(took in proptest::collection::vec(1u64..10_000, 0..60), from in 0u64..20_000, to in 0u64..5000, more in 0u64..5000) {
            let durations = that_took(took);
            let (first, second) = (
                durations.lateness(ms(0), ms(from), ms(from + to)),
                durations.lateness(ms(0), ms(from), ms(from + to + more)),
            );
            prop_assert!(first >= -1e-12 && second >= first - 1e-12, "{first} {second}");
            // No end is found later than the time since the last poll.
            prop_assert!(first <= to as f64 / 1e3 + 1e-9);
        }
    }
}
