//! The extent of a run: all measurements or the named ones, with enough samples for a figure or
//! only enough to test the harness.

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
        return Err(BenchError::Other(format!(
            "no measurement is called {unknown}; there are {}",
            all.join(", ")
        )));
    }
    let wanted = |name: &&str| only.is_empty() || only.iter().any(|only| only == name);
    Ok(all.iter().copied().filter(wanted).collect())
}
