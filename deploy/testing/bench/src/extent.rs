//! The selection of measurements, and the amount of work in each.

use std::path::PathBuf;

use clap::Args;

use crate::delay::Latency;
use crate::error::Result;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Quick,
    Usual,
    Full,
}

impl Extent {
    pub(crate) fn of(self, quick: usize, usual: usize, full: usize) -> usize {
        match self {
            Self::Quick => quick,
            Self::Usual => usual,
            Self::Full => full,
        }
    }
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Run {
    /// Tiny numbers, to see that the harness works. The figures mean nothing.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Also what takes hours: 5,000 volumes at EC2's own rates, a million calls, 100,000 cycles.
    #[arg(long)]
    full: bool,
    /// Measure a node on disks that answer each request after this time, such as 0.5ms or 1ms:
    /// stage, publish and their reverse, restore, expansion.
    #[arg(long, value_name = "TIME")]
    pub(crate) latency: Option<Latency>,
    /// Only these figures, by the name of their measurement (not with `all`, whose parts have
    /// different ones).
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<String>,
    /// Another driver's program, measured in turns with this one: its controller
    /// (`PATH controller --endpoint=…`), its node service (`PATH node --endpoint=…`).
    #[arg(long, value_name = "PATH", env = "PEER_BIN")]
    pub(crate) peer_bin: Option<PathBuf>,
    /// Directory for the results with all samples.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Also keep the results, without samples, in this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
}

impl Run {
    pub(crate) fn extent(&self) -> Extent {
        match (self.quick, self.full) {
            (true, _) => Extent::Quick,
            (_, true) => Extent::Full,
            _ => Extent::Usual,
        }
    }

    /// Returns the options that change what a part measures, each with a leading space. Only the
    /// controller's figures are measured with another driver as a rule.
    pub(crate) fn options(&self, part: &str) -> String {
        let mut options = match self.extent() {
            Extent::Quick => " --quick",
            Extent::Usual => "",
            Extent::Full => " --full",
        }
        .to_owned();
        let peer = self.peer_bin.as_ref().and_then(|path| path.file_name());
        if let Some(name) = peer.filter(|_| part == "controller") {
            options.push_str(&format!(" --peer-bin {}", name.to_string_lossy()));
        }
        if let Some(latency) = self.latency.filter(|_| part == "node") {
            options.push_str(&format!(" --latency {latency}"));
        }
        options
    }

    /// Returns those of `all` that `--only` names, in the order of `all`, or all without it.
    pub(crate) fn chosen(&self, all: &'static [&'static str]) -> Result<Vec<&'static str>> {
        let is_wanted = |name: &str| self.only.iter().any(|only| only == name);
        if let Some(unknown) = self.only.iter().find(|name| !all.contains(&name.as_str())) {
            let known = all.join(", ");
            return Err(format!("no measurement is called {unknown}; there are {known}").into());
        }
        Ok(all.iter().copied().filter(|name| self.only.is_empty() || is_wanted(name)).collect())
    }
}
