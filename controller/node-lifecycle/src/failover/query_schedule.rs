//! Chooses the suspects to query in a round, and keeps the last answers about the others.
//!
//! EC2 limits the number of instances in one request. When more instances are suspect, each round
//! queries those whose last query is the oldest. The remembered answers about the others only
//! decide which nodes to query again; no act happens without a fresh query.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::controller_client::ControllerAnswers;
use ebs_csi_safe_detach::Fact;
use ebs_csi_safe_detach::lifecycle::{InstanceEvidence, NodeFacts};

/// Most instances that EC2 accepts in one request.
pub(super) const MAX_INSTANCES: usize = 200;

/// Most instances whose status checks EC2 returns in one request.
const MAX_STATUS_CHECKS: usize = 100;
/// EC2 runs its status checks once a minute: this many rounds pass before the same instance's
/// checks are queried again.
const STATUS_CHECK_ROUNDS: u64 = 5;

/// An instance, and a volume attached to it.
pub(super) type Question = (String, String);

/// The order of the queries, and the remembered answers.
#[derive(Debug, Default)]
pub(super) struct QuerySchedule {
    round: u64,
    /// The number of rounds in which each instance is queried once.
    pub(super) rounds_per_cycle: usize,
    last_queried: HashMap<String, u64>,
    last_checked: HashMap<String, u64>,
    pub(super) answers: ControllerAnswers,
}

impl QuerySchedule {
    /// Returns the questions to ask in this round. Forgets the state of instances that are no
    /// longer in question.
    pub(super) fn choose(&mut self, questions: &[Question]) -> Vec<Question> {
        self.round += 1;
        let all: BTreeSet<&String> = questions.iter().map(|(instance, _)| instance).collect();
        self.last_queried.retain(|instance, _| all.contains(instance));
        self.last_checked.retain(|instance, _| all.contains(instance));
        self.forget(|instance| !all.contains(instance));
        self.rounds_per_cycle = all.len().div_ceil(MAX_INSTANCES);
        let mut instances: Vec<&String> = all.into_iter().collect();
        // Instances that were never queried come first.
        instances.sort_by_key(|instance| self.last_queried.get(*instance).copied().unwrap_or(0));
        instances.truncate(MAX_INSTANCES);
        let chosen: BTreeSet<&String> = instances.into_iter().collect();
        for instance in &chosen {
            self.last_queried.insert((*instance).clone(), self.round);
        }
        let mut due = questions.to_vec();
        due.retain(|(instance, _)| chosen.contains(instance));
        due
    }

    /// Returns the chosen instances whose status checks are due in this round, among those for
    /// which the checks matter.
    pub(super) fn choose_checks(
        &mut self,
        chosen: &[Question],
        relevant: BTreeSet<String>,
    ) -> BTreeSet<String> {
        let chosen: BTreeSet<&String> = chosen.iter().map(|(instance, _)| instance).collect();
        let last = |instance: &String| self.last_checked.get(instance).copied();
        let is_due = |instance: &String| {
            last(instance).is_none_or(|round| self.round - round >= STATUS_CHECK_ROUNDS)
        };
        let mut due: Vec<String> = relevant
            .into_iter()
            .filter(|instance| chosen.contains(instance) && is_due(instance))
            .collect();
        due.sort_by_key(|instance| last(instance).unwrap_or(0));
        due.truncate(MAX_STATUS_CHECKS);
        for instance in &due {
            self.last_checked.insert(instance.clone(), self.round);
        }
        due.into_iter().collect()
    }

    /// Stores the answers to the chosen questions. The last status checks of an instance that still
    /// runs stay valid until they are queried again.
    pub(super) fn record_answers(
        &mut self,
        chosen: &[Question],
        checks: &BTreeSet<String>,
        mut answers: ControllerAnswers,
    ) {
        let chosen: BTreeSet<&String> = chosen.iter().map(|(instance, _)| instance).collect();
        for instance in chosen.iter().filter(|i| !checks.contains(i.as_str())) {
            if let Some(before) = self.answers.instances.get(*instance)
                && let Some(now) = answers.instances.get_mut(*instance)
                && let InstanceEvidence::Running { .. } = before.evidence
                && now.evidence == (InstanceEvidence::Running { impaired: Fact::Unknown })
            {
                now.evidence.clone_from(&before.evidence);
                now.checks.clone_from(&before.checks);
            }
        }
        self.forget(|instance| chosen.contains(instance));
        self.answers.volumes.extend(answers.volumes);
        self.answers.instances.extend(answers.instances);
    }

    /// Forgets all answers, because the controller does not answer.
    pub(super) fn forget_answers(&mut self) {
        *self =
            Self { round: self.round, rounds_per_cycle: self.rounds_per_cycle, ..Self::default() };
    }

    fn forget(&mut self, gone: impl Fn(&String) -> bool) {
        self.answers.volumes.retain(|(instance, _), _| !gone(instance));
        self.answers.instances.retain(|instance, _| !gone(instance));
    }
}

/// Fills in the answers about a node, and nothing else.
pub(super) fn fill_answers(answers: &ControllerAnswers, facts: &mut NodeFacts) {
    let questions = facts.questions();
    facts.volumes.clear();
    facts.instances.clear();
    for question in questions {
        if let Some(answer) = answers.instances.get(&question.0) {
            facts.instances.insert(question.0.clone(), answer.evidence.clone());
        }
        if let Some(evidence) = answers.volumes.get(&question) {
            facts.volumes.insert(question, *evidence);
        }
    }
}

/// The shortest time between two rounds. Each turn costs a request to EC2, and the limit keeps
/// turns from using one every second.
const LEAST_INTERVAL: Duration = Duration::from_millis(1_200);

/// Returns the time from the beginning of a round to the beginning of the next. `every` is that
/// time when one query covers all suspects; when the suspects need several turns, the rounds follow
/// closer together.
pub(super) fn interval_of_rounds(every: Duration, turns: usize) -> Duration {
    let turns = u32::try_from(turns.max(1)).unwrap_or(u32::MAX);
    (every / turns).max(LEAST_INTERVAL).min(every)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ebs_csi_safe_detach::lifecycle::VolumeEvidence;

    use super::*;
    use crate::controller_client::InstanceAnswer;

    fn questions(instances: std::ops::Range<usize>) -> Vec<Question> {
        let all = instances.flat_map(|number| {
            ["vol-a", "vol-b"].map(|volume| (format!("i-{number:04}"), volume.to_owned()))
        });
        all.collect()
    }

    fn answer(evidence: InstanceEvidence, checks: &str) -> InstanceAnswer {
        InstanceAnswer { evidence, text: "runs".to_owned(), checks: checks.to_owned() }
    }

    fn answers(questions: &[Question]) -> ControllerAnswers {
        let mut answers = ControllerAnswers::default();
        for question in questions {
            answers.instances.insert(question.0.clone(), answer(InstanceEvidence::NotOff, ""));
            answers.volumes.insert(question.clone(), VolumeEvidence::Unproven);
        }
        answers
    }

    #[test]
    fn suspects_rotate_200_per_round_new_ones_first() {
        let mut query_schedule = QuerySchedule::default();
        let all = questions(0..450);
        let mut seen = BTreeSet::new();
        for _ in 0..3 {
            let chosen = query_schedule.choose(&all);
            let instances: BTreeSet<_> = chosen.iter().map(|(i, _)| i.clone()).collect();
            assert!(instances.len() <= MAX_INSTANCES);
            assert_eq!(chosen.len(), instances.len() * 2, "with all volumes");
            query_schedule.record_answers(&chosen, &BTreeSet::new(), answers(&chosen));
            seen.extend(instances);
        }
        assert_eq!(seen.len(), 450);
        let more = questions(0..451);
        let chosen = query_schedule.choose(&more);
        assert!(chosen.contains(&("i-0450".to_owned(), "vol-a".to_owned())));
    }

    /// An instance that is no longer in question or is missing from an answer loses its text;
    /// a missing answer clears every text.
    #[test]
    fn dropped_instance_or_missing_answer_clears_answers() {
        let mut query_schedule = QuerySchedule::default();
        let none = BTreeSet::new();
        let chosen = query_schedule.choose(&questions(0..3));
        query_schedule.record_answers(&chosen, &none, answers(&chosen));
        let text = |schedule: &QuerySchedule, instance| {
            schedule.answers.instances.get(instance).map(|answer| answer.text.clone())
        };
        assert_eq!(text(&query_schedule, "i-0002").as_deref(), Some("runs"));
        let chosen = query_schedule.choose(&questions(0..2));
        assert_eq!(text(&query_schedule, "i-0002"), None);
        // An answer that lacks an instance of the last answer.
        query_schedule.record_answers(&chosen, &none, ControllerAnswers::default());
        assert_eq!(text(&query_schedule, "i-0001"), None);
        query_schedule.record_answers(&chosen, &none, answers(&chosen));
        query_schedule.forget_answers();
        assert_eq!(text(&query_schedule, "i-0001"), None);
    }

    /// The checks of an instance are due again after 5 rounds; an instance whose checks begin to
    /// matter is queried at once.
    #[test]
    fn status_checks_rotate_100_per_round() {
        let mut query_schedule = QuerySchedule::default();
        let all = questions(0..150);
        let relevant: BTreeSet<String> = all.iter().map(|(instance, _)| instance.clone()).collect();
        let mut rounds = Vec::new();
        for _ in 0..8 {
            let chosen = query_schedule.choose(&all);
            rounds.push(query_schedule.choose_checks(&chosen, relevant.clone()));
        }
        let sizes: Vec<usize> = rounds.iter().map(BTreeSet::len).collect();
        assert_eq!(sizes, [100, 50, 0, 0, 0, 100, 50, 0]);
        assert!(rounds[0].is_disjoint(&rounds[1]));
        assert_eq!(rounds[0], rounds[5]);
        // An instance whose checks matter only now is queried at once; an instance that is not in
        // question is not.
        let chosen = query_schedule.choose(&questions(0..151));
        let more = ["i-0150", "i-0999"].map(str::to_owned);
        let checked = query_schedule.choose_checks(&chosen, more.into());
        assert_eq!(checked, ["i-0150".to_owned()].into());
    }

    /// A query without an answer makes the checks unknown, and an instance that stops running loses
    /// them.
    #[test]
    fn check_result_persists_between_queries_while_instance_runs() {
        let mut query_schedule = QuerySchedule::default();
        let all = vec![("i-0001".to_owned(), "vol-a".to_owned())];
        let queried: BTreeSet<String> = ["i-0001".to_owned()].into();
        let says = |evidence: InstanceEvidence, text: &str| {
            let instances = [("i-0001".to_owned(), answer(evidence, text))].into();
            ControllerAnswers { instances, ..ControllerAnswers::default() }
        };
        let running = |impaired| InstanceEvidence::Running { impaired };
        let (failing, none) = (Fact::Present(()), BTreeSet::new());
        let rows = [
            (&none, running(Fact::Unknown), "", running(Fact::Unknown), ""),
            (&queried, running(failing), "fails", running(failing), "fails"),
            (&none, running(Fact::Unknown), "", running(failing), "fails"),
            (&none, running(Fact::Unknown), "", running(failing), "fails"),
            // Queried, and not answered: unknown.
            (&queried, running(Fact::Unknown), "throttled", running(Fact::Unknown), "throttled"),
            (&queried, running(failing), "fails", running(failing), "fails"),
            // The instance stops running and then runs again: the former checks no longer apply.
            (&none, InstanceEvidence::NotOff, "", InstanceEvidence::NotOff, ""),
            (&none, running(Fact::Unknown), "", running(Fact::Unknown), ""),
        ];
        for (number, (checks, said, text, want, words)) in rows.into_iter().enumerate() {
            let chosen = query_schedule.choose(&all);
            query_schedule.record_answers(&chosen, checks, says(said, text));
            let known = &query_schedule.answers.instances["i-0001"];
            assert_eq!(known.evidence, want, "row {number}");
            assert_eq!(known.checks, words, "row {number}");
        }
    }

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
