//! What an audit reads, in a directory: the same answers can be had elsewhere, and later.
//!
//! Of the environment only the names are kept, of files what stands in their directory entries, of
//! programs the SHA-256. No content of a file or of memory is.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use ebs_csi_document::json;

use crate::answer::printable;
use crate::machine::user_of_driver;
use crate::process::{Kept, Process, kept_fields};
use crate::sys::is_end;
use crate::tree::{self, Listed, members};

/// The form of the file. It changes when a reader of the former one must change.
const VERSION: u32 = 1;
const FILE: &str = "collected.json";

/// A process, or whether it ended and why it was not read.
type Read = Result<Process, (bool, String)>;

/// The processes of the driver on a machine, and what its other processes show that matters.
#[derive(Debug)]
pub struct Collected {
    version: u32,
    /// The processor, for which filters are compiled.
    machine: String,
    list: Vec<Listed>,
    processes: Vec<(u32, Read)>,
}

kept_fields! {
    Collected { version, machine, list, processes }
    Listed { pid, parent, uid, program }
}

impl Collected {
    /// Reads all processes of the driver on this machine. Fails when the processes cannot be
    /// listed.
    pub fn of_machine() -> io::Result<Self> {
        let mut list = tree::list()?;
        let all = members(&list, list.iter().filter(|one| one.is_of_driver()).map(|one| one.pid));
        let processes = all.iter().map(|pid| {
            let read = Process::read(*pid).map(|mut process| {
                process.read_filters();
                process.read_digest();
                process
            });
            (*pid, read.map_err(|error| (is_end(&error), error.to_string())))
        });
        let processes = processes.collect();
        list.retain(|one| {
            let is_odd = one.program.is_err() || user_of_driver(one.uid).is_some();
            is_odd || all.binary_search(&one.pid).is_ok()
        });
        Ok(Self { version: VERSION, machine: std::env::consts::ARCH.to_owned(), list, processes })
    }

    /// Writes the processes to a new directory, which only its owner may read.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(directory)?;
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(directory.join(FILE));
        file?.write_all(self.keep().to_json().as_bytes())
    }

    /// Reads what [`Collected::write`] wrote. The error is one line for the user.
    pub fn read(directory: &Path) -> Result<Self, String> {
        let path = directory.join(FILE);
        let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let text = fs::read_to_string(&path).map_err(|error| failed(&error))?;
        let value = json(&text).map_err(|error| failed(&error))?;
        let found = Self::back(&value).filter(|found| found.version == VERSION);
        let found = found.ok_or_else(|| failed(&"not of this version of the program"))?;
        if found.machine != std::env::consts::ARCH {
            return Err(failed(&format!("collected on {}", printable(&found.machine))));
        }
        Ok(found)
    }

    pub(crate) fn list(&self) -> &[Listed] {
        &self.list
    }

    pub(crate) fn process(&self, pid: u32) -> io::Result<Process> {
        match self.processes.iter().find(|(known, _)| *known == pid) {
            Some((_, Ok(process))) => Ok(process.clone()),
            Some((_, Err((true, why)))) => Err(io::Error::new(ErrorKind::NotFound, why.clone())),
            Some((_, Err((false, why)))) => Err(io::Error::other(why.clone())),
            None => Err(io::Error::new(ErrorKind::NotFound, "it was not collected")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Audit, Expectation, Source};
    use ebs_csi_policy::PRODUCTION;
    use ebs_csi_policy::profile;
    use proptest::prelude::*;
    use std::sync::LazyLock;

    /// This process, as it is collected.
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let pid = std::process::id();
        let process = Process::read(pid).map_err(|error| (false, error.to_string()));
        let program = Ok(Some("ebs-csi-controller".to_owned()));
        let list = vec![Listed { pid, parent: 1, uid: 0, program }];
        let machine = std::env::consts::ARCH.to_owned();
        let collected =
            Collected { version: VERSION, machine, list, processes: vec![(pid, process)] };
        collected.keep().to_json()
    });

    fn back(text: &str) -> Option<Collected> {
        json(text).ok().and_then(|value| Collected::back(&value))
    }

    #[test]
    fn kept_process_is_the_one_that_was_read() {
        assert_eq!(back(&TEXT).unwrap().keep().to_json(), *TEXT);
    }

    proptest! {
        /// Somebody may have changed what was collected.
        #[test]
        fn changed_file_is_judged_or_refused(
            at in any::<prop::sample::Index>(),
            length in 0..40_usize,
            put in r#"(\[\]|\{\}|18446744073709551615|""|[ -~]{0,8})"#,
        ) {
            let mut bytes = TEXT.as_bytes().to_vec();
            let at = at.index(bytes.len());
            let end = (at + length).min(bytes.len());
            bytes.splice(at..end, put.bytes());
            if let Some(collected) = back(&String::from_utf8_lossy(&bytes)) {
                let (expectation, source) = (Expectation::of(PRODUCTION), Source::Collected(collected));
                let pid = std::process::id();
                let audit = Audit::of_process(pid, profile::BROKER, &expectation, &source);
                prop_assert_ne!(audit.status(), 0);
                prop_assert_ne!(Audit::of_machine(&expectation, &source).unwrap().status(), 0);
            }
        }
    }
}
