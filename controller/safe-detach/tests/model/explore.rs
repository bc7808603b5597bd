//! Explores every reachable state, nearest first, and checks whether goals can be reached from
//! each.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};

/// The name of a step, in two parts.
pub(crate) type Name = (&'static str, &'static str);

pub(crate) struct Step<S> {
    pub(crate) name: Name,
    /// The state after the step, or the property that the step breaks.
    pub(crate) after: Result<S, &'static str>,
    /// Whether the step is a fault, or an act of a person or of the environment: such steps do not
    /// happen any more when faults end.
    pub(crate) fault: bool,
}

pub(crate) struct Steps<S> {
    from: S,
    all: Vec<Step<S>>,
}

impl<S: Copy> Steps<S> {
    pub(crate) fn new(from: S) -> Self {
        Self { from, all: Vec::new() }
    }

    /// Adds a step that happens by itself, if `when` holds.
    pub(crate) fn add_if(&mut self, when: bool, name: &'static str, change: impl FnOnce(&mut S)) {
        if when {
            self.add((name, ""), Ok(changed(&self.from, change)), false);
        }
    }

    /// Adds a step that happens only while faults continue, if `when` holds.
    pub(crate) fn add_fault_if(
        &mut self,
        when: bool,
        name: &'static str,
        change: impl FnOnce(&mut S),
    ) {
        if when {
            self.add((name, ""), Ok(changed(&self.from, change)), true);
        }
    }

    pub(crate) fn add(&mut self, name: Name, after: Result<S, &'static str>, fault: bool) {
        self.all.push(Step { name, after, fault });
    }

    /// Returns the steps that break no property, with the states after them.
    pub(crate) fn successes(&self) -> impl Iterator<Item = (Name, &S)> {
        self.all.iter().filter_map(|step| Some((step.name, step.after.as_ref().ok()?)))
    }

    /// Gives equivalent states the same form, and marks the steps that break a property.
    pub(crate) fn finish(
        mut self,
        normalize: impl Fn(&mut S),
        broken_property: impl Fn(&S) -> Option<&'static str>,
    ) -> Self {
        for step in &mut self.all {
            if let Ok(after) = &mut step.after {
                normalize(after);
                step.after = broken_property(after).map_or(Ok(*after), Err);
            }
        }
        self
    }
}

pub(crate) fn changed<S: Copy>(state: &S, change: impl FnOnce(&mut S)) -> S {
    let mut after = *state;
    change(&mut after);
    after
}

/// Returns a number by which interchangeable parts of a state are ordered.
pub(crate) fn hash_of(part: &impl Hash) -> u64 {
    BuildHasherDefault::<Mix>::default().hash_one(part)
}

/// A property of the form "from these states, when faults end, that state is reached".
pub(crate) struct Goal<S> {
    pub(crate) name: &'static str,
    pub(crate) from: fn(&S) -> bool,
    pub(crate) reached: fn(&S) -> bool,
}

#[derive(Default)]
pub(crate) struct Exploration {
    pub(crate) states: usize,
    pub(crate) steps: usize,
    /// The broken property and the shortest trace to it.
    pub(crate) broken: Option<(String, Vec<String>)>,
    /// The names of all steps that were taken, to show that none was left out by mistake.
    pub(crate) taken: BTreeSet<Name>,
    /// For each goal, the number of states from which it was checked.
    pub(crate) checked_from: Vec<(&'static str, usize)>,
}

/// Explores from `start` until every state is seen or a property is broken; then checks the goals.
pub(crate) fn explore<S: Copy + Eq + Hash>(
    start: S,
    goals: &[Goal<S>],
    mut next: impl FnMut(&S) -> Steps<S>,
) -> Exploration {
    let mut found_states = FoundStates::new();
    found_states.insert(start, 0);
    let mut names = std::collections::HashSet::<Name, BuildHasherDefault<Mix>>::default();
    let mut fault_free = FaultFreeSteps::default();
    let mut found = Exploration::default();
    let mut at = 0;
    while at < found_states.states.len() && found.broken.is_none() {
        let state = found_states.states[at];
        fault_free.begin();
        for step in next(&state).all {
            found.steps += 1;
            names.insert(step.name);
            match step.after {
                Ok(after) => {
                    let index = found_states.insert(after, at);
                    if !step.fault && !goals.is_empty() && index != at {
                        fault_free.targets.push(number(index));
                    }
                }
                Err(property) => {
                    let mut trace = found_states.trace_to(at, &mut next);
                    trace.push(join(step.name));
                    found.broken = Some((property.to_owned(), trace));
                    break;
                }
            }
        }
        at += 1;
    }
    found.states = found_states.states.len();
    found.taken.extend(names);
    if found.broken.is_none() && !goals.is_empty() {
        fault_free.begin();
        found_states.check_goals(goals, &fault_free, &mut next, &mut found);
    }
    found
}

pub(crate) fn join(name: Name) -> String {
    match name.1 {
        "" => name.0.to_owned(),
        detail => format!("{}: {detail}", name.0),
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("four thousand million states do not fit into memory")
}

/// The states in the order in which they were found, with a hash index.
struct FoundStates<S> {
    states: Vec<S>,
    /// The index of the state from which each state was found first.
    found_from: Vec<u32>,
    /// The hash slots: an index into `states` plus one, or 0 for a free slot.
    slots: Vec<u32>,
}

impl<S: Copy + Eq + Hash> FoundStates<S> {
    fn new() -> Self {
        Self { states: Vec::new(), found_from: Vec::new(), slots: vec![0; 1 << 16] }
    }

    /// Returns the index of the state, and inserts the state if it is new.
    fn insert(&mut self, state: S, from: usize) -> usize {
        if self.states.len() * 2 >= self.slots.len() {
            self.slots = vec![0; self.slots.len() * 4];
            for index in 0..self.states.len() {
                let slot = self.slot(&self.states[index]);
                self.slots[slot] = number(index + 1);
            }
        }
        let slot = self.slot(&state);
        match self.slots[slot] {
            0 => {
                self.states.push(state);
                self.found_from.push(number(from));
                self.slots[slot] = number(self.states.len());
                self.states.len() - 1
            }
            taken => taken as usize - 1,
        }
    }

    /// Returns the slot that holds the state, or the free slot for it.
    fn slot(&self, state: &S) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = hash_of(state) as usize & mask;
        while self.slots[slot] != 0 && self.states[self.slots[slot] as usize - 1] != *state {
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// Returns the names of the steps that lead to the state at index `at`.
    fn trace_to(&self, mut at: usize, next: &mut impl FnMut(&S) -> Steps<S>) -> Vec<String> {
        let mut names = Vec::new();
        while at != 0 {
            let before = self.found_from[at] as usize;
            let mut steps = next(&self.states[before]).all.into_iter();
            let step = steps.find(|step| step.after.as_ref() == Ok(&self.states[at]));
            names.push(step.map_or_else(String::new, |step| join(step.name)));
            at = before;
        }
        names.reverse();
        names
    }

    /// Searches backwards from each goal along the steps that are no faults. From a state that the
    /// search does not reach, the goal is out of reach for good. From every other state the goal
    /// stays reachable whatever has happened, so a fair scheduler reaches it.
    fn check_goals(
        &self,
        goals: &[Goal<S>],
        fault_free: &FaultFreeSteps,
        next: &mut impl FnMut(&S) -> Steps<S>,
        found: &mut Exploration,
    ) {
        for goal in goals {
            let reaches =
                fault_free.states_reaching(self.states.iter().map(goal.reached).collect());
            let checked_from = || (0..reaches.len()).filter(|at| (goal.from)(&self.states[*at]));
            found.checked_from.push((goal.name, checked_from().count()));
            if let Some(stuck) = checked_from().find(|at| !reaches[*at]) {
                let trace = self.trace_to(stuck, next);
                found.broken = Some((format!("{} is out of reach", goal.name), trace));
                return;
            }
        }
    }
}

/// The steps that are no faults, as indices of target states, grouped by source state in order.
/// Each takes four bytes, because there are many.
#[derive(Default)]
struct FaultFreeSteps {
    targets: Vec<u32>,
    /// Where each source state's targets begin in `targets`; one more entry marks the end.
    offsets: Vec<usize>,
}

impl FaultFreeSteps {
    /// Begins the next source state: later pushes to `targets` belong to it.
    fn begin(&mut self) {
        self.offsets.push(self.targets.len());
    }

    /// Returns the states from which a marked state can be reached, the marked ones included.
    fn states_reaching(&self, mut marked: Vec<bool>) -> Vec<bool> {
        let leads_to_marked = |marked: &[bool], at: usize| {
            let mut to = self.targets[self.offsets[at]..self.offsets[at + 1]].iter();
            to.any(|to| marked[*to as usize])
        };
        // Most steps lead to states that were found later, so one pass backwards does most of the
        // work.
        loop {
            let mut has_changed = false;
            for at in (0..marked.len()).rev().chain(0..marked.len()) {
                if !marked[at] && leads_to_marked(&marked, at) {
                    marked[at] = true;
                    has_changed = true;
                }
            }
            if !has_changed {
                return marked;
            }
        }
    }
}

/// A hasher that multiplies and shifts: it hashes millions of small states, and no adversary
/// chooses colliding states.
#[derive(Default)]
pub(crate) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        (self.0 ^ (self.0 >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
