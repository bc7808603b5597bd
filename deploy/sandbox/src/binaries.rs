//! Finds the programs of the world.

use std::io;
use std::path::{Path, PathBuf};

/// A directory of built programs.
#[derive(Clone, Debug)]
pub struct Binaries {
    directory: PathBuf,
}

impl Binaries {
    /// Uses the programs in `directory`.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// Uses the programs that cargo built with this one: those in a binary's own directory, or in a
    /// test's parent directory.
    ///
    /// # Errors
    /// Returns an error when the running program has no path.
    pub fn of_this_build() -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let directory = program.parent().unwrap_or(Path::new("/"));
        // Tests and examples lie one level below the binaries.
        let nested = directory.file_name().is_some_and(|name| name == "deps" || name == "examples");
        Ok(Self::at(if nested { directory.parent().unwrap_or(directory) } else { directory }))
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the path of program `name`.
    ///
    /// # Errors
    /// Returns `NotFound` with the command that builds the program.
    pub fn path(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.directory.join(name);
        if path.is_file() {
            return Ok(path);
        }
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("{} is not built; run: cargo build --workspace --bins", path.display()),
        ))
    }
}
