//! The parts of an image.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::bom::{self, Part};
use crate::crates::{Linked, add_texts};
use crate::debian::{self, Package};
use crate::licence::{Licence, Texts};
use crate::platform::System;
use crate::text_input::{output, read};

/// The parts of an image and the texts of their licences.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) parts: BTreeMap<String, Part>,
    pub(crate) edges: BTreeMap<String, BTreeSet<String>>,
    pub(crate) texts: Texts,
}

impl Parts {
    pub(crate) fn all(&self) -> BTreeSet<Part> {
        self.parts.values().cloned().collect()
    }

    fn add(&mut self, part: Part) {
        self.parts.insert(part.reference(), part);
    }

    pub(crate) fn add_crates(&mut self, linked: &Linked, program: &str) -> Result<(), String> {
        let mut references = BTreeMap::new();
        for (id, found) in &linked.crates {
            let is_program = *id == linked.root;
            let part = Part {
                name: id.name.clone(),
                version: id.version.clone(),
                is_program,
                // Only what a registry has is found by its package URL.
                purl: found.checksum.as_ref().map(|_| bom::purl("cargo", &id.name, &id.version)),
                licences: found.licence.iter().cloned().collect(),
                sha256: found.checksum.clone(),
                files: is_program.then(|| program.to_owned()).into_iter().collect(),
            };
            references.insert(id, part.reference());
            self.add(part);
            add_texts(id, found, &mut self.texts)?;
        }
        for (id, on) in &linked.edges {
            let on = on.iter().map(|id| references[id].clone());
            self.edges.insert(references[id].clone(), on.collect());
        }
        Ok(())
    }

    /// Rust's standard library is no crate to cargo.
    pub(crate) fn add_standard_library(&mut self, linked: &Linked) -> Result<(), String> {
        let version = output(Command::new("rustc").arg("-V"))?;
        let version = version.split(' ').nth(1).ok_or("rustc -V: no version")?;
        let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
        let documents = Path::new(sysroot.trim_end()).join("share/doc/rust");
        let part = Part {
            name: "rust-std".to_owned(),
            version: version.to_owned(),
            licences: BTreeSet::from([Licence::of_crate("MIT OR Apache-2.0")]),
            ..Part::default()
        };
        for file in ["COPYRIGHT-library.html", "licenses/MIT.txt", "licenses/Apache-2.0.txt"] {
            let text = read(&documents.join(file))?;
            self.texts.add(&format!("rust-std {version}"), &text);
        }
        let root = format!("{}@{}", linked.root.name, linked.root.version);
        self.edges.entry(root).or_default().insert(part.reference());
        self.add(part);
        Ok(())
    }

    pub(crate) fn add_package(
        &mut self,
        system: &System,
        package: &Package,
        path: String,
    ) -> Result<(), String> {
        let copyright = read(&package.copyright_file(system))?;
        let purl = bom::purl("deb/debian", &package.name, &package.version);
        let mut part = Part {
            name: package.name.clone(),
            version: package.version.clone(),
            purl: Some(format!("{purl}?arch={}", package.architecture)),
            licences: debian::licences(package, &copyright),
            files: BTreeSet::from([path]),
            ..Part::default()
        };
        if let Some(known) = self.parts.get_mut(&part.reference()) {
            known.files.append(&mut part.files);
            return Ok(());
        }
        let name = format!("{} {} (Debian source {})", part.name, part.version, package.source);
        self.texts.add(&name, &copyright);
        for common in debian::common_licences(&copyright) {
            self.texts.add(&name, &debian::common_licence(&common)?);
        }
        self.add(part);
        Ok(())
    }
}
