//! Removes the contents of a state directory, going only by the directory's own records.

use super::image::remove_cut;
use super::loop_device::{LoopRecords, backing_file, is_ours, open_loop};
use super::{remove, sys};
use std::io;
use std::path::Path;

/// What was removed, and what could not be removed.
#[derive(Debug, Default, serde::Serialize)]
pub(crate) struct Cleaned {
    pub(crate) cleared: Vec<String>,
    /// Loop devices that are still in use: the kernel clears each with its last user.
    pub(crate) held: Vec<String>,
}

/// Clears the directory's loop devices and removes the files that the simulator created in the
/// directory; then removes the directory, if nothing else is in it.
/// After an error, devices that the function did not reach stay recorded.
pub(crate) fn clean(state_dir: &Path) -> io::Result<Cleaned> {
    let state_dir = &std::fs::canonicalize(state_dir)?;
    let mut done = Cleaned::default();
    let mut records = LoopRecords::open(state_dir)?;
    for record in records.all.clone() {
        if is_ours(&record) {
            let name = format!("loop{}", record.number);
            let device = open_loop(&state_dir.join("nodes"), record.number, false)?;
            // Checks again with the device open: another process may have taken the device
            // meanwhile.
            if is_ours(&record) {
                sys::clear_loop(&device)?;
            }
            drop(device);
            if backing_file(record.number).is_some_and(|f| f == record.image) {
                done.held.push(name);
                continue;
            }
            done.cleared.push(name);
        }
        records.change(|all| all.retain(|r| *r != record))?;
    }
    remove_cut(&state_dir.join("snapshots"))?;
    for (folder, prefixes, suffix) in [
        ("dev", &["loop", "xvd", "sd"][..], ""),
        ("nodes", &["loop"], ""),
        ("snapshots", &["snap-"], ".img"),
        ("volumes", &["vol-"], ".img"),
    ] {
        remove_own(&state_dir.join(folder), &|name| {
            name.ends_with(suffix) && prefixes.iter().any(|prefix| name.starts_with(prefix))
        })?;
    }
    if done.held.is_empty() {
        remove(&state_dir.join("loops.json"))?;
    }
    for name in ["control.sock", "lock", "loops.next"] {
        remove(&state_dir.join(name))?;
    }
    // Fails, as it should, if the directory holds files that the simulator did not create.
    let _ = std::fs::remove_dir(state_dir);
    Ok(done)
}

/// Removes the simulator's own files, recognized by name, from a directory and its instance
/// directories.
fn remove_own(dir: &Path, ours: &dyn Fn(&str) -> bool) -> io::Result<()> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if entry.file_type()?.is_dir() {
            if name.starts_with("i-") {
                remove_own(&entry.path(), ours)?;
            }
        } else if ours(&name) {
            remove(&entry.path())?;
        }
    }
    let _ = std::fs::remove_dir(dir);
    Ok(())
}
