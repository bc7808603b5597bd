//! The content of an image's file system.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

/// One entry of the file system. [`Contents::add`] adds missing parents with mode 0755.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A directory with this mode.
    Directory(u32),
    /// A regular file with this mode and content.
    File(u32, Vec<u8>),
    /// A symbolic link to this target.
    Link(PathBuf),
}

/// The reason why an entry cannot be added.
#[derive(Debug, thiserror::Error)]
pub enum ContentsError {
    /// The path is not absolute, or leaves the root.
    #[error("{0}: give an absolute path without `..`")]
    Path(PathBuf),
    /// Two different entries have one path.
    #[error("{0} is given twice, with different contents")]
    Twice(PathBuf),
    /// The file that becomes an entry cannot be read.
    #[error("{0}: {1}")]
    Read(PathBuf, #[source] io::Error),
}

/// The entries of an image by their path, which is relative to the image's root.
#[derive(Debug, Default, Clone)]
pub struct Contents(BTreeMap<PathBuf, Entry>);

impl Contents {
    /// Adds an entry at an absolute path.
    ///
    /// # Errors
    /// Returns [`ContentsError::Path`] or [`ContentsError::Twice`]. Adding an equal entry again is
    /// no error.
    pub fn add(&mut self, path: &Path, entry: Entry) -> Result<(), ContentsError> {
        let inside: PathBuf = path
            .strip_prefix("/")
            .map_err(|_| ContentsError::Path(path.to_owned()))?
            .components()
            .map(|part| match part {
                Component::Normal(name) => Ok(name),
                _ => Err(ContentsError::Path(path.to_owned())),
            })
            .collect::<Result<_, _>>()?;
        for parent in inside.ancestors().skip(1) {
            if parent.as_os_str().is_empty() {
                continue;
            }
            let parent = self.0.entry(parent.to_owned()).or_insert(Entry::Directory(0o755));
            if !matches!(parent, Entry::Directory(_)) {
                return Err(ContentsError::Twice(path.to_owned()));
            }
        }
        // A parent that was added implicitly takes the mode of a later, explicit entry.
        let is_directory = matches!(entry, Entry::Directory(_));
        let may_replace =
            |known: &Entry| *known == entry || (is_directory && *known == Entry::Directory(0o755));
        if !self.0.get(&inside).is_none_or(may_replace) {
            return Err(ContentsError::Twice(path.to_owned()));
        }
        self.0.insert(inside, entry);
        Ok(())
    }

    /// Adds a copy of a regular file. Follows links; the mode is 0755 if the file is executable,
    /// otherwise 0644.
    ///
    /// # Errors
    /// Returns the errors of [`Contents::add`], and [`ContentsError::Read`].
    pub fn add_file(&mut self, source: &Path, path: &Path) -> Result<(), ContentsError> {
        let failed = |error| ContentsError::Read(source.to_owned(), error);
        let mode = std::fs::metadata(source).map_err(failed)?.permissions().mode();
        let mode = if mode & 0o111 == 0 { 0o644 } else { 0o755 };
        let content = std::fs::read(source).map_err(failed)?;
        self.add(path, Entry::File(mode, content))
    }

    /// Returns all entries; a directory comes before its content.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, &Entry)> {
        self.0.iter().map(|(path, entry)| (path.as_path(), entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_come_before_their_entries() {
        let mut contents = Contents::default();
        let path = Path::new("/usr/lib/libc.so.6");
        contents.add(path, Entry::File(0o644, vec![1])).unwrap();
        let paths: Vec<_> = contents.iter().map(|(p, _)| p.display().to_string()).collect();
        assert_eq!(paths, ["usr", "usr/lib", "usr/lib/libc.so.6"]);
    }

    #[test]
    fn relative_and_dotdot_paths_are_refused() {
        let mut contents = Contents::default();
        for path in ["etc/passwd", "/etc/../passwd", "../x"] {
            let added = contents.add(Path::new(path), Entry::Directory(0o755));
            assert!(matches!(added, Err(ContentsError::Path(_))), "{path}");
        }
    }

    #[test]
    fn different_contents_at_one_path_are_refused() {
        let mut contents = Contents::default();
        let path = Path::new("/a");
        contents.add(path, Entry::File(0o644, vec![1])).unwrap();
        contents.add(path, Entry::File(0o644, vec![1])).unwrap();
        let twice = contents.add(path, Entry::File(0o644, vec![2]));
        assert!(matches!(twice, Err(ContentsError::Twice(_))));
        let below = contents.add(Path::new("/a/b"), Entry::Directory(0o755));
        assert!(matches!(below, Err(ContentsError::Twice(_))));
    }
}
