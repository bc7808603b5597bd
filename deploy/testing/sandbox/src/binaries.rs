//! Finds the programs of the world.

use std::io;
use std::path::{Path, PathBuf};

/// The programs of a world with nodes.
pub const OF_WORLD: [&str; 5] = [
    "ebs-csi-sandbox",
    "ec2-sim",
    "ebs-csi-controller",
    "ebs-csi-node-agent",
    "ebs-csi-mount-helper",
];

/// Returns the programs of this build for a test. Prints the reason and returns `None` when one of
/// `needed` is missing.
pub fn built(needed: &[impl AsRef<str>]) -> Option<Binaries> {
    let found = Binaries::of_this_build().and_then(|binaries| {
        needed.iter().try_for_each(|program| binaries.path(program.as_ref()).map(drop))?;
        Ok(binaries)
    });
    found.inspect_err(|error| println!("skipped: {error}")).ok()
}

/// Does the same for a test that only root can run.
pub fn for_test(needed: &[&str]) -> Option<Binaries> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: block devices, mounts and confinement need root");
        return None;
    }
    built(needed)
}

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
    pub fn of_this_build() -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let directory = program.parent().unwrap_or(Path::new("/"));
        // Tests and examples lie one level below the binaries.
        let nested = directory.file_name().is_some_and(|name| name == "deps" || name == "examples");
        Ok(Self::at(if nested { directory.parent().unwrap_or(directory) } else { directory }))
    }

    /// Returns the path of program `name`, or an error with the command that builds it.
    pub fn path(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.directory.join(name);
        if path.is_file() {
            return Ok(path);
        }
        let workspace = match name {
            "ebs-csi-node-lifecycle" => "--manifest-path controller/node-lifecycle/Cargo.toml",
            _ => "--workspace",
        };
        let what = format!("{} is not built; run: cargo build {workspace} --bins", path.display());
        Err(io::Error::new(io::ErrorKind::NotFound, what))
    }
}
