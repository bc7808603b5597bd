//! The processes of the helper, each with its confinement and its loop: [`start`] forks the broker,
//! the directories process, the opener and, for vsock, the relay, and becomes the [`supervisor`],
//! which forks a [`runner`] for each job.
mod broker;
pub mod confinement;
mod directories;
mod relay;
pub mod runner;
pub mod start;
pub mod supervisor;
