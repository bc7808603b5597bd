//! How long a kind of change takes at EC2: learned from the latest that ended.
//!
//! A poll that comes before a change can have ended is wasted, and one that comes long after makes somebody wait. What was seen to end tells when
//! the next is likely to; little is taken for granted, so that a kind that became faster or slower is noticed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// So many of the latest count.
const REMEMBERED: usize = 48;
/// What lasted a second may last so much less or more the next time, as a part of it.
const SPREAD: f64 = 0.1;
/// When nothing is known, half of what has not ended at some age ends before that age, and this, in seconds, has passed again. It counts as much
/// as one change that was seen.
const YOUNG: f64 = 0.1;
/// Nobody is asked about again before so much of the time that they have waited has passed: late by a fiftieth is not late.
const FINEST: f64 = 0.02;
/// Of the time that they had waited before, for their turn, this much has to pass as well.
const FINEST_AFTER_QUEUE: f64 = 0.06;
/// But after this, in seconds, however long they have waited.
const SLOWEST: f64 = 3.0;

/// What a volume is watched for. Each takes EC2 a time of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// Until it is available.
    Creation,
    /// Until it is attached.
    Attachment,
    /// Until it is detached.
    Detachment,
    /// Until a read shows what was done to it already.
    Showing,
}

/// The durations of each change of a volume.
#[derive(Debug, Default)]
pub(super) struct Changes([Arc<Usual>; 4]);

impl Changes {
    pub(super) fn of(&self, watched: Watched) -> &Arc<Usual> {
        let [creation, attachment, detachment, showing] = &self.0;
        match watched {
            Watched::Creation => creation,
            Watched::Attachment => attachment,
            Watched::Detachment => detachment,
            Watched::Showing => showing,
        }
    }
}

/// The durations of one kind of change.
#[derive(Debug, Default)]
pub(super) struct Usual(Mutex<VecDeque<Span>>);

/// When a change may end, in seconds since it was asked for.
#[derive(Clone, Copy, Debug)]
struct Span {
    least: f64,
    most: f64,
}

impl Usual {
    /// A change had not ended `running` after it was asked for, and had `ended` after it was.
    pub(super) fn ended(&self, running: Duration, ended: Duration) {
        let (running, ended) = (running.as_secs_f64(), ended.as_secs_f64());
        let middle = f64::midpoint(running, ended.max(running));
        let half = (middle * SPREAD).max(ended - middle).max(0.001);
        let mut known = self.known();
        if known.len() == REMEMBERED {
            known.pop_front();
        }
        known.push_back(Span {
            least: (middle - half).max(0.0),
            most: middle + half,
        });
    }

    /// How late, in seconds, a poll at the age `to` is expected to find the end of a change that a poll at the age `from` found running, for
    /// somebody who had `waited` before it began.
    pub(super) fn lateness(&self, waited: Duration, from: Duration, to: Duration) -> f64 {
        let (from, to) = (from.as_secs_f64(), to.as_secs_f64());
        let finest = from * FINEST + waited.as_secs_f64() * FINEST_AFTER_QUEUE;
        if to - from < finest.min(SLOWEST) {
            return 0.0;
        }
        // The part `young / (age + YOUNG)` goes on beyond an age: the part that has ended, integrated.
        let young = from + YOUNG;
        let mut late = (to - from) - young * ((to + YOUNG) / young).ln();
        let mut all = 1.0;
        for span in self.known().iter() {
            let width = span.most - span.least;
            let begin = span.least.max(from);
            if begin >= span.most {
                continue;
            }
            all += (span.most - begin) / width;
            let end = span.most.min(to);
            if end > begin {
                // The mean of `to - age` over the part of the span between the polls.
                late += (end - begin) * (to - f64::midpoint(begin, end)) / width;
            }
        }
        late / all
    }

    fn known(&self) -> MutexGuard<'_, VecDeque<Span>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn that_took(milliseconds: impl IntoIterator<Item = u64>) -> Usual {
        let usual = Usual::default();
        for took in milliseconds {
            usual.ended(ms(took - took / 50), ms(took + took / 50));
        }
        usual
    }

    /// When a poll is worth it, after one at `from`.
    fn next(usual: &Usual, from: u64) -> u64 {
        (from..)
            .find(|to| usual.lateness(ms(0), ms(from), ms(*to)) >= 0.01)
            .unwrap()
    }

    #[test]
    fn polls_come_when_the_end_is_likely_and_not_before() {
        let usual = that_took((0..40).map(|n| 2000 + n * 5));
        // Rarely before, densely while they end.
        assert!(next(&usual, 0) > 600, "{}", next(&usual, 0));
        assert!(next(&usual, 1000) > 1500, "{}", next(&usual, 1000));
        let gap = next(&usual, 2050) - 2050;
        assert!((20..80).contains(&gap), "{gap}");
    }

    #[test]
    fn a_kind_that_was_never_seen_is_asked_about_less_as_it_ages() {
        let unknown = Usual::default();
        let gaps = [0, 1000, 4000, 60_000, 600_000].map(|from| next(&unknown, from) - from);
        assert!(gaps.is_sorted(), "{gaps:?}");
        assert!(
            gaps[0] <= 60 && gaps[2] <= 400 && gaps[4] <= 4000,
            "{gaps:?}"
        );
    }

    #[test]
    fn what_outlasts_all_that_were_seen_is_asked_about_as_if_none_were() {
        let usual = that_took([500; 48]);
        assert_eq!(next(&usual, 5000), next(&Usual::default(), 5000));
    }

    #[test]
    fn who_waited_in_a_queue_is_asked_about_less() {
        let unknown = Usual::default();
        let soon = ms(500);
        assert!(unknown.lateness(ms(0), ms(0), soon) > 0.1);
        assert!(unknown.lateness(ms(8_000), ms(0), soon) > 0.1);
        assert_eq!(unknown.lateness(ms(12_000), ms(0), soon), 0.0);
        assert!(unknown.lateness(ms(3_600_000), ms(0), ms(3000)) > 1.0);
    }

    #[test]
    fn a_kind_that_became_faster_is_noticed() {
        let usual = that_took([3000; 48]);
        assert!(next(&usual, 0) < 1500, "{}", next(&usual, 0));
        for _ in 0..REMEMBERED {
            usual.ended(ms(0), ms(20));
        }
        assert!(next(&usual, 0) <= 50, "{}", next(&usual, 0));
    }

    proptest! {
        #[test]
        fn who_waits_longer_is_later(took in proptest::collection::vec(1u64..10_000, 0..60), from in 0u64..20_000, to in 0u64..5000, more in 0u64..5000) {
            let usual = that_took(took);
            let (first, second) = (
                usual.lateness(ms(0), ms(from), ms(from + to)),
                usual.lateness(ms(0), ms(from), ms(from + to + more)),
            );
            prop_assert!(first >= -1e-12 && second >= first - 1e-12, "{first} {second}");
            // Nobody is later than the time since the last poll.
            prop_assert!(first <= to as f64 / 1e3 + 1e-9);
        }
    }
}
