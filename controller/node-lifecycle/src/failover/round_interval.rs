//! The pause until the next round.

use std::time::Duration;

/// Each turn costs a request to EC2; the limit keeps turns from using one every second.
const LEAST: Duration = Duration::from_millis(1_200);

/// Returns the time from the beginning of a round to the beginning of the next. `every` is that
/// time when one query covers all suspects; when the suspects need several turns, the rounds follow
/// closer together.
pub(super) fn interval_of_rounds(every: Duration, turns: usize) -> Duration {
    let turns = u32::try_from(turns.max(1)).unwrap_or(u32::MAX);
    (every / turns).max(LEAST).min(every)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::failover::query_schedule::QuerySchedule;

    /// A configured time between rounds below 1,200 ms is kept.
    #[test]
    fn more_turns_shorten_rounds_down_to_1200_ms() {
        let rows = [
            // every, turns, milliseconds
            (3, 0, 3_000),
            (3, 1, 3_000),
            (3, 2, 1_500),
            (3, 5, 1_200),
            (10, 2, 5_000),
            (10, 4, 2_500),
            (10, 25, 1_200),
            (1, 1, 1_000),
            (1, 5, 1_000),
        ];
        for (every, turns, milliseconds) in rows {
            let interval = interval_of_rounds(Duration::from_secs(every), turns);
            assert_eq!(interval, Duration::from_millis(milliseconds), "{every} {turns}");
        }
    }

    /// Returns the longest time from evidence that appears right after the query of an instance to
    /// the round with the next query.
    fn longest_wait(suspects: usize) -> Duration {
        let questions: Vec<_> =
            (0..suspects).map(|number| (format!("i-{number:04}"), "vol-1".to_owned())).collect();
        let mut query_schedule = QuerySchedule::default();
        let mut queried: BTreeMap<String, Duration> = BTreeMap::new();
        let (mut now, mut longest) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..100 {
            for (instance, _) in query_schedule.choose(&questions) {
                if let Some(last) = queried.insert(instance, now) {
                    longest = longest.max(now - last);
                }
            }
            now += interval_of_rounds(Duration::from_secs(3), query_schedule.rounds_per_cycle);
        }
        assert_eq!(queried.len(), suspects, "each comes up");
        longest
    }

    /// Up to 400 suspects, the longest time between two queries of an instance stays at 3 s.
    #[test]
    fn query_gap_reaches_6_s_at_1000_suspects() {
        // The rest of five seconds is for the second read and the act.
        let rows =
            [(1, 3_000), (200, 3_000), (201, 3_000), (400, 3_000), (600, 3_600), (1_000, 6_000)];
        for (suspects, milliseconds) in rows {
            let wait = longest_wait(suspects);
            assert_eq!(wait, Duration::from_millis(milliseconds), "{suspects}");
        }
    }
}
