//! The state directory, which belongs to one run of the simulator.

use std::fs::File;
use std::path::Path;

/// What a run with devices leaves in its state directory. The last four are directories.
const OWN: [&str; 5] = ["loops.json", "volumes", "snapshots", "dev", "nodes"];

/// Creates or claims a state directory. The lock lasts as long as the returned file is open.
pub(super) fn claim(dir: &Path) -> Result<File, String> {
    std::fs::create_dir_all(dir).map_err(|e| e.to_string())?;
    let lock = File::create(dir.join("lock")).map_err(|e| e.to_string())?;
    lock.try_lock().map_err(|_| "is in use by another ec2-sim: stop that one first".to_owned())?;
    match OWN.iter().find(|name| dir.join(name).exists()) {
        Some(name) => Err(format!(
            "has a {name}: remove what an earlier run left with `ec2-sim clean`, or choose an empty directory"
        )),
        None => Ok(lock),
    }
}
