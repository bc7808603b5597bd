//! The crates that a program links, as cargo resolves them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::licence::{Licence, Texts};
use crate::text_input::{output, read};

/// A crate's name and version, such as `rustix 1.1.6`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    pub(crate) name: String,
    pub(crate) version: String,
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

/// The known facts about a crate.
#[derive(Debug, Clone)]
pub(crate) struct Crate {
    /// The licence of its manifest, if that has one.
    pub(crate) licence: Option<Licence>,
    /// Its sources.
    directory: PathBuf,
    /// The SHA-256 of its archive in the registry; a crate of this repository has none.
    pub(crate) checksum: Option<String>,
}

/// The crates that a program links, each with those that it links itself.
///
/// Procedural macros and build scripts run in the build only and are left out.
#[derive(Debug)]
pub(crate) struct Linked {
    /// The program's own crate.
    pub(crate) root: Id,
    pub(crate) crates: BTreeMap<Id, Crate>,
    /// The crates that a crate links.
    pub(crate) edges: BTreeMap<Id, BTreeSet<Id>>,
}

/// The crates of one workspace.
#[derive(Debug)]
pub(crate) struct Workspace {
    manifest: PathBuf,
    target: String,
    crates: BTreeMap<Id, Crate>,
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

impl Workspace {
    /// Reads the workspace of a manifest, for a target such as `x86_64-unknown-linux-gnu`.
    ///
    /// # Errors
    /// Returns cargo's error, or what of its answer is not as expected.
    pub(crate) fn read(manifest: &Path, target: &str) -> Result<Workspace, String> {
        let metadata = output(
            cargo()
                .args(["metadata", "--format-version", "1", "--locked", "--offline"])
                .args(["--filter-platform", target, "--manifest-path"])
                .arg(manifest),
        )?;
        let metadata: Value =
            serde_json::from_str(&metadata).map_err(|error| format!("cargo metadata: {error}"))?;
        let checksums = parse_checksums(&read(&manifest.with_file_name("Cargo.lock"))?)?;
        let mut crates = BTreeMap::new();
        for package in metadata["packages"].as_array().into_iter().flatten() {
            let text = |field: &str| package[field].as_str();
            let (Some(name), Some(version), Some(path)) =
                (text("name"), text("version"), text("manifest_path"))
            else {
                return Err(format!("cargo metadata: {package}"));
            };
            let id = Id { name: name.to_owned(), version: version.to_owned() };
            let found = Crate {
                licence: text("license").map(Licence::of_crate),
                directory: Path::new(path).parent().unwrap_or(Path::new("/")).to_owned(),
                checksum: checksums.get(&id).cloned(),
            };
            crates.insert(id, found);
        }
        Ok(Workspace { manifest: manifest.to_owned(), target: target.to_owned(), crates })
    }

    /// Returns the crates that the program of a package links.
    ///
    /// # Errors
    /// Returns cargo's error, or what of its answer is not as expected.
    pub(crate) fn linked(&self, package: &str) -> Result<Linked, String> {
        let tree = output(
            cargo()
                .args(["tree", "--locked", "--offline", "--target", &self.target])
                .args(["-e", "normal,no-proc-macro", "--prefix", "depth", "--format", "{p}"])
                .args(["-p", package, "--manifest-path"])
                .arg(&self.manifest),
        )?;
        let (root, edges) = parse_tree(&tree).ok_or_else(|| format!("cargo tree: {tree}"))?;
        let known = |id: &Id| match self.crates.get(id) {
            Some(found) => Ok((id.clone(), found.clone())),
            None => Err(format!("cargo metadata does not know {id}")),
        };
        let crates = edges.keys().map(known).collect::<Result<_, _>>()?;
        Ok(Linked { root, crates, edges })
    }
}

/// Reads the lines of `cargo tree --prefix depth`, such as `1rustix v1.1.6`.
fn parse_tree(tree: &str) -> Option<(Id, BTreeMap<Id, BTreeSet<Id>>)> {
    let mut edges: BTreeMap<Id, BTreeSet<Id>> = BTreeMap::new();
    let mut ancestors: Vec<Id> = Vec::new();
    for line in tree.lines() {
        let digits = line.find(|c: char| !c.is_ascii_digit())?;
        let depth: usize = line[..digits].parse().ok()?;
        let mut words = line[digits..].split(' ');
        let id = Id {
            name: words.next()?.to_owned(),
            version: words.next()?.strip_prefix('v')?.to_owned(),
        };
        if depth > ancestors.len() {
            return None;
        }
        ancestors.truncate(depth);
        edges.entry(id.clone()).or_default();
        if let Some(parent) = ancestors.last() {
            edges.get_mut(parent)?.insert(id.clone());
        }
        ancestors.push(id);
    }
    Some((ancestors.first()?.clone(), edges))
}

/// Reads the checksums of a lock file.
fn parse_checksums(lock: &str) -> Result<BTreeMap<Id, String>, String> {
    let lock: toml::Table = lock.parse().map_err(|error| format!("Cargo.lock: {error}"))?;
    let packages = lock.get("package").and_then(|packages| packages.as_array());
    let known = packages.into_iter().flatten().filter_map(|package| {
        let text = |field: &str| package.get(field)?.as_str().map(str::to_owned);
        let id = Id { name: text("name")?, version: text("version")? };
        Some((id, text("checksum")?))
    });
    Ok(known.collect())
}

/// Adds the texts of a crate's licence: those among its sources, or the standard texts of the
/// licence that its manifest names.
///
/// # Errors
/// Returns the error of a read, or that the crate has neither.
pub(crate) fn add_texts(id: &Id, found: &Crate, texts: &mut Texts) -> Result<(), String> {
    let mut files = Vec::new();
    licence_files(&found.directory, &mut files)
        .map_err(|error| format!("{}: {error}", found.directory.display()))?;
    for file in &files {
        let text = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        texts.add(&id.to_string(), &String::from_utf8_lossy(&text));
    }
    let standard = match &found.licence {
        Some(Licence::Expression(expression)) if files.is_empty() => {
            texts.add_standard(&id.to_string(), expression)
        }
        _ => false,
    };
    if files.is_empty() && !standard {
        return Err(format!("{id} has neither a known licence nor a text of one"));
    }
    Ok(())
}

/// Finds licence texts, also those of C sources that a crate brings along.
fn licence_files(directory: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        let kind = entry.file_type()?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if kind.is_dir() && !matches!(name.as_str(), "tests" | "benches" | "examples" | "target") {
            licence_files(&path, files)?;
        } else if kind.is_file() && is_licence(&name) {
            files.push(path);
        }
    }
    Ok(())
}

fn is_licence(name: &str) -> bool {
    const NAMES: [&str; 7] =
        ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE", "LEGAL"];
    const OTHERS: [&str; 10] = ["rs", "c", "h", "cc", "go", "py", "pl", "toml", "json", "html"];
    let name = name.to_ascii_uppercase();
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    let is_source = |e: &str| OTHERS.iter().any(|other| other.eq_ignore_ascii_case(e));
    NAMES.iter().any(|start| name.starts_with(start)) && !extension.is_some_and(is_source)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> Id {
        Id { name: name.to_owned(), version: "1.0.0".to_owned() }
    }

    /// Returns a crate with this licence and without sources.
    fn crate_of(licence: &str) -> (tempfile::TempDir, Crate) {
        let directory = tempfile::tempdir().unwrap();
        let licence = Some(Licence::of_crate(licence));
        let found = Crate { licence, directory: directory.path().to_owned(), checksum: None };
        (directory, found)
    }

    #[test]
    fn tree_gives_each_crate_with_its_own() {
        let tree = "0a v1.0.0 (/x)\n1b v1.0.0\n2c v1.0.0\n1d v1.0.0\n2b v1.0.0 (*)\n";
        let (root, edges) = parse_tree(tree).unwrap();
        assert_eq!(root, id("a"));
        let linked = |name: &str| edges[&id(name)].iter().cloned().collect::<Vec<_>>();
        assert_eq!(linked("a"), [id("b"), id("d")]);
        assert_eq!(linked("b"), [id("c")]);
        assert_eq!(linked("d"), [id("b")]);
    }

    #[test]
    fn lock_file_gives_checksums_of_registry_crates() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"77\"\n\
                    [[package]]\nname = \"b\"\nversion = \"1.0.0\"\n";
        let expected = BTreeMap::from([(id("a"), "77".to_owned())]);
        assert_eq!(parse_checksums(lock).unwrap(), expected);
    }

    #[test]
    fn licence_texts_below_sources_are_found() {
        let (directory, found) = crate_of("MIT");
        let bundled = directory.path().join("c_src/lib");
        std::fs::create_dir_all(&bundled).unwrap();
        std::fs::write(bundled.join("LICENSE"), "bundled text").unwrap();
        std::fs::write(directory.path().join("license.rs"), "code").unwrap();
        let mut texts = Texts::default();
        add_texts(&id("a"), &found, &mut texts).unwrap();
        let document = texts.document("x");
        assert!(document.contains("bundled text") && !document.contains("code"));
    }

    #[test]
    fn crate_without_text_gets_standard_or_is_refused() {
        let (_directory, mut found) = crate_of("MIT/Apache-2.0");
        let mut texts = Texts::default();
        add_texts(&id("a"), &found, &mut texts).unwrap();
        assert!(texts.document("x").contains("Permission is hereby granted"));
        found.licence = None;
        assert!(add_texts(&id("a"), &found, &mut texts).is_err());
    }
}
