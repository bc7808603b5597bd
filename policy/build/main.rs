//! Turns the TOML files of this folder into constants. An unknown key, an unknown name and a row
//! without a reason are build errors. The result is the same in every build profile.

mod calls;
mod constants;
mod disks;
mod environment;
mod format_options;
mod literal;
mod mounts;
mod process;
mod sandbox;
mod settings;
mod sockets;
mod tools;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::{env, fs};

use ebs_csi_document::digest::{FILES, of_file, of_policy};

fn main() -> Result<(), Box<dyn Error>> {
    let here = env::var("CARGO_MANIFEST_DIR")?;
    let out = env::var("OUT_DIR")?;
    let mut texts = BTreeMap::new();
    let mut digests = Vec::new();
    for name in FILES {
        let path = Path::new(&here).join(name);
        println!("cargo::rerun-if-changed={}", path.display());
        let text = fs::read_to_string(path)?;
        digests.push((name, of_file(&text).map_err(|e| format!("{name}: {e}"))?));
        texts.insert(name, text);
    }
    let groups = compiled(&texts, "sandbox/groups.toml", sandbox::groups)?;
    let mut all = sandbox::Profiles::new(groups);
    for name in FILES.into_iter().filter(|name| name.starts_with("sandbox/")) {
        if name != "sandbox/groups.toml" {
            compiled(&texts, name, |text| all.add(text))?;
        }
    }
    let profiles = all.names();
    let mounts = compiled(&texts, "mounts.toml", mounts::compile)?;
    let (tools, keys) = compiled(&texts, "tools.toml", tools::compile)?;
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let disks = compiled(&texts, "disks.toml", disks::compile)?;
    let of_profiles = |name, compile: fn(&str, &[&str]) -> Result<String, String>| {
        compiled(&texts, name, |text| compile(text, &profiles))
    };
    for (name, constants) in [
        ("places.rs", mounts.places),
        ("flags.rs", mounts.flags),
        ("blank.rs", mounts.blank),
        ("tools.rs", tools),
        ("format_options.rs", compiled(&texts, "format-options.toml", format_options::compile)?),
        ("settings.rs", compiled(&texts, "settings.toml", settings::compile)?),
        ("process.rs", of_profiles("process.toml", process::compile)?),
        ("sockets.rs", of_profiles("sockets.toml", sockets::compile)?),
        (
            "environment.rs",
            compiled(&texts, "environment.toml", |text| {
                environment::compile(text, &profiles, &keys)
            })?,
        ),
        ("profiles.rs", all.compile()?),
        ("disks.rs", disks.disks),
        ("policies.rs", disks.policies),
        ("digests.rs", constants_of(&disks.names, &digests)),
    ] {
        fs::write(Path::new(&out).join(name), constants)?;
    }
    Ok(())
}

/// Compiles one file; the error names it.
fn compiled<T>(
    texts: &BTreeMap<&str, String>,
    name: &str,
    compile: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, String> {
    let text = texts.get(name).ok_or("the policy lacks the file");
    text.map_err(str::to_owned).and_then(|text| compile(text)).map_err(|e| format!("{name}: {e}"))
}

/// The digest of each policy, by which the one that a process enforces can be compared from
/// outside, and those of the files.
fn constants_of(policies: &[String], files: &[(&str, String)]) -> String {
    let policies = policies.iter().map(|name| {
        format!("pub(crate) const {}: &str = {:?};\n", name.to_uppercase(), of_policy(name, files))
    });
    let files = format!("pub(crate) const FILES: &[(&str, &str)] = &{files:?};\n");
    policies.chain([files]).collect()
}
