//! The processes of the helper, each with its confinement and its loop: [`start`] forks the
//! [`supervisor`], the broker, the directories process and the opener, and the supervisor forks a
//! [`runner`] for each job.
mod broker;
pub mod confinement;
mod directories;
pub mod runner;
pub mod start;
pub mod supervisor;
