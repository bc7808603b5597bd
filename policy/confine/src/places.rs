//! The files and directories that a process supplies to the rules of its profile, and the bound of
//! those that its settings name.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::Fault;

/// A directory of the machine that no setting may open.
struct Closed {
    path: &'static str,
    /// What is in it is closed, too.
    beneath: bool,
    why: &'static str,
}

const fn itself(path: &'static str, why: &'static str) -> Closed {
    Closed { path, beneath: false, why }
}

const fn beneath(path: &'static str, why: &'static str) -> Closed {
    Closed { path, beneath: true, why }
}

/// A setting that leads to one of these, or to a directory above one, is refused.
const CLOSED: &[Closed] = &[
    beneath("/dev", "it has the machine's devices"),
    beneath("/proc", "it has what the kernel tells of every process"),
    beneath("/sys", "it has what the kernel tells of the machine"),
    beneath("/run/containerd", "it has the container runtime's sockets and roots"),
    beneath("/var/lib/containerd", "it has the images and roots of containers"),
    beneath("/var/lib/etcd", "it has the cluster's state"),
    beneath("/var/lib/kubelet/pki", "it has kubelet's keys"),
    beneath("/var/lib/kubelet/pods", "it has the volumes of every pod"),
    itself("/boot", "it has the machine's kernel"),
    itself("/etc", "it has every program's configuration"),
    itself("/home", "it has the files of every person"),
    itself("/root", "it has the files of root"),
    itself("/run", "it has the sockets of every service"),
    itself("/usr", "it has every program"),
    itself("/var/lib/kubelet", "it has all of kubelet's state"),
    itself("/var/log", "it has the log of every service"),
];

/// A file in [`CLOSED`] that is open to everybody: by this name a setting turns a file off.
const NULL: &str = "/dev/null";

/// Returns why a setting may not open this path, which has no link in it.
fn closed(path: &Path) -> Option<&'static str> {
    closed_but(path, |_| false)
}

/// As [`closed`], without the rows of these paths.
fn closed_but(path: &Path, is_left_out: impl Fn(&Path) -> bool) -> Option<&'static str> {
    let is_closed = |row: &&Closed| {
        let (at, beneath) = (Path::new(row.path), row.beneath);
        !is_left_out(at) && (at.starts_with(path) || (beneath && path.starts_with(at)))
    };
    CLOSED.iter().find(is_closed).map(|row| row.why)
}

/// Fails with [`Fault::TooWide`] when a directory that the flag `setting` names, and that is held
/// already, is out of bounds. `own` is the directory of the machine that the setting is for.
pub fn check_held(setting: &str, path: &Path, held: &OwnedFd, own: &Path) -> Result<(), Fault> {
    let resolved = resolved(setting, path, held)?;
    match closed_but(&resolved, |row| row.starts_with(own)) {
        Some(why) => Err(too_wide(setting, path, resolved, why)),
        None => Ok(()),
    }
}

/// The places that a process supplies itself, held by descriptor.
#[derive(Debug, Default)]
pub struct Places {
    held: Vec<(&'static str, OwnedFd)>,
    of_settings: Vec<String>,
}

impl Places {
    /// Returns an empty set of places.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a path that no setting names, under a name of the policy. Several paths may have one
    /// name. Fails with [`Fault::Place`] when the path cannot be opened.
    pub fn with(self, name: &'static str, path: impl AsRef<Path>) -> Result<Self, Fault> {
        let opened = open(name, path.as_ref())?;
        Ok(self.with_descriptor(name, opened))
    }

    /// Adds the directory of a socket to which the process connects, or the deepest directory above
    /// it that is there. A socket that is made again is a new file. Fails as [`Places::with`].
    pub fn with_directory_of(self, name: &'static str, socket: &Path) -> Result<Self, Fault> {
        let mut above = socket.ancestors().skip(1);
        match above.find(|directory| directory.is_dir()) {
            Some(directory) => self.with(name, directory),
            None => Ok(self),
        }
    }

    /// Adds a path that the process has already opened.
    #[must_use]
    pub fn with_descriptor(mut self, name: &'static str, descriptor: OwnedFd) -> Self {
        self.held.push((name, descriptor));
        self
    }

    /// Adds the directory that the flag or variable `setting` names. Fails with [`Fault::TooWide`]
    /// when the directory, after all links, is out of bounds, and with [`Fault::Place`].
    pub fn with_directory(
        self,
        name: &'static str,
        setting: &str,
        path: &Path,
    ) -> Result<Self, Fault> {
        let (opened, resolved) = open_resolved(name, path)?;
        match closed(&resolved) {
            Some(why) => Err(too_wide(setting, path, resolved, why)),
            None => Ok(self.with_resolved(name, opened, &resolved)),
        }
    }

    /// Adds the file that the flag or variable `setting` names. Its directory is opened with it,
    /// because a file that is replaced is a new one; where the directory is out of bounds, the file
    /// alone. Nothing is added when neither is there. A `path` that leads to a directory is one of
    /// [`Places::with_directory`], whose faults are those of this.
    pub fn with_file(self, name: &'static str, setting: &str, path: &Path) -> Result<Self, Fault> {
        if path.is_dir() {
            return self.with_directory(name, setting, path);
        }
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        if !parent.exists() {
            return Ok(self);
        }
        let (opened, resolved) = open_resolved(name, parent)?;
        if closed(&resolved).is_none() {
            return Ok(self.with_resolved(name, opened, &resolved));
        }
        if !path.exists() {
            return Ok(self);
        }
        let (opened, resolved) = open_resolved(name, path)?;
        match closed(&resolved).filter(|_| resolved != Path::new(NULL)) {
            Some(why) => Err(too_wide(setting, path, resolved, why)),
            None => Ok(self.with_resolved(name, opened, &resolved)),
        }
    }

    fn with_resolved(mut self, name: &'static str, opened: OwnedFd, resolved: &Path) -> Self {
        let text = format!("{name}={}", resolved.display());
        if !self.of_settings.contains(&text) {
            self.of_settings.push(text);
        }
        self.with_descriptor(name, opened)
    }

    /// Returns the descriptors that are held under a name of the policy.
    pub(crate) fn named(&self, name: &str) -> impl Iterator<Item = &OwnedFd> {
        self.held.iter().filter(move |(held, _)| *held == name).map(|(_, descriptor)| descriptor)
    }

    /// Returns `NAME=PATH` of what settings opened, without links.
    pub(crate) fn of_settings(&self) -> &[String] {
        &self.of_settings
    }
}

fn too_wide(setting: &str, path: &Path, resolved: PathBuf, why: &'static str) -> Fault {
    Fault::TooWide { setting: setting.to_owned(), path: path.to_owned(), resolved, why }
}

fn open(name: &str, path: &Path) -> Result<OwnedFd, Fault> {
    open_path(path)
        .map_err(|source| Fault::Place { place: format!("{name} ({})", path.display()), source })
}

/// Opens a path and asks the kernel what was opened, so that no link can change in between.
fn open_resolved(name: &str, path: &Path) -> Result<(OwnedFd, PathBuf), Fault> {
    let opened = open(name, path)?;
    let resolved = resolved(name, path, &opened)?;
    Ok((opened, resolved))
}

fn resolved(name: &str, path: &Path, opened: &OwnedFd) -> Result<PathBuf, Fault> {
    let read = std::fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    let place = format!("{name} ({})", path.display());
    read.map_err(|source| Fault::Place { place, source })
}

pub(crate) fn open_path(path: &Path) -> io::Result<OwnedFd> {
    // Avoids the standard library's open: with some C libraries it treats O_PATH as an access mode
    // and drops it.
    Ok(rustix::fs::open(path, OFlags::PATH.union(OFlags::CLOEXEC), Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn each_closed_row_refuses_what_it_says() {
        for Closed { path, beneath, why } in CLOSED {
            let row = Path::new(path);
            assert!(!why.is_empty() && row.is_absolute(), "{path}");
            for above in row.ancestors() {
                assert!(closed(above).is_some(), "{}", above.display());
            }
            assert_eq!(closed(&row.join("some/where")).is_some(), *beneath, "{path}");
            let neighbour = PathBuf::from(format!("{path}-of-another"));
            assert_eq!(closed(&neighbour), None, "{}", neighbour.display());
        }
    }

    #[test]
    fn directory_of_socket_is_deepest_that_exists() {
        for (socket, found) in [
            ("/proc/self/none", Some("/proc/self")),
            ("/proc/none/none/none.sock", Some("/proc")),
            ("/proc/version/none", Some("/proc")),
            ("none", None),
        ] {
            let places = Places::new().with_directory_of("here", Path::new(socket)).expect("open");
            let number = |file: &OwnedFd| rustix::fs::fstat(file).expect("fstat").st_ino;
            let wanted = found.map(|path| number(&open_path(Path::new(path)).expect("open")));
            assert_eq!(places.named("here").map(number).next(), wanted, "{socket}");
        }
    }

    #[test]
    fn file_without_directory_is_in_current_one() {
        let here = std::env::current_dir().expect("a directory");
        let found = Places::new().with_file("here", "--here", Path::new("Cargo.toml"));
        let wanted = format!("here={}", here.display());
        assert_eq!(found.expect("open").of_settings(), [wanted]);
    }

    #[test]
    fn usual_directories_of_settings_are_open() {
        for path in [
            "/aws",
            "/csi",
            "/etc/ssl/certs",
            "/facts",
            "/registration",
            "/root/.aws",
            "/run/ebs-csi",
            "/run/secrets/eks.amazonaws.com/serviceaccount",
            "/tmp",
            "/var/lib/csi/sockets/pluginproxy",
            "/var/lib/kubelet/plugins/ebs.csi.aws.com",
            "/var/lib/kubelet/plugins_registry",
        ] {
            assert_eq!(closed(Path::new(path)), None, "{path}");
        }
    }

    #[test]
    fn kubelet_root_may_be_kubelets_and_nothing_wider() {
        let own = Path::new("/var/lib/kubelet");
        let held = open_path(Path::new("/")).unwrap();
        let refused = check_held("--kubelet-root", Path::new("/link"), &held, own).unwrap_err();
        assert!(refused.to_string().contains("/link leads to / "), "{refused}");
        let held = open_path(&std::env::temp_dir()).unwrap();
        assert!(check_held("--kubelet-root", Path::new("/x"), &held, own).is_ok());
        for (path, is_open) in [
            ("/var/lib/kubelet", true),
            ("/mnt/kubelet", true),
            ("/var/lib", false),
            ("/etc", false),
            ("/proc/1/root", false),
        ] {
            let why = closed_but(Path::new(path), |row| row.starts_with(own));
            assert_eq!(why.is_none(), is_open, "{path}: {why:?}");
        }
    }

    /// What a path opens: `Ok` with the paths, or where it leads out of bounds. `@` stands for the
    /// test's directory.
    type Opens = Result<&'static [&'static str], &'static str>;

    #[test]
    fn named_file_opens_its_directory_or_itself() {
        let directory = tempfile::tempdir().unwrap();
        // The kernel's paths have no link in them.
        let here = directory.path().canonicalize().unwrap();
        fs::create_dir_all(here.join("volume/..of-today")).unwrap();
        fs::write(here.join("volume/..of-today/token"), "").unwrap();
        fs::write(here.join("config"), "").unwrap();
        for (target, link) in [
            ("..of-today", "volume/..data"),
            ("..data/token", "volume/token"),
            ("/", "root"),
            ("/etc", "etc"),
            ("/proc", "proc"),
            ("root/etc/passwd", "passwd"),
            ("/proc/self/environ", "environ"),
            ("config", "link"),
        ] {
            symlink(target, here.join(link)).unwrap();
        }
        let cases: &[(&str, Opens)] = &[
            ("@/config", Ok(&["@"])),
            ("@/link", Ok(&["@"])),
            ("@/volume", Ok(&["@/volume"])),
            ("@/volume/token", Ok(&["@/volume"])),
            // Not there yet, or never.
            ("@/volume/later", Ok(&["@/volume"])),
            ("@/none/later", Ok(&[])),
            ("/none", Ok(&[])),
            ("/etc/none", Ok(&[])),
            // The directory is out of bounds, the file is not.
            ("/etc/passwd", Ok(&["/etc/passwd"])),
            ("@/root/etc/passwd", Ok(&["/etc/passwd"])),
            ("@/etc/passwd", Ok(&["/etc/passwd"])),
            ("/dev/null", Ok(&["/dev/null"])),
            // The link's own directory is open; what it leads to is not.
            ("@/passwd", Ok(&["@"])),
            ("/", Err("/")),
            ("//", Err("/")),
            ("@/root", Err("/")),
            ("@/root/.", Err("/")),
            ("@/etc", Err("/etc")),
            ("@/proc", Err("/proc")),
            ("/proc/version", Err("/proc/version")),
            ("@/root/proc/version", Err("/proc/version")),
            ("/dev/zero", Err("/dev/zero")),
            ("/var", Err("/var")),
        ];
        let real = |text: &str| text.replace('@', here.to_str().unwrap());
        for (path, opens) in cases {
            let at = real(path);
            let found = Places::new().with_file("x", "FILE", Path::new(&at));
            match (found, opens) {
                (Ok(found), Ok(wanted)) => {
                    let wanted: Vec<_> =
                        wanted.iter().map(|it| format!("x={}", real(it))).collect();
                    assert_eq!(found.of_settings(), wanted, "{path}");
                    assert_eq!(found.named("x").count(), wanted.len(), "{path}");
                }
                (Err(fault @ Fault::TooWide { .. }), Err(resolved)) => {
                    let text = fault.to_string();
                    assert!(text.contains("FILE") && text.contains(&at), "{text}");
                    assert!(text.contains(&format!(" {resolved} ")), "{path}: {text}");
                    assert_eq!(fault.exit_status(), Fault::TOO_WIDE);
                }
                (found, _) => panic!("{path}: {found:?}"),
            }
        }
    }
}
