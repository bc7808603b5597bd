//! Every state that can be reached, nearest first.

use std::collections::{BTreeSet, HashSet};
use std::hash::Hash;
use std::rc::Rc;

/// What one step can lead to: its name, and the state after it or the property that it breaks.
pub(crate) type Steps<S> = Vec<(String, Result<S, String>)>;

/// What was found.
pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) steps: usize,
    /// The broken property and the shortest way to it.
    pub(crate) broken: Option<(String, Vec<String>)>,
    /// Names of all steps that were taken, to show that nothing was left out by mistake.
    pub(crate) taken: BTreeSet<String>,
}

/// A state, and by which step of which state it was reached first.
type Reached<S> = (Rc<S>, Option<(usize, usize)>);

/// Explores from `start` until everything is seen or a property is broken.
pub(crate) fn explore<S: Eq + Hash>(start: S, next: impl Fn(&S) -> Steps<S>) -> Found {
    let start = Rc::new(start);
    let mut known = HashSet::from([Rc::clone(&start)]);
    let mut order: Vec<Reached<S>> = vec![(start, None)];
    let mut found = Found {
        states: 1,
        steps: 0,
        broken: None,
        taken: BTreeSet::new(),
    };
    let mut at = 0;
    while at < order.len() && found.broken.is_none() {
        for (number, (name, after)) in next(&order[at].0).into_iter().enumerate() {
            found.steps += 1;
            match after {
                Ok(state) => {
                    let state = Rc::new(state);
                    if known.insert(Rc::clone(&state)) {
                        order.push((state, Some((at, number))));
                    }
                }
                Err(property) => {
                    found.broken = Some((property, way(&order, &next, at, &name)));
                    break;
                }
            }
            if !found.taken.contains(&name) {
                found.taken.insert(name);
            }
        }
        at += 1;
    }
    found.states = order.len();
    found
}

/// The names of the steps to the state at this place, and one more.
fn way<S>(
    order: &[Reached<S>],
    next: &impl Fn(&S) -> Steps<S>,
    mut at: usize,
    last: &str,
) -> Vec<String> {
    let mut names = vec![last.to_owned()];
    while let Some((before, number)) = order[at].1 {
        names.push(next(&order[before].0).swap_remove(number).0);
        at = before;
    }
    names.reverse();
    names
}
