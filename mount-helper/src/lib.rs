//! The privileged process: identifies, checks, formats and mounts EBS volumes, and nothing else.
//!
//! One program, six roles: [`start`] opens what has to be opened by name and forks, and each part
//! confines itself. The [`supervisor`] forks a [`runner`] for each job, and the [`runner`] runs one
//! [`tool`]; the [`broker`] answers requests and mounts; [`directories`] makes and removes targets;
//! [`device::opener`] opens disks. `README.md` is the contract.
pub mod attachments;
pub mod bell;
pub mod beneath;
pub mod broker;
pub mod channel;
pub mod comparison;
pub mod confinement;
pub mod content;
pub mod device;
pub mod directories;
pub mod examined;
pub mod fault_point;
pub mod job;
pub mod journal;
pub mod lanes;
pub mod mount_table;
pub mod mounted;
pub mod mounts;
pub mod operation;
pub mod outcome;
pub mod place;
pub mod privilege;
pub mod propagation;
pub mod runner;
pub mod runners;
pub mod session;
pub mod settings;
pub mod sole;
pub mod start;
pub mod supervisor;
pub mod switched;
pub mod sys;
pub mod table;
pub mod taken;
pub mod talk;
pub mod tool;
pub mod tool_places;
pub mod tools;
pub mod volume_root;
pub mod work;
pub mod world;
