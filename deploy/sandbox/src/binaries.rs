//! Where the programs of the world are.

use std::io;
use std::path::{Path, PathBuf};

/// A directory of built programs.
#[derive(Clone, Debug)]
pub struct Binaries {
    directory: PathBuf,
}

impl Binaries {
    /// The programs in `directory`.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
        }
    }

    /// The programs that cargo built beside this one: a binary's own directory, a test's parent directory.
    ///
    /// # Errors
    /// When the running program has no path.
    pub fn beside_this_program() -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let directory = program.parent().unwrap_or(Path::new("/"));
        // Tests and examples lie one level below the binaries.
        let nested = directory
            .file_name()
            .is_some_and(|name| name == "deps" || name == "examples");
        Ok(Self::at(if nested {
            directory.parent().unwrap_or(directory)
        } else {
            directory
        }))
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The path of program `name`.
    ///
    /// # Errors
    /// `NotFound` with the command that builds it.
    pub fn path(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.directory.join(name);
        if path.is_file() {
            return Ok(path);
        }
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "{} is not built; run: cargo build --workspace --bins",
                path.display()
            ),
        ))
    }
}
