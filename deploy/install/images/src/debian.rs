//! The Debian packages that files belong to, as dpkg records them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::licence::Licence;
use crate::platform::System;
use crate::text_input::{output, read};

/// An installed package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) architecture: String,
    /// The source package, such as `e2fsprogs`.
    pub(crate) source: String,
}

impl Package {
    /// Returns the path of the package's copyright file, which each Debian package has.
    pub(crate) fn copyright_file(&self, system: &System) -> PathBuf {
        system.file(Path::new("/usr/share/doc")).join(&self.name).join("copyright")
    }
}

/// Returns dpkg or dpkg-query for a system.
fn dpkg(program: &str, system: &System) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C.UTF-8").arg("--admindir");
    command.arg(system.file(Path::new("/var/lib/dpkg")));
    command
}

/// Returns the package of each file of a system.
///
/// # Errors
/// Returns an error if dpkg cannot be asked, a file belongs to no package, or a file is not as its
/// package has it.
pub(crate) fn packages_of(
    system: &System,
    files: &BTreeSet<PathBuf>,
) -> Result<BTreeMap<PathBuf, Package>, String> {
    if files.is_empty() {
        return Ok(BTreeMap::new());
    }
    let owners = owners(system, files)?;
    let names: BTreeSet<&str> = owners.values().map(String::as_str).collect();
    verify_unchanged(system, files, &names)?;
    let listed = output(
        dpkg("dpkg-query", system)
            .args(["--show", "--showformat"])
            .arg("${binary:Package}\t${Package}\t${Version}\t${Architecture}\t${source:Package}\n")
            .args(&names),
    )?;
    let mut packages = BTreeMap::new();
    for line in listed.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [id, name, version, architecture, source] = fields[..] else {
            return Err(format!("dpkg-query: {line}"));
        };
        let package = Package {
            name: name.to_owned(),
            version: version.to_owned(),
            architecture: architecture.to_owned(),
            source: source.to_owned(),
        };
        packages.insert(id.to_owned(), package.clone());
        packages.insert(format!("{name}:{architecture}"), package);
    }
    owners
        .into_iter()
        .map(|(file, owner)| match packages.get(&owner) {
            Some(package) => Ok((file, package.clone())),
            None => Err(format!("dpkg knows no version of {owner}")),
        })
        .collect()
}

/// Returns the name that dpkg has for the package of each file.
fn owners(system: &System, files: &BTreeSet<PathBuf>) -> Result<BTreeMap<PathBuf, String>, String> {
    let mut search = dpkg("dpkg-query", system);
    search.arg("--search");
    for file in files {
        search.args(possible_paths(file));
    }
    // The status says that some path was not found, and of two names one always is not.
    let out = search.output().map_err(|error| format!("dpkg-query: {error}"))?;
    let found = parse_owners(&String::from_utf8_lossy(&out.stdout));
    files
        .iter()
        .map(|file| {
            let owner = possible_paths(file).into_iter().find_map(|name| found.get(&name));
            match owner {
                Some(owner) => Ok((file.clone(), owner.clone())),
                None => Err(format!("{} belongs to no Debian package", file.display())),
            }
        })
        .collect()
}

/// Returns the paths under which a package may have a file: those below `/usr` and those before
/// Debian moved its programs and libraries there.
fn possible_paths(file: &Path) -> Vec<PathBuf> {
    let mut names = vec![file.to_owned()];
    if let Ok(inside) = file.strip_prefix("/usr") {
        names.push(Path::new("/").join(inside));
    }
    names
}

/// Reads lines such as `libc6:amd64: /lib/x86_64-linux-gnu/libc.so.6`.
fn parse_owners(listed: &str) -> BTreeMap<PathBuf, String> {
    let lines = listed.lines().filter(|line| !line.starts_with("diversion by "));
    let pairs = lines.filter_map(|line| line.split_once(": "));
    pairs.map(|(owner, path)| (PathBuf::from(path), owner.to_owned())).collect()
}

/// Compares files with the checksums of their packages.
fn verify_unchanged(
    system: &System,
    files: &BTreeSet<PathBuf>,
    packages: &BTreeSet<&str>,
) -> Result<(), String> {
    let verified = dpkg("dpkg", system)
        .arg("--instdir")
        .arg(system.root())
        .arg("--verify")
        .args(packages)
        .output()
        .map_err(|error| format!("dpkg: {error}"))?;
    let changed = parse_changed(&String::from_utf8_lossy(&verified.stdout));
    let names: BTreeSet<PathBuf> = files.iter().flat_map(|file| possible_paths(file)).collect();
    match names.intersection(&changed).next() {
        Some(file) => Err(format!("{} is not as its package has it", file.display())),
        None => Ok(()),
    }
}

/// Reads lines such as `??5?????? c /etc/mke2fs.conf`.
fn parse_changed(listed: &str) -> BTreeSet<PathBuf> {
    let lines = listed.lines().filter_map(|line| line.split_once('/'));
    lines.map(|(_, path)| Path::new("/").join(path)).collect()
}

/// Returns the licences that a copyright file names.
///
/// They are those of the whole source package. A file that is not of the [machine-readable
/// format](https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/) is searched for
/// references to common licences; in which versions and with which exceptions they apply, only a
/// reader can tell. For the two such packages that programs link, a reader has.
pub(crate) fn licences(package: &Package, copyright: &str) -> BTreeSet<Licence> {
    if !copyright.starts_with("Format:") {
        let expression = match package.source.as_str() {
            // The latter has the C library for other architectures.
            "glibc" | "cross-toolchain-base" => Some("LGPL-2.1-or-later"),
            gcc if gcc.starts_with("gcc-") => Some("GPL-3.0-or-later WITH GCC-exception-3.1"),
            _ => None,
        };
        if let Some(expression) = expression {
            return BTreeSet::from([Licence::Expression(expression.to_owned())]);
        }
        let names = common_licences(copyright).into_iter();
        return names.map(Licence::Name).collect();
    }
    let stated = copyright.lines().filter_map(|line| line.strip_prefix("License:"));
    let names = stated.collect::<Vec<_>>().join(",");
    let names = names.replace(" and/or ", ",").replace(" and ", ",").replace(" or ", ",");
    let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(Licence::of_debian).collect()
}

/// Where Debian has the licences that copyright files refer to.
const COMMON: &str = "/usr/share/common-licenses/";

/// Returns the names of the common licences that a copyright file refers to.
pub(crate) fn common_licences(copyright: &str) -> BTreeSet<String> {
    let names = copyright.split(COMMON).skip(1).map(|rest| {
        let end = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-'));
        rest.split(end).next().unwrap_or("").trim_end_matches('.')
    });
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Returns the text of a common licence.
///
/// # Errors
/// Returns the error of the read.
pub(crate) fn common_licence(name: &str) -> Result<String, String> {
    read(&Path::new(COMMON).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_source(source: &str) -> Package {
        Package {
            name: "a".to_owned(),
            version: "1".to_owned(),
            architecture: "amd64".to_owned(),
            source: source.to_owned(),
        }
    }

    #[test]
    fn owners_are_read_under_either_name() {
        let listed = "diversion by a from: /lib/x\nlibc6:amd64: /lib/x86_64-linux-gnu/libc.so.6\n";
        let found = parse_owners(listed);
        let file = Path::new("/usr/lib/x86_64-linux-gnu/libc.so.6");
        let owner = possible_paths(file).into_iter().find_map(|name| found.get(&name).cloned());
        assert_eq!(owner.as_deref(), Some("libc6:amd64"));
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn changed_and_missing_files_are_read() {
        let listed = "??5?????? c /etc/mke2fs.conf\nmissing     /usr/share/doc/x\n";
        let expected = ["/etc/mke2fs.conf", "/usr/share/doc/x"];
        assert_eq!(parse_changed(listed), expected.into_iter().map(PathBuf::from).collect());
    }

    #[test]
    fn machine_readable_copyright_names_each_licence() {
        let copyright = "Format: https://x\n\nFiles: *\nLicense: GPL-2 and LGPL-2, own\n\nFiles: a\n\
                         License: BSD-3-clause\n text\n";
        let expression = |id: &str| Licence::Expression(id.to_owned());
        let ids = ["BSD-3-Clause", "GPL-2.0-only", "LGPL-2.0-only"];
        let mut expected: BTreeSet<Licence> = ids.into_iter().map(expression).collect();
        expected.insert(Licence::Name("own".to_owned()));
        assert_eq!(licences(&of_source("e2fsprogs"), copyright), expected);
    }

    #[test]
    fn other_copyright_names_the_licences_referred_to() {
        let copyright = "It is free.\nSee `/usr/share/common-licenses/LGPL-2.1'. And\n\
                         /usr/share/common-licenses/GPL-2.\n";
        let names: Vec<String> = common_licences(copyright).into_iter().collect();
        assert_eq!(names, ["GPL-2", "LGPL-2.1"]);
        let names = names.into_iter().map(Licence::Name).collect();
        assert_eq!(licences(&of_source("other"), copyright), names);
        let known = licences(&of_source("gcc-12"), copyright);
        let expected = "GPL-3.0-or-later WITH GCC-exception-3.1".to_owned();
        assert_eq!(known, BTreeSet::from([Licence::Expression(expected)]));
    }
}
