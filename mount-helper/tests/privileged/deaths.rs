//! A process, a disk or the power goes at each step; the retry converges.
pub(crate) mod crashes;
mod ending;
mod kills;
mod power_cut;
mod pulled;
mod unfinished;
