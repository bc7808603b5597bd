//! What was once possible and must not be again: one row for each, named as in
//! `deploy/docs/testing.md`. The peer is a scripted agent that holds the agent's uid, a scripted
//! broker, or a scripted tool that runs under the filter of the process it stands for.
mod confinement;
mod content;
mod holders;
mod queues;
mod upkeep;

/// Print a row of the table: what was tried, and what happened as it must.
pub(crate) fn row(id: &str, tried: &str, happened: &str) {
    println!("attack | {id} | {tried} | {happened}");
}
