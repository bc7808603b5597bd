//! The extent of a run: all measurements or the named ones, with enough samples for a figure or
//! only enough to test the harness.

use std::path::PathBuf;

use crate::delay::Latency;
use crate::error::BenchError;

/// The amount of work in each measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Tiny numbers, for a test of the harness. The figures mean nothing.
    Quick,
    /// The ordinary run.
    Usual,
    /// The ordinary run and the measurements that take hours.
    Full,
}

impl Extent {
    /// Returns the number for this extent.
    pub fn of(self, quick: usize, usual: usize, full: usize) -> usize {
        match self {
            Self::Quick => quick,
            Self::Usual => usual,
            Self::Full => full,
        }
    }

    /// Returns the extent's command-line option, with a leading space.
    pub fn option(self) -> &'static str {
        match self {
            Self::Quick => " --quick",
            Self::Usual => "",
            Self::Full => " --full",
        }
    }
}

/// The selection of measurements.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Names of measurements; empty means all.
    pub only: Vec<String>,
    /// Another driver's program, which takes part in the measurements that allow it.
    pub peer: Option<PathBuf>,
    /// The latency of a node's disks; without one they are as fast as memory.
    pub latency: Option<Latency>,
    /// The extent of each measurement.
    pub extent: Extent,
}

impl Wanted {
    /// Returns the command-line option ` --peer-bin NAME`, or an empty text without another driver.
    pub fn peer_option(&self) -> String {
        let name = self.peer.as_ref().and_then(|path| path.file_name());
        name.map_or(String::new(), |name| format!(" --peer-bin {}", name.to_string_lossy()))
    }
}

/// Returns those of `all` that `only` names, in the order of `all`; returns `all` when `only` is
/// empty.
///
/// # Errors
/// Returns an error when `only` holds a name that is not in `all`.
pub fn chosen(
    only: &[String],
    all: &'static [&'static str],
) -> Result<Vec<&'static str>, BenchError> {
    if let Some(unknown) = only.iter().find(|name| !all.contains(&name.as_str())) {
        let known = all.join(", ");
        return Err(format!("no measurement is called {unknown}; there are {known}").into());
    }
    let wanted = |name: &&str| only.is_empty() || only.iter().any(|only| only == name);
    Ok(all.iter().copied().filter(wanted).collect())
}
