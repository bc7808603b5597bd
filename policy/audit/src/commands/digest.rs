//! The digests of the compiled-in policies, and of those that a checkout would compile to.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use ebs_csi_document::digest;
use ebs_csi_policy::{FILES, Policy};

use crate::Failure;
use crate::commands::policy_of;

/// The status when the checkout has another policy than this program.
const DIFFERS: u8 = 1;

/// Prints the digests of this program's policies and of their files.
pub(crate) fn own(out: &mut impl Write) -> Result<u8, Failure> {
    for policy in Policy::ALL {
        writeln!(out, "{:<10} {}", policy.name, policy.digest)?;
    }
    for (name, digest) in FILES {
        writeln!(out, "{name:<28} {digest}")?;
    }
    Ok(0)
}

/// Prints those of a checkout, or its `policy/` directory, and names the files that this program
/// does not have so.
pub(crate) fn of_checkout(checkout: &str, out: &mut impl Write) -> Result<u8, Failure> {
    let directory = policy_of(Path::new(checkout));
    let files = digest::of_directory(&directory).map_err(io::Error::other)?;
    let unknown = unknown_files(&directory)?;
    for policy in Policy::ALL {
        let digest = digest::of_policy(policy.name, &files);
        let told = if digest == policy.digest { "" } else { "  differs" };
        writeln!(out, "{:<10} {digest}{told}", policy.name)?;
    }
    let mut differs = !unknown.is_empty();
    for (name, digest) in &files {
        let is_own = FILES.iter().any(|(own, of_own)| own == name && of_own == digest);
        let told = if is_own { "" } else { "  differs" };
        differs |= !is_own;
        writeln!(out, "{name:<28} {digest}{told}")?;
    }
    for name in unknown {
        writeln!(out, "{name:<28} not known to this program")?;
    }
    Ok(if differs { DIFFERS } else { 0 })
}

/// TOML files beside the policy's that no process compiles in.
const OTHERS: [&str; 2] = ["Cargo.toml", "cves.toml"];

/// Returns the files of a policy that no digest covers.
fn unknown_files(directory: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for folder in ["", "sandbox/"] {
        for entry in fs::read_dir(directory.join(folder))? {
            let name = format!("{folder}{}", entry?.file_name().to_string_lossy());
            let is_known =
                OTHERS.contains(&name.as_str()) || digest::FILES.contains(&name.as_str());
            if name.ends_with(".toml") && !is_known {
                found.push(name);
            }
        }
    }
    found.sort();
    Ok(found)
}
