//! A run's results: the host, the figures, as a file.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::figure::Figure;
use super::host::Host;

/// What one run of one part measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// `node` or `controller`.
    pub part: String,
    /// The command that measured it.
    pub command: String,
    /// The day, UTC.
    pub date: String,
    /// The machine.
    pub host: Host,
    /// The figures.
    pub figures: Vec<Figure>,
}

impl Results {
    /// Of a run of `part` on this machine, today, so far without figures.
    pub fn begin(part: &str, command: String) -> Self {
        Self {
            part: part.to_owned(),
            command,
            date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
            host: Host::look(),
            figures: Vec::new(),
        }
    }

    /// From a file.
    ///
    /// # Errors
    /// When it cannot be read or is not a results file.
    pub fn read(path: &Path) -> io::Result<Self> {
        let named = |e: String| io::Error::other(format!("{}: {e}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| named(e.to_string()))?;
        serde_json::from_str(&text).map_err(|e| named(e.to_string()))
    }

    /// To a file, whose directory is made.
    ///
    /// # Errors
    /// As open(2) and write(2).
    pub fn write(&self, path: &Path) -> io::Result<()> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        std::fs::write(path, text)
    }

    /// The same, small enough to be kept: without samples.
    #[must_use]
    pub fn for_keeping(mut self) -> Self {
        self.figures = self
            .figures
            .into_iter()
            .map(Figure::without_samples)
            .collect();
        self
    }

    /// Takes the figures of an `earlier` run of the same part that this run did not measure.
    pub fn keep_from(&mut self, earlier: Self) {
        let known: Vec<String> = self.figures.iter().map(|f| f.key.clone()).collect();
        self.figures.extend(
            earlier
                .figures
                .into_iter()
                .filter(|figure| !known.contains(&figure.key)),
        );
    }

    /// The kept results in `directory`, by name of file.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn kept(directory: &Path) -> io::Result<Vec<Self>> {
        let mut files: Vec<PathBuf> = std::fs::read_dir(directory)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<_>>()?;
        files.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
        // The node's before the controller's would be the alphabet's order reversed: sorted for a stable page only.
        files.sort();
        files.iter().map(|path| Self::read(path)).collect()
    }
}
