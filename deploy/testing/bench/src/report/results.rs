//! The results of a run as a file: the host and the figures.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::figure::Figure;
use super::host::Host;

/// How the note begins that says when and where an earlier run measured a figure.
pub(super) const ORIGIN: &str = "Measured in an earlier run: ";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    /// `node`, `controller` or `failover`.
    pub(crate) part: String,
    pub(crate) command: String,
    /// The day in UTC.
    pub(crate) date: String,
    pub(crate) host: Host,
    pub(crate) figures: Vec<Figure>,
}

impl Results {
    /// Starts the results of a run of `part` on this machine, today, without figures.
    pub(crate) fn begin(part: &str, command: String) -> Self {
        Self {
            part: part.to_owned(),
            command,
            date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
            host: Host::read(),
            figures: Vec::new(),
        }
    }

    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let named = |e: String| io::Error::other(format!("{}: {e}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| named(e.to_string()))?;
        serde_json::from_str(&text).map_err(|e| named(e.to_string()))
    }

    /// Writes the results to a file and creates the file's directory.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        std::fs::write(path, text)
    }

    /// Removes the samples, so that the results are small enough to be committed.
    pub(crate) fn for_keeping(mut self) -> Self {
        for row in self.figures.iter_mut().flat_map(|figure| &mut figure.rows) {
            row.samples.clear();
        }
        self
    }

    /// Adds those figures of an `earlier` run of the same part that this run did not measure. A
    /// figure of another day or machine gets a note of its origin.
    pub(crate) fn keep_from(&mut self, earlier: Self) {
        let origin = format!("{ORIGIN}{} on {}.", earlier.date, earlier.host.processor);
        let differs = earlier.date != self.date || earlier.host.processor != self.host.processor;
        let measured: Vec<String> = self.figures.iter().map(|f| f.key.clone()).collect();
        for mut figure in earlier.figures {
            if measured.contains(&figure.key) {
                continue;
            }
            if differs && !figure.notes.iter().any(|note| note.starts_with(ORIGIN)) {
                figure.notes.push(origin.clone());
            }
            self.figures.push(figure);
        }
    }

    /// Reads the stored results in `directory`, sorted by file name.
    pub(crate) fn kept(directory: &Path) -> io::Result<Vec<Self>> {
        let mut files: Vec<PathBuf> = std::fs::read_dir(directory)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<_>>()?;
        files.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
        // The sorting only makes the page stable; the order of the names has no meaning.
        files.sort();
        files.iter().map(|path| Self::read(path)).collect()
    }
}
