//! Which loop devices are the simulator's own: a file in the state directory. Only what stands there is ever touched, and only if the kernel
//! says that it is bound to an image of this directory.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// One loop device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopRecord {
    /// N of `/dev/loopN`.
    pub number: u32,
    /// The volume.
    pub volume: String,
    /// The image's path.
    pub image: PathBuf,
    /// Instances that see it, with the device name there.
    pub instances: BTreeMap<String, String>,
    /// It was taken away by force while it was held: the kernel lets go of it with its last user.
    #[serde(default)]
    pub abandoned: bool,
}

/// The records on disk.
#[derive(Debug)]
pub(super) struct LoopRecords {
    path: PathBuf,
    records: Vec<LoopRecord>,
}

impl LoopRecords {
    /// Reads the records of a state directory.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(super) fn open(state_dir: &Path) -> io::Result<Self> {
        let path = state_dir.join("loops.json");
        let records = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(e),
        };
        Ok(Self { path, records })
    }

    /// All records.
    pub(super) fn all(&self) -> &[LoopRecord] {
        &self.records
    }

    /// The record of a volume that is not abandoned.
    pub(super) fn of(&self, volume: &str) -> Option<&LoopRecord> {
        self.records
            .iter()
            .find(|r| r.volume == volume && !r.abandoned)
    }

    /// Changes the records and writes them.
    ///
    /// # Errors
    /// When they cannot be written; they are then unchanged.
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

/// The file that the kernel says is behind `/dev/loopN`; `None`: not bound.
pub(super) fn backing_file(number: u32) -> Option<PathBuf> {
    let text =
        std::fs::read_to_string(format!("/sys/block/loop{number}/loop/backing_file")).ok()?;
    let text = text.trim_end_matches('\n');
    Some(PathBuf::from(
        text.strip_suffix(" (deleted)").unwrap_or(text),
    ))
}

/// Whether the device is bound, and to the image of the record.
pub(super) fn is_ours(record: &LoopRecord) -> bool {
    backing_file(record.number).is_some_and(|f| f == record.image)
}
