//! Every state that can be reached, nearest first, and whether goals can be reached from there.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};

/// What happens in a step, in two parts.
pub(crate) type Name = (&'static str, &'static str);

/// One thing that can happen in a state.
pub(crate) struct Step<S> {
    pub(crate) name: Name,
    /// The state after it, or the property that it breaks.
    pub(crate) after: Result<S, &'static str>,
    /// It is a fault, or a person's or the world's doing: when these end, it does not happen any
    /// more.
    pub(crate) fault: bool,
}

/// All that can happen in a state.
pub(crate) struct Steps<S>(pub(crate) Vec<Step<S>>);

impl<S> Steps<S> {
    /// What happens by itself, if it can.
    pub(crate) fn can(&mut self, when: bool, name: &'static str, after: impl FnOnce() -> S) {
        if when {
            self.add((name, ""), Ok(after()), false);
        }
    }

    /// What happens only as long as faults go on.
    pub(crate) fn fault(&mut self, when: bool, name: &'static str, after: impl FnOnce() -> S) {
        if when {
            self.add((name, ""), Ok(after()), true);
        }
    }

    pub(crate) fn add(&mut self, name: Name, after: Result<S, &'static str>, fault: bool) {
        self.0.push(Step { name, after, fault });
    }
}

/// A property of the kind "from there, when faults end, this is reached".
pub(crate) struct Goal<S> {
    pub(crate) name: &'static str,
    pub(crate) from: fn(&S) -> bool,
    pub(crate) reached: fn(&S) -> bool,
}

/// What was found.
pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) steps: usize,
    /// The broken property and the shortest way to it.
    pub(crate) broken: Option<(String, Vec<String>)>,
    /// Names of all steps that were taken, to show that nothing was left out by mistake.
    pub(crate) taken: BTreeSet<Name>,
    /// Of each goal, from how many states it was asked.
    pub(crate) asked: Vec<(&'static str, usize)>,
}

/// Explores from `start` until everything is seen or a property is broken; then looks at the goals.
pub(crate) fn explore<S: Copy + Eq + Hash>(
    start: S,
    goals: &[Goal<S>],
    next: impl Fn(&S) -> Steps<S>,
) -> Found {
    let mut seen = Seen::new();
    seen.place(start, 0);
    let mut names = std::collections::HashSet::<Name, BuildHasherDefault<Mix>>::default();
    let mut calm = Calm::default();
    let mut found = Found {
        states: 1,
        steps: 0,
        broken: None,
        taken: BTreeSet::new(),
        asked: Vec::new(),
    };
    let mut at = 0;
    while at < seen.states.len() && found.broken.is_none() {
        let state = seen.states[at];
        calm.begin();
        for step in next(&state).0 {
            found.steps += 1;
            names.insert(step.name);
            match step.after {
                Ok(after) => {
                    let place = seen.place(after, at);
                    if !step.fault && !goals.is_empty() && place != at {
                        calm.to.push(number(place));
                    }
                }
                Err(property) => {
                    let mut way = seen.way(at, &next);
                    way.push(join(step.name));
                    found.broken = Some((property.to_owned(), way));
                    break;
                }
            }
        }
        at += 1;
    }
    found.states = seen.states.len();
    found.taken.extend(names);
    if found.broken.is_none() && !goals.is_empty() {
        calm.begin();
        seen.look_at(goals, &calm, &next, &mut found);
    }
    found
}

pub(crate) fn join(name: Name) -> String {
    match name.1 {
        "" => name.0.to_owned(),
        more => format!("{}: {more}", name.0),
    }
}

fn number(place: usize) -> u32 {
    u32::try_from(place).expect("four thousand million states do not fit into memory")
}

/// The states in the order in which they were found, and an index of them.
struct Seen<S> {
    states: Vec<S>,
    /// From which state each was found first.
    found_from: Vec<u32>,
    /// Places in `states`, one more than there, by hash; 0: free.
    slots: Vec<u32>,
}

impl<S: Copy + Eq + Hash> Seen<S> {
    fn new() -> Self {
        Self {
            states: Vec::new(),
            found_from: Vec::new(),
            slots: vec![0; 1 << 16],
        }
    }

    /// Where the state stands; it is put there when it is new.
    fn place(&mut self, state: S, from: usize) -> usize {
        if self.states.len() * 2 >= self.slots.len() {
            self.slots = vec![0; self.slots.len() * 4];
            for place in 0..self.states.len() {
                let slot = self.slot(&self.states[place]);
                self.slots[slot] = number(place + 1);
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

    /// The slot where the state is, or would be.
    fn slot(&self, state: &S) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = BuildHasherDefault::<Mix>::default().hash_one(state) as usize & mask;
        while self.slots[slot] != 0 && self.states[self.slots[slot] as usize - 1] != *state {
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// The names of the steps to the state at this place.
    fn way(&self, mut at: usize, next: &impl Fn(&S) -> Steps<S>) -> Vec<String> {
        let mut names = Vec::new();
        while at != 0 {
            let before = self.found_from[at] as usize;
            let mut steps = next(&self.states[before]).0.into_iter();
            let step = steps.find(|step| step.after.as_ref() == Ok(&self.states[at]));
            names.push(step.map_or_else(String::new, |step| join(step.name)));
            at = before;
        }
        names.reverse();
        names
    }

    /// Goes back from each goal along the steps that are no faults. Where that does not come by,
    /// the goal is out of reach for good; everywhere else it can still be reached, whatever has
    /// happened, so a scheduler that is fair comes there.
    fn look_at(
        &self,
        goals: &[Goal<S>],
        calm: &Calm,
        next: &impl Fn(&S) -> Steps<S>,
        found: &mut Found,
    ) {
        for goal in goals {
            let reaches = calm.reach(self.states.iter().map(goal.reached).collect());
            let asked = || (0..reaches.len()).filter(|at| (goal.from)(&self.states[*at]));
            found.asked.push((goal.name, asked().count()));
            if let Some(stuck) = asked().find(|at| !reaches[*at]) {
                let way = self.way(stuck, next);
                found.broken = Some((format!("{} is out of reach", goal.name), way));
                return;
            }
        }
    }
}

/// The steps that are no faults: from each state in their order, where they lead. Four bytes each,
/// because they are many.
#[derive(Default)]
struct Calm {
    to: Vec<u32>,
    /// Where those of each state begin; one more marks the end.
    first: Vec<usize>,
}

impl Calm {
    /// What is pushed from now on leads from the next state.
    fn begin(&mut self) {
        self.first.push(self.to.len());
    }

    /// From where what is marked can be reached.
    fn reach(&self, mut marked: Vec<bool>) -> Vec<bool> {
        let leads = |marked: &[bool], at: usize| {
            let mut to = self.to[self.first[at]..self.first[at + 1]].iter();
            to.any(|to| marked[*to as usize])
        };
        // Most steps lead to states that were found later, so most of it is done when they are gone
        // through backwards once.
        loop {
            let mut more = false;
            for at in (0..marked.len()).rev().chain(0..marked.len()) {
                if !marked[at] && leads(&marked, at) {
                    marked[at] = true;
                    more = true;
                }
            }
            if !more {
                return marked;
            }
        }
    }
}

/// Multiplies and turns: millions of small states are hashed, and nobody chooses them to collide.
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
