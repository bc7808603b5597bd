//! The bill of materials of an image, in
//! [CycloneDX 1.6](https://cyclonedx.org/docs/1.6/json/).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::archive::sha256;
use crate::licence::Licence;

/// A part of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Whether the part is a program of its own, not a library.
    pub(crate) is_program: bool,
    /// The [package URL](https://github.com/package-url/purl-spec), if the part is published.
    pub(crate) purl: Option<String>,
    /// The licences, all of which apply.
    pub(crate) licences: BTreeSet<Licence>,
    /// The SHA-256 of the part's published archive.
    pub(crate) sha256: Option<String>,
    /// The paths in the image that hold it.
    pub(crate) files: BTreeSet<String>,
}

impl Part {
    /// Returns the name by which the bill refers to the part.
    pub(crate) fn reference(&self) -> String {
        self.purl.clone().unwrap_or_else(|| format!("{}@{}", self.name, self.version))
    }

    fn component(&self) -> Value {
        let mut component = json!({
            "type": if self.is_program { "application" } else { "library" },
            "bom-ref": self.reference(),
            "name": self.name,
            "version": self.version,
        });
        if let Some(purl) = &self.purl {
            component["purl"] = json!(purl);
        }
        if let Some(sha256) = &self.sha256 {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": sha256 }]);
        }
        if !self.licences.is_empty() {
            component["licenses"] = licences(&self.licences);
        }
        if !self.files.is_empty() {
            let locations: Vec<Value> =
                self.files.iter().map(|path| json!({ "location": path })).collect();
            component["evidence"] = json!({ "occurrences": locations });
        }
        component
    }
}

/// An expression has to stand alone; several licences are listed by identifier or name.
fn licences(licences: &BTreeSet<Licence>) -> Value {
    let single = licences.len() == 1;
    let listed: Vec<Value> = licences
        .iter()
        .map(|licence| match licence {
            Licence::Expression(expression) if single => json!({ "expression": expression }),
            Licence::Expression(id) if !id.contains(' ') => json!({ "license": { "id": id } }),
            Licence::Expression(name) | Licence::Name(name) => {
                json!({ "license": { "name": name } })
            }
        })
        .collect();
    json!(listed)
}

/// The image that a bill describes.
#[derive(Debug)]
pub(crate) struct ImageDescription<'a> {
    /// The image's name, without a tag.
    pub(crate) name: &'a str,
    /// The release.
    pub(crate) version: &'a str,
    /// The digest of the manifest, such as `sha256:…`.
    pub(crate) digest: &'a str,
    /// The creation time, by RFC 3339.
    pub(crate) created: Option<&'a str>,
}

/// Returns the bill: each part, and what depends on what, by references. The image depends on the
/// parts that nothing else depends on.
pub(crate) fn bill(
    image: &ImageDescription<'_>,
    parts: &BTreeSet<Part>,
    edges: &BTreeMap<String, BTreeSet<String>>,
) -> Value {
    let root = format!("{}@{}", image.name, image.digest);
    let depended_on: BTreeSet<&String> = edges.values().flatten().collect();
    let references: Vec<String> = parts.iter().map(Part::reference).collect();
    let direct: Vec<&String> = references.iter().filter(|r| !depended_on.contains(r)).collect();
    let mut dependencies = vec![json!({ "ref": root, "dependsOn": direct })];
    for reference in &references {
        let on = edges.get(reference).cloned().unwrap_or_default();
        dependencies.push(json!({ "ref": reference, "dependsOn": on }));
    }
    let components: Vec<Value> = parts.iter().map(Part::component).collect();
    let mut metadata = json!({
        "component": {
            "type": "container",
            "bom-ref": root,
            "name": image.name,
            "version": image.version,
            "hashes": [{ "alg": "SHA-256", "content": image.digest.replacen("sha256:", "", 1) }],
        },
        "tools": { "components": [{ "type": "application", "name": "ebs-csi-images" }] },
    });
    if let Some(created) = image.created {
        metadata["timestamp"] = json!(created);
    }
    let mut bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": metadata,
        "components": components,
        "dependencies": dependencies,
    });
    bill["serialNumber"] = json!(serial_number(&bill.to_string()));
    bill
}

/// Returns a UUID of version 8 from the bill's content, so that the same image gives the same bill.
fn serial_number(content: &str) -> String {
    let hash = sha256(content.as_bytes());
    format!(
        "urn:uuid:{}-{}-8{}-a{}-{}",
        &hash[..8],
        &hash[8..12],
        &hash[12..15],
        &hash[15..18],
        &hash[18..30]
    )
}

/// Returns a package URL with its version in the encoding that the specification asks for.
pub(crate) fn purl(kind: &str, name: &str, version: &str) -> String {
    let mut encoded = String::new();
    for byte in version.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_' | b'~' => {
                encoded.push(byte.into());
            }
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    format!("pkg:{kind}/{name}@{encoded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, licences: &[Licence]) -> Part {
        Part {
            name: name.to_owned(),
            version: "1".to_owned(),
            is_program: false,
            purl: Some(purl("cargo", name, "1")),
            licences: licences.iter().cloned().collect(),
            sha256: None,
            files: BTreeSet::new(),
        }
    }

    fn bill_of(parts: &[Part], edges: &[(&str, &str)]) -> Value {
        let image =
            ImageDescription { name: "x", version: "0.1.0", digest: "sha256:77", created: None };
        let mut map: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in edges {
            let set = map.entry(purl("cargo", from, "1")).or_default();
            set.insert(purl("cargo", to, "1"));
        }
        bill(&image, &parts.iter().cloned().collect(), &map)
    }

    #[test]
    fn image_depends_on_parts_nothing_else_uses() {
        let bill = bill_of(&[part("a", &[]), part("b", &[])], &[("a", "b")]);
        let root = &bill["dependencies"][0];
        assert_eq!(root["ref"], bill["metadata"]["component"]["bom-ref"]);
        assert_eq!(root["dependsOn"], json!(["pkg:cargo/a@1"]));
        assert_eq!(bill["dependencies"][1]["dependsOn"], json!(["pkg:cargo/b@1"]));
        assert_eq!(bill["dependencies"][2]["dependsOn"], json!([]));
    }

    #[test]
    fn expression_stands_alone_other_licences_are_listed() {
        let expression = |text: &str| Licence::Expression(text.to_owned());
        let one = part("a", &[expression("MIT OR Apache-2.0")]);
        let several = part("b", &[expression("MIT"), Licence::Name("own".to_owned())]);
        let bill = bill_of(&[one, several], &[]);
        let licences = |at: usize| bill["components"][at]["licenses"].clone();
        assert_eq!(licences(0), json!([{ "expression": "MIT OR Apache-2.0" }]));
        let listed = json!([{ "license": { "id": "MIT" } }, { "license": { "name": "own" } }]);
        assert_eq!(licences(1), listed);
    }

    #[test]
    fn serial_number_follows_the_content() {
        let number = |name: &str| bill_of(&[part(name, &[])], &[])["serialNumber"].clone();
        assert_eq!(number("a"), number("a"));
        assert_ne!(number("a"), number("b"));
        let number = number("a").as_str().unwrap().to_owned();
        let lengths: Vec<usize> = number[9..].split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
    }

    #[test]
    fn purl_encodes_the_version() {
        let purl = purl("deb/debian", "libc6", "1:2.36-9+deb12u14");
        assert_eq!(purl, "pkg:deb/debian/libc6@1%3A2.36-9%2Bdeb12u14");
    }
}
