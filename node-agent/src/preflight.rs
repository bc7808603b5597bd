//! `preflight`: reports, one line each, what a node has and lacks for this driver, before anything
//! is installed.
//!
//! It changes nothing and needs no privilege; a row that only root can read says so. `--host-root`
//! is where the node's root directory is mounted, so that a container can inspect its node.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::facts::dmi::{self, Machine};
use crate::settings::flags::{Output, Preflight};

mod disks;
mod kernel;
mod kubelet;
mod registered;

/// The severity of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// The node meets the driver's needs.
    Ok,
    /// The driver runs, but a person should look.
    Warn,
    /// The driver does not run on this node.
    Fail,
}

impl Level {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Check {
    level: Level,
    what: String,
    finding: String,
    /// What to do next; empty when nothing is to do.
    next: String,
}

impl Check {
    fn ok(what: impl Into<String>, finding: impl Into<String>) -> Self {
        Self::new(Level::Ok, what, finding, "")
    }

    fn warn(what: impl Into<String>, finding: impl Into<String>, next: &str) -> Self {
        Self::new(Level::Warn, what, finding, next)
    }

    fn fail(what: impl Into<String>, finding: impl Into<String>, next: &str) -> Self {
        Self::new(Level::Fail, what, finding, next)
    }

    fn new(level: Level, what: impl Into<String>, finding: impl Into<String>, next: &str) -> Self {
        Self { level, what: what.into(), finding: finding.into(), next: next.to_owned() }
    }
}

/// The node as this process sees it.
#[derive(Debug)]
struct Host {
    root: PathBuf,
    kubelet: PathBuf,
}

impl Host {
    /// Returns the path of a file of the node.
    fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Returns the path of a directory of kubelet's.
    fn kubelet(&self, name: &str) -> PathBuf {
        let root = self.path(&self.kubelet);
        if name.is_empty() { root } else { root.join(name) }
    }

    /// Returns the text of a short file.
    fn read(&self, path: &str) -> std::io::Result<String> {
        std::fs::read_to_string(self.path(path)).map(|text| text.trim().to_owned())
    }
}

/// Returns what the firmware reports of the machine.
fn machine_checks(host: &Host) -> [Check; 2] {
    let machine = Machine::read(&host.path(dmi::DIRECTORY));
    let next =
        "let the instance metadata service or a node facts file say it (deploy/docs/node-agent.md)";
    let row = |what, known: Option<String>| match known {
        Some(known) => Check::ok(what, known),
        None => Check::warn(what, "DMI does not say it", next),
    };
    [
        row("instance id", machine.instance.map(|id| id.to_string())),
        row("instance type", machine.instance_type),
    ]
}

/// Returns the report, and whether the driver can run.
pub fn report(flags: &Preflight) -> (String, bool) {
    let host = Host { root: flags.host_root.clone(), kubelet: flags.kubelet_root.clone() };
    let mut checks = kernel::checks(&host, ebs_csi_confine::landlock_abi());
    checks.push(disks::check(&host));
    checks.extend(kubelet::checks(&host));
    checks.extend(machine_checks(&host));
    checks.extend(registered::checks(&host));
    let runs = checks.iter().all(|check| check.level < Level::Fail);
    let text = match flags.output {
        Output::Text => as_text(&checks),
        Output::Json => as_json(&checks, runs),
    };
    (text, runs)
}

fn as_text(checks: &[Check]) -> String {
    let width = checks.iter().map(|check| check.what.len()).max().unwrap_or_default();
    let mut text = String::new();
    for check in checks {
        let (level, what) = (check.level.as_str(), &check.what);
        // Writing to a String cannot fail.
        let _ = write!(text, "{level:<4}  {what:<width$}  {}", check.finding);
        if !check.next.is_empty() {
            let _ = write!(text, "; {}", check.next);
        }
        text.push('\n');
    }
    text
}

fn as_json(checks: &[Check], runs: bool) -> String {
    let as_value = |Check { level, what, finding, next }: &Check| {
        let level = level.as_str();
        json!({ "level": level, "what": what, "finding": finding, "next": next })
    };
    let checks: Vec<_> = checks.iter().map(as_value).collect();
    format!("{:#}\n", json!({ "runs": runs, "checks": checks }))
}

/// Describes an I/O error for the reader.
fn describe_error(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "not there".to_owned(),
        std::io::ErrorKind::PermissionDenied => "this user may not look".to_owned(),
        _ => error.to_string(),
    }
}
