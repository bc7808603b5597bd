//! How much is measured: all or what is named, enough for a figure or just enough to see that the harness works.

use crate::error::BenchError;

/// How much to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Tiny numbers, for a test of the harness. The figures mean nothing.
    Quick,
    /// The ordinary run.
    Usual,
    /// Also what takes hours.
    Full,
}

impl Extent {
    /// The number for this extent.
    pub fn of(self, quick: usize, usual: usize, full: usize) -> usize {
        match self {
            Self::Quick => quick,
            Self::Usual => usual,
            Self::Full => full,
        }
    }

    /// The option of the command line.
    pub fn option(self) -> &'static str {
        match self {
            Self::Quick => " --quick",
            Self::Usual => "",
            Self::Full => " --full",
        }
    }
}

/// What of `all` is named in `only`, in the order of `all`; all when nothing is.
///
/// # Errors
/// A name that is none of them.
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
