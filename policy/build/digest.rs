//! One digest for the whole policy, by which the policy that a process enforces can be compared
//! from outside.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

pub(crate) fn compile(files: &[(&str, String)]) -> String {
    let digest = |variant: &str| {
        let mut hash = Sha256::new();
        hash.update(variant.as_bytes());
        for (name, text) in files {
            // The lengths prevent two different sets of files from having the same input.
            hash.update(format!("\n{name} {}\n", text.len()).as_bytes());
            hash.update(text.as_bytes());
        }
        hash.finalize().iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    };
    format!(
        "pub(crate) const PRODUCTION: &str = {:?};\npub(crate) const GUEST: &str = {:?};\npub(crate) const SANDBOX: &str = {:?};\n",
        digest("production"),
        digest("guest"),
        digest("sandbox"),
    )
}
