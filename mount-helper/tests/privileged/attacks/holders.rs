//! Disks and places that another process or program uses.
mod others_disks;
mod others_files;
mod others_helpers;
mod others_mounts;
mod others_places;

/// Returns whether the kernel refuses writes to the disk of this name.
fn is_read_only(name: &str) -> bool {
    let file = format!("/sys/class/block/{name}/ro");
    std::fs::read_to_string(file).expect("ro").trim() == "1"
}
