//! How much is measured: enough for a figure, or just enough to see that the harness works.

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
