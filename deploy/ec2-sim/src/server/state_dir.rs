//! The state directory, which belongs to the simulator and is used by one simulator at a time.

use crate::state::store::{Store, StoreError};
use crate::time::Millis;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::Path;

/// Creates or claims a state directory. The lock lasts as long as the returned file is open.
pub(super) fn claim(dir: &Path) -> Result<File, String> {
    std::fs::create_dir_all(dir).map_err(|e| e.to_string())?;
    let ours = dir.join("state.jsonl").exists() || dir.join("lock").exists();
    for name in ["volumes", "snapshots", "dev", "nodes"] {
        if !ours && dir.join(name).exists() {
            return Err(format!(
                "has a {name} that is not the simulator's: choose an empty directory"
            ));
        }
    }
    let lock = File::create(dir.join("lock")).map_err(|e| e.to_string())?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| "is in use by another ec2-sim: stop that one first".to_owned())?;
    Ok(lock)
}

/// Returns the latest time in the state, so that the clock does not start earlier.
pub(super) fn last_instant(dir: &Path) -> Result<Option<Millis>, StoreError> {
    Ok(Store::open(dir)?.1.last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_or_busy_state_directory_is_refused() {
        let dir = tempfile::tempdir().expect("dir");
        std::fs::create_dir(dir.path().join("volumes")).expect("mkdir");
        assert!(
            claim(dir.path())
                .expect_err("foreign")
                .contains("not the simulator's")
        );
        std::fs::remove_dir(dir.path().join("volumes")).expect("rmdir");
        let held = claim(dir.path()).expect("ours");
        assert!(claim(dir.path()).expect_err("held").contains("in use"));
        drop(held);
        claim(dir.path()).expect("free again");
    }
}
