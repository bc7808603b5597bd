//! Turns the TOML files of this folder into constants. An unknown key, an unknown name and a row
//! without a reason are build errors. The result is the same in every build profile.

mod constants;
mod digest;
mod literal;
mod mounts;
mod sandbox;
mod tools;

use std::error::Error;
use std::path::Path;
use std::{env, fs};

/// The files that make up the policy, in the order in which the digest covers them.
const FILES: [&str; 9] = [
    "mounts.toml",
    "tools.toml",
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
    let text = |name: &str| {
        texts
            .iter()
            .find(|(file, _)| *file == name)
            .map(|(_, text)| text.as_str())
            .unwrap_or_default()
    };

    let mounts = mounts::compile(text("mounts.toml")).map_err(|e| format!("mounts.toml: {e}"))?;
    let tools = tools::compile(text("tools.toml")).map_err(|e| format!("tools.toml: {e}"))?;
    let groups = sandbox::groups(text("sandbox/groups.toml"))
        .map_err(|e| format!("sandbox/groups.toml: {e}"))?;
    let mut profiles = sandbox::Profiles::new(groups);
    for name in &FILES[3..] {
        profiles.add(text(name)).map_err(|e| format!("{name}: {e}"))?;
    }

    fs::write(Path::new(&out).join("places.rs"), mounts.places)?;
    fs::write(Path::new(&out).join("flags.rs"), mounts.flags)?;
    fs::write(Path::new(&out).join("blank.rs"), mounts.blank)?;
    fs::write(Path::new(&out).join("tools.rs"), tools)?;
    fs::write(Path::new(&out).join("profiles.rs"), profiles.compile()?)?;
    fs::write(Path::new(&out).join("digests.rs"), digest::compile(&texts))?;
    Ok(())
}
