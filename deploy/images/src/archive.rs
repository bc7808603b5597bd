//! The OCI archive: layer, configuration, manifest, index.

use std::io::{self, Write};

use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{Contents, Entry};

/// The name and the configuration of an image.
#[derive(Debug, Clone, Default)]
pub struct Image {
    /// The name under which a runtime finds the image, such as `example.com/driver:v1`.
    pub reference: String,
    /// The program that a container starts, and its first arguments.
    pub entrypoint: Vec<String>,
    /// Further arguments, which a pod's `args` replace.
    pub command: Vec<String>,
    /// User and group, such as `65530:65530`; empty is root.
    pub user: String,
    /// Variables, as `NAME=value`.
    pub environment: Vec<String>,
    /// gzip level of the layer, 0 to 9.
    pub compression: u32,
}

/// The creation time in the configuration: the Unix epoch, so that an image tells nothing about the
/// machine that built it.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// Writes an image with these contents as an OCI archive.
///
/// # Errors
/// Returns the errors of the writer.
pub fn write(image: &Image, contents: &Contents, to: impl Write) -> io::Result<()> {
    let plain = layer(contents)?;
    let mut packed = GzBuilder::new()
        .mtime(0)
        .write(Vec::new(), Compression::new(image.compression.min(9)));
    packed.write_all(&plain)?;
    let packed = packed.finish()?;

    let config = bytes(&json!({
        "architecture": architecture(),
        "os": "linux",
        "created": CREATED,
        "config": {
            "User": image.user,
            "Env": image.environment,
            "Entrypoint": image.entrypoint,
            "Cmd": image.command,
        },
        "rootfs": { "type": "layers", "diff_ids": [digest(&plain)] },
        "history": [{ "created": CREATED, "created_by": "ebs-csi-images" }],
    }));
    let manifest = bytes(&json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip", &packed)],
    }));
    let mut listed = descriptor(MANIFEST, &manifest);
    listed["platform"] = json!({ "architecture": architecture(), "os": "linux" });
    // containerd reads the image's name from its own annotation, other tools from the
    // specification's.
    listed["annotations"] = json!({
        "io.containerd.image.name": image.reference,
        "org.opencontainers.image.ref.name": image.reference,
    });
    let index = bytes(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [listed],
    }));

    let mut archive = tar::Builder::new(to);
    let layout = bytes(&json!({ "imageLayoutVersion": "1.0.0" }));
    append(&mut archive, "oci-layout", &layout)?;
    append(&mut archive, "index.json", &index)?;
    for blob in [&config, &manifest, &packed] {
        let name = digest(blob).replacen(':', "/", 1);
        append(&mut archive, &format!("blobs/{name}"), blob)?;
    }
    archive.into_inner()?.flush()
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Returns this machine's architecture by Go's name for it, which the specification uses.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn bytes(document: &Value) -> Vec<u8> {
    document.to_string().into_bytes()
}

fn digest(blob: &[u8]) -> String {
    let hash = Sha256::digest(blob);
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn descriptor(media_type: &str, blob: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": digest(blob), "size": blob.len() })
}

fn layer(contents: &Contents) -> io::Result<Vec<u8>> {
    let mut layer = tar::Builder::new(Vec::new());
    for (path, entry) in contents.iter() {
        match entry {
            Entry::Directory(mode) => {
                let mut header = header(tar::EntryType::Directory, *mode, 0);
                layer.append_data(&mut header, path, io::empty())?;
            }
            Entry::File(mode, content) => {
                let mut header = header(tar::EntryType::Regular, *mode, content.len() as u64);
                layer.append_data(&mut header, path, content.as_slice())?;
            }
            Entry::Link(target) => {
                let mut header = header(tar::EntryType::Symlink, 0o777, 0);
                layer.append_link(&mut header, path, target)?;
            }
        }
    }
    layer.into_inner()
}

fn append(archive: &mut tar::Builder<impl Write>, name: &str, blob: &[u8]) -> io::Result<()> {
    let mut header = header(tar::EntryType::Regular, 0o644, blob.len() as u64);
    archive.append_data(&mut header, name, blob)
}

fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;
    use std::path::Path;

    use super::*;

    fn image() -> (Image, Contents) {
        let image = Image {
            reference: "example.com/a:1".to_owned(),
            entrypoint: vec!["/a".to_owned()],
            compression: 6,
            ..Image::default()
        };
        let mut contents = Contents::default();
        let program = Entry::File(0o755, b"program".to_vec());
        contents.add(Path::new("/a"), program).unwrap();
        let link = Entry::Link("a".into());
        contents.add(Path::new("/b"), link).unwrap();
        let scratch = Entry::Directory(0o1777);
        contents.add(Path::new("/tmp"), scratch).unwrap();
        (image, contents)
    }

    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(archive).entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            files.insert(name, content);
        }
        files
    }

    fn blob<'a>(files: &'a BTreeMap<String, Vec<u8>>, descriptor: &Value) -> &'a [u8] {
        let named = descriptor["digest"].as_str().unwrap();
        let found = &files[&format!("blobs/{}", named.replacen(':', "/", 1))];
        assert_eq!(digest(found), named);
        assert_eq!(descriptor["size"], found.len());
        found
    }

    #[test]
    fn index_manifest_config_and_layer_digests_match() {
        let (image, contents) = image();
        let mut archive = Vec::new();
        write(&image, &contents, &mut archive).unwrap();
        let archived = files(&archive);
        let index: Value = serde_json::from_slice(&archived["index.json"]).unwrap();
        let listed = &index["manifests"][0];
        assert_eq!(
            listed["annotations"]["io.containerd.image.name"],
            "example.com/a:1"
        );
        let manifest: Value = serde_json::from_slice(blob(&archived, listed)).unwrap();
        let config: Value = serde_json::from_slice(blob(&archived, &manifest["config"])).unwrap();
        assert_eq!(config["config"]["Entrypoint"], json!(["/a"]));
        let packed = blob(&archived, &manifest["layers"][0]);
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(packed)
            .read_to_end(&mut plain)
            .unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], digest(&plain));
        let unpacked = files(&plain);
        assert_eq!(unpacked["a"], b"program");
    }

    #[test]
    fn the_same_contents_give_the_same_bytes() {
        let (image, contents) = image();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        write(&image, &contents, &mut first).unwrap();
        write(&image, &contents, &mut second).unwrap();
        assert!(first == second);
    }

    #[test]
    fn layer_keeps_modes_and_links_sets_root_owner() {
        let (_, contents) = image();
        let layer = layer(&contents).unwrap();
        let mut seen = Vec::new();
        for entry in tar::Archive::new(layer.as_slice()).entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.mtime().unwrap()), (0, 0));
            let name = entry.path().unwrap().display().to_string();
            seen.push((name, header.entry_type(), header.mode().unwrap()));
        }
        let expected = [
            ("a".to_owned(), tar::EntryType::Regular, 0o755),
            ("b".to_owned(), tar::EntryType::Symlink, 0o777),
            ("tmp".to_owned(), tar::EntryType::Directory, 0o1777),
        ];
        assert_eq!(seen, expected);
    }
}
