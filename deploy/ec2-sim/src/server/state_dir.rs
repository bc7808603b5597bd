//! The state directory, which belongs to one run of the simulator.

use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::Path;

/// What a run writes into its state directory. The last four are directories.
const OWN: [&str; 6] = [
    "journal.jsonl",
    "loops.json",
    "volumes",
    "snapshots",
    "dev",
    "nodes",
];

/// Creates or claims a state directory. The lock lasts as long as the returned file is open.
pub(super) fn claim(dir: &Path) -> Result<File, String> {
    std::fs::create_dir_all(dir).map_err(|e| e.to_string())?;
    let lock = File::create(dir.join("lock")).map_err(|e| e.to_string())?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| "is in use by another ec2-sim: stop that one first".to_owned())?;
    match OWN.iter().find(|name| dir.join(name).exists()) {
        Some(name) => Err(format!(
            "has a {name}: remove what an earlier run left with `ec2-sim clean`, or choose an empty directory"
        )),
        None => Ok(lock),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_or_busy_state_directory_is_refused() {
        let dir = tempfile::tempdir().expect("dir");
        std::fs::create_dir(dir.path().join("volumes")).expect("mkdir");
        let used = claim(dir.path()).expect_err("used");
        assert!(used.contains("has a volumes"), "{used}");
        std::fs::remove_dir(dir.path().join("volumes")).expect("rmdir");
        let held = claim(dir.path()).expect("ours");
        assert!(claim(dir.path()).expect_err("held").contains("in use"));
        drop(held);
        claim(dir.path()).expect("free again");
    }
}
