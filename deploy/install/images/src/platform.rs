//! What an image runs on, and the Debian system from which its files come.

use std::path::{Path, PathBuf};

/// An operating system and an architecture, by the names of the [OCI
/// specification](https://github.com/opencontainers/image-spec/blob/main/image-index.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Platform {
    /// `linux/amd64`
    Amd64,
    /// `linux/arm64`
    Arm64,
}

impl Platform {
    /// Returns the platform of this machine.
    #[must_use]
    pub fn here() -> Platform {
        if cfg!(target_arch = "aarch64") { Platform::Arm64 } else { Platform::Amd64 }
    }

    /// Returns the platform of a name such as `linux/arm64`.
    #[must_use]
    pub fn named(name: &str) -> Option<Platform> {
        let architecture = name.strip_prefix("linux/")?;
        [Platform::Amd64, Platform::Arm64].into_iter().find(|it| it.architecture() == architecture)
    }

    /// Returns the names of the architecture: in Debian and the OCI specification, and of the
    /// machine in Rust's and GNU's triplets.
    fn names(self) -> [&'static str; 2] {
        match self {
            Platform::Amd64 => ["amd64", "x86_64"],
            Platform::Arm64 => ["arm64", "aarch64"],
        }
    }

    /// Returns the architecture's name in Debian and in the OCI specification.
    #[must_use]
    pub fn architecture(self) -> &'static str {
        self.names()[0]
    }

    /// Returns Rust's target.
    pub(crate) fn target(self) -> String {
        format!("{}-unknown-linux-gnu", self.names()[1])
    }

    /// Returns the directory of libraries below `/usr/lib`.
    pub(crate) fn libraries(self) -> String {
        format!("{}-linux-gnu", self.names()[1])
    }

    /// Returns the compiler that links the programs.
    pub(crate) fn compiler(self) -> String {
        if self == Platform::here() { "cc".to_owned() } else { format!("{}-gcc", self.libraries()) }
    }
}

impl Default for Platform {
    fn default() -> Platform {
        Platform::here()
    }
}

/// A Debian system of one architecture: this machine, or packages that were unpacked.
#[derive(Debug, Clone)]
pub(crate) struct System {
    pub(crate) platform: Platform,
    root: PathBuf,
}

impl System {
    /// Returns this machine.
    pub(crate) fn here() -> System {
        System::below(Platform::here(), Path::new("/"))
    }

    /// Returns the system whose root is this directory.
    pub(crate) fn below(platform: Platform, root: &Path) -> System {
        System { platform, root: root.to_owned() }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns where a file of the system stands on this machine.
    pub(crate) fn file(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Returns the path with its directory resolved and its name kept, if the system has such a
    /// file: `/lib` is a link to `/usr/lib`, and an image gets the same link.
    pub(crate) fn at_real_directory(&self, path: &Path) -> Option<PathBuf> {
        let directory = self.file(path.parent()?).canonicalize().ok()?;
        let inside = directory.strip_prefix(self.root.canonicalize().ok()?).ok()?;
        let path = Path::new("/").join(inside).join(path.file_name()?);
        self.file(&path).exists().then_some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_resolved_below_the_root() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("usr/lib")).unwrap();
        std::os::unix::fs::symlink("usr/lib", root.path().join("lib")).unwrap();
        std::os::unix::fs::symlink("/usr/lib", root.path().join("out")).unwrap();
        std::fs::write(root.path().join("usr/lib/a"), "").unwrap();
        let system = System::below(Platform::Arm64, root.path());
        let found = |path: &str| system.at_real_directory(Path::new(path));
        assert_eq!(found("/lib/a"), Some(PathBuf::from("/usr/lib/a")));
        assert_eq!(found("/lib/b"), None);
        // A link to an absolute path would lead to this machine's files.
        assert_eq!(found("/out/os-release"), None);
    }

    #[test]
    fn unknown_platform_has_no_name() {
        assert_eq!(Platform::named("linux/arm64"), Some(Platform::Arm64));
        assert_eq!(Platform::named("linux/riscv64"), None);
    }
}
