//! Which suspects are asked about in a round, and what was last answered about the others.
//!
//! EC2 takes so many instances in one request. When more are suspect, each round asks about those that were asked about longest ago; what is
//! remembered of the others only chooses whom to look at anew, and nothing is done without a fresh look.

use std::collections::{BTreeSet, HashMap};

use crate::controller::Answers;
use ebs_csi_safe_detach::lifecycle::NodeFacts;

/// Instances that EC2 takes in one request.
pub(super) const AT_ONCE: usize = 200;

/// An instance, and a volume at it.
pub(super) type Question = (String, String);

/// The turns.
#[derive(Debug, Default)]
pub struct Rota {
    round: u64,
    turns: usize,
    asked: HashMap<String, u64>,
    answers: Answers,
}

impl Rota {
    /// Which of the questions are to be asked in this round. What is no longer asked about is forgotten.
    pub fn choose(&mut self, questions: &[Question]) -> Vec<Question> {
        self.round += 1;
        let all: BTreeSet<&String> = questions.iter().map(|(instance, _)| instance).collect();
        self.asked.retain(|instance, _| all.contains(instance));
        self.forget(|instance| !all.contains(instance));
        self.turns = all.len().div_ceil(AT_ONCE);
        let mut instances: Vec<&String> = all.into_iter().collect();
        // Those that were never asked about come first.
        instances.sort_by_key(|instance| self.asked.get(*instance).copied().unwrap_or(0));
        instances.truncate(AT_ONCE);
        let chosen: BTreeSet<&String> = instances.into_iter().collect();
        for instance in &chosen {
            self.asked.insert((*instance).clone(), self.round);
        }
        let mut now = questions.to_vec();
        now.retain(|(instance, _)| chosen.contains(instance));
        now
    }

    /// In how many rounds each comes up once.
    pub(super) fn turns(&self) -> usize {
        self.turns
    }

    /// The answers to what was chosen.
    pub fn note(&mut self, chosen: &[Question], answers: Answers) {
        let chosen: BTreeSet<&String> = chosen.iter().map(|(instance, _)| instance).collect();
        self.forget(|instance| chosen.contains(instance));
        self.answers.volumes.extend(answers.volumes);
        self.answers.instances.extend(answers.instances);
        self.answers.texts.extend(answers.texts);
    }

    /// The controller does not answer: nothing is known.
    pub fn silence(&mut self) {
        *self = Self {
            round: self.round,
            turns: self.turns,
            ..Self::default()
        };
    }

    /// Fills in what is known of a node.
    pub fn fill(&self, facts: &mut NodeFacts) {
        fill(&self.answers, facts);
    }

    /// The controller's words about an instance.
    pub fn text(&self, instance: &str) -> Option<&str> {
        self.answers.texts.get(instance).map(String::as_str)
    }

    fn forget(&mut self, gone: impl Fn(&String) -> bool) {
        let answers = &mut self.answers;
        answers.volumes.retain(|(instance, _), _| !gone(instance));
        answers.instances.retain(|instance, _| !gone(instance));
        answers.texts.retain(|instance, _| !gone(instance));
    }
}

/// Fills in what was answered about a node, and nothing else.
pub(super) fn fill(answers: &Answers, facts: &mut NodeFacts) {
    let questions = facts.questions();
    facts.volumes.clear();
    facts.instances.clear();
    for question in questions {
        if let Some(evidence) = answers.instances.get(&question.0) {
            facts.instances.insert(question.0.clone(), evidence.clone());
        }
        if let Some(evidence) = answers.volumes.get(&question) {
            facts.volumes.insert(question, *evidence);
        }
    }
}

#[cfg(test)]
mod tests {
    use ebs_csi_safe_detach::lifecycle::{Evidence, InstanceEvidence};

    use super::*;

    fn questions(instances: std::ops::Range<usize>) -> Vec<Question> {
        let all = instances.flat_map(|number| {
            ["vol-a", "vol-b"].map(|volume| (format!("i-{number:04}"), volume.to_owned()))
        });
        all.collect()
    }

    fn answers(questions: &[Question]) -> Answers {
        let mut answers = Answers::default();
        for question in questions {
            answers
                .instances
                .insert(question.0.clone(), InstanceEvidence::NotOff);
            answers.texts.insert(question.0.clone(), "runs".to_owned());
            answers.volumes.insert(question.clone(), Evidence::Unproven);
        }
        answers
    }

    #[test]
    fn each_is_asked_about_in_its_turn_and_new_ones_first() {
        let mut rota = Rota::default();
        let all = questions(0..450);
        let mut seen = BTreeSet::new();
        for _ in 0..3 {
            let chosen = rota.choose(&all);
            let instances: BTreeSet<_> = chosen.iter().map(|(i, _)| i.clone()).collect();
            assert!(instances.len() <= AT_ONCE);
            assert_eq!(chosen.len(), instances.len() * 2, "with all volumes");
            rota.note(&chosen, answers(&chosen));
            seen.extend(instances);
        }
        assert_eq!(seen.len(), 450);
        let more = questions(0..451);
        let chosen = rota.choose(&more);
        assert!(chosen.contains(&("i-0450".to_owned(), "vol-a".to_owned())));
    }

    #[test]
    fn what_is_not_asked_about_any_more_is_forgotten_and_silence_forgets_all() {
        let mut rota = Rota::default();
        let chosen = rota.choose(&questions(0..3));
        rota.note(&chosen, answers(&chosen));
        assert_eq!(rota.text("i-0002"), Some("runs"));
        let chosen = rota.choose(&questions(0..2));
        assert_eq!(rota.text("i-0002"), None);
        // An answer that lacks what the last one had.
        rota.note(&chosen, Answers::default());
        assert_eq!(rota.text("i-0001"), None);
        rota.note(&chosen, answers(&chosen));
        rota.silence();
        assert_eq!(rota.text("i-0001"), None);
    }
}
