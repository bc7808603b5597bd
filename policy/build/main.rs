//! Turns the TOML files of this folder into constants. An unknown key, an unknown name and a row
//! without a reason are build errors. The result is the same in every build profile.

mod calls;
mod constants;
mod format_options;
mod literal;
mod mounts;
mod sandbox;
mod settings;
mod tools;

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use sha2::{Digest as _, Sha256};

/// The files that make up the policy, in the order in which the digest covers them.
const FILES: [&str; 11] = [
    "mounts.toml",
    "tools.toml",
    "format-options.toml",
    "settings.toml",
    "sandbox/groups.toml",
    "sandbox/controller.toml",
    "sandbox/node-lifecycle.toml",
    "sandbox/launcher.toml",
    "sandbox/node-agent.toml",
    "sandbox/mount-helper.toml",
    "sandbox/tool.toml",
];

fn main() -> Result<(), Box<dyn Error>> {
    let here = env::var("CARGO_MANIFEST_DIR")?;
    let out = env::var("OUT_DIR")?;
    let mut texts = Vec::new();
    for name in FILES {
        let path = Path::new(&here).join(name);
        println!("cargo::rerun-if-changed={}", path.display());
        texts.push((name, fs::read_to_string(path)?));
    }
    let [(_, mounts), (_, tools), (_, options), (_, settings), (_, groups), profiles @ ..] =
        texts.as_slice()
    else {
        return Err("the policy has more files".into());
    };
    let mounts = mounts::compile(mounts).map_err(|e| format!("mounts.toml: {e}"))?;
    let tools = tools::compile(tools).map_err(|e| format!("tools.toml: {e}"))?;
    let options =
        format_options::compile(options).map_err(|e| format!("format-options.toml: {e}"))?;
    let settings = settings::compile(settings).map_err(|e| format!("settings.toml: {e}"))?;
    let groups = sandbox::groups(groups).map_err(|e| format!("sandbox/groups.toml: {e}"))?;
    let mut all = sandbox::Profiles::new(groups);
    for (name, text) in profiles {
        all.add(text).map_err(|e| format!("{name}: {e}"))?;
    }
    for (name, constants) in [
        ("places.rs", mounts.places),
        ("flags.rs", mounts.flags),
        ("blank.rs", mounts.blank),
        ("tools.rs", tools),
        ("format_options.rs", options),
        ("settings.rs", settings),
        ("profiles.rs", all.compile()?),
        ("digests.rs", digests(&texts)),
    ] {
        fs::write(Path::new(&out).join(name), constants)?;
    }
    Ok(())
}

/// One digest for the whole policy, by which the policy that a process enforces can be compared
/// from outside.
fn digests(files: &[(&str, String)]) -> String {
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
