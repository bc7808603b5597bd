//! Runs what packs the images, with small programs in place of the driver's.

use std::path::Path;
use std::process::Command;

use ebs_csi_e2e::repository::{assert_generated, root};

pub(crate) const NAMES: [&str; 4] = ["controller", "node-lifecycle", "node-agent", "mount-helper"];

/// Puts copies of one program in place of the driver's programs into a new directory.
pub(crate) fn copy_programs(program: &Path, directory: &Path) {
    std::fs::create_dir(directory).unwrap();
    for name in NAMES {
        std::fs::copy(program, directory.join(format!("ebs-csi-{name}"))).unwrap();
    }
}

/// Returns the command of a script beside the README.
pub(crate) fn script(name: &str) -> Command {
    Command::new(root().join("deploy/install/images").join(name))
}

/// Packs the programs into a new directory. Returns standard error if that fails.
pub(crate) fn pack(output: &Path, arguments: &[String]) -> Result<(), String> {
    std::fs::create_dir(output).unwrap();
    let done = script("pack")
        .args(["--tag", "v9", "--release", "9.0.0", "--compression", "none", "--output"])
        .arg(output)
        .args(arguments)
        .output()
        .unwrap();
    match done.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
    }
}

/// Returns the columns of a line of the files' table.
pub(crate) fn fields(line: &str) -> [&str; 7] {
    let fields: Vec<&str> = line.split('\t').collect();
    fields.try_into().unwrap_or_else(|_| panic!("{line}"))
}

/// What of the distribution the privileged image holds is reviewed as a committed list. It has no
/// versions, which change with each security update.
pub(crate) fn assert_committed_files(listing: &str, committed: &str) {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    if !release.contains("\nVERSION_ID=\"12\"") || std::env::consts::ARCH != "x86_64" {
        println!("skipped: {committed} is that of Debian 12 on amd64");
        return;
    }
    let mut held = String::from("mode\towner\tpackage\tpath\n");
    for line in listing.lines().skip(1) {
        let [mode, owner, _, package, _, _, path] = fields(line);
        if package != "ebs-csi" {
            held.push_str(&format!("{mode}\t{owner}\t{package}\t{path}\n"));
        }
    }
    assert_generated(&format!("deploy/install/images/{committed}"), &held, "images");
}
