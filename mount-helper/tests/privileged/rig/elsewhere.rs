//! A mount that no helper sees.
use super::{Namespace, shell, text};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) struct Elsewhere {
    namespace: Namespace,
    directory: tempfile::TempDir,
}

impl Elsewhere {
    /// Mounts the file system of the device at `path` until the returned value is dropped.
    pub(crate) fn mount(path: &str, options: &str) -> Self {
        let directory = tempfile::tempdir().expect("tempdir");
        let script = format!("mount -o {options} \"$0\" \"$1\"");
        let arguments = [Path::new(path), directory.path()];
        let namespace = Namespace::hold(Command::new("unshare"), &script, &arguments);
        Self { namespace, directory }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.namespace.inside(self.directory.path().display())
    }

    /// Checks that the file system still accepts writes and reads them back.
    pub(crate) fn check_writable(&self) {
        let file = self.root().join("kept");
        std::fs::write(&file, "kept").expect("write");
        shell("sync", &["-f", text(&file)]);
        assert_eq!(std::fs::read_to_string(&file).expect("read"), "kept");
    }
}
