//! The file in the state directory that lists the simulator's own loop devices. The simulator
//! touches a device only if the file lists it and the kernel reports that it is bound to an image
//! in this directory.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LoopRecord {
    /// The N of `/dev/loopN`.
    pub number: u32,
    pub volume: String,
    pub(crate) image: PathBuf,
    /// The instances that see the device, with the device name on each.
    pub instances: BTreeMap<String, String>,
    /// Whether the device was removed by force while in use; the kernel then releases the device
    /// with its last user.
    #[serde(default)]
    pub(crate) abandoned: bool,
}

#[derive(Debug)]
pub(super) struct LoopRecords {
    path: PathBuf,
    records: Vec<LoopRecord>,
}

impl LoopRecords {
    pub(super) fn open(state_dir: &Path) -> io::Result<Self> {
        let path = state_dir.join("loops.json");
        let records = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(e),
        };
        Ok(Self { path, records })
    }

    pub(super) fn all(&self) -> &[LoopRecord] {
        &self.records
    }

    /// Returns a volume's record, unless that record is abandoned.
    pub(super) fn find(&self, volume: &str) -> Option<&LoopRecord> {
        self.records.iter().find(|r| r.volume == volume && !r.abandoned)
    }

    pub(super) fn change_of(
        &mut self,
        number: u32,
        f: impl FnMut(&mut LoopRecord),
    ) -> io::Result<()> {
        self.change(|all| all.iter_mut().filter(|r| r.number == number).for_each(f))
    }

    pub(super) fn change(&mut self, f: impl FnOnce(&mut Vec<LoopRecord>)) -> io::Result<()> {
        let mut next = self.records.clone();
        f(&mut next);
        let temporary = self.path.with_extension("next");
        let mut file = std::fs::File::create(&temporary)?;
        file.write_all(&serde_json::to_vec_pretty(&next).map_err(io::Error::other)?)?;
        std::fs::rename(&temporary, &self.path)?;
        self.records = next;
        Ok(())
    }
}

/// Returns the file to which the kernel reports `/dev/loopN` to be bound, or `None` if the device
/// is not bound.
pub(super) fn backing_file(number: u32) -> Option<PathBuf> {
    let text =
        std::fs::read_to_string(format!("/sys/block/loop{number}/loop/backing_file")).ok()?;
    let text = text.trim_end_matches('\n');
    Some(PathBuf::from(text.strip_suffix(" (deleted)").unwrap_or(text)))
}

pub(super) fn is_ours(record: &LoopRecord) -> bool {
    backing_file(record.number).is_some_and(|f| f == record.image)
}
