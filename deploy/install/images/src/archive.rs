//! The OCI archive: layer, configuration, manifest, index.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType as Kind};

use crate::{Contents, Entry, Platform};

/// The name and the configuration of an image.
#[derive(Debug, Clone, Default)]
pub struct Image {
    /// The name under which a runtime finds the image, such as `example.com/driver:v1`.
    pub reference: String,
    /// What the image's programs run on.
    pub platform: Platform,
    /// The program that a container starts, and its first arguments.
    pub entrypoint: Vec<String>,
    /// Further arguments, which a pod's `args` replace.
    pub command: Vec<String>,
    /// User and group, such as `65530:65530`; empty is root.
    pub user: String,
    /// Variables, as `NAME=value`.
    pub environment: Vec<String>,
    /// Labels of the configuration, which are also the manifest's annotations; the
    /// [specification](https://github.com/opencontainers/image-spec/blob/main/annotations.md) has
    /// the names of common ones.
    pub labels: BTreeMap<String, String>,
    /// The creation time, by RFC 3339; without it the Unix epoch.
    pub created: Option<String>,
    /// gzip level of the layer, 0 to 9.
    pub compression: u32,
}

/// An image, or the images of one name for several platforms, as the blobs of an OCI layout.
#[derive(Debug)]
pub struct Packed {
    /// The manifest or the index comes first.
    blobs: Vec<Blob>,
    /// The image's descriptor in an index.
    descriptor: Value,
}

/// A blob with its digest, which takes long to compute.
#[derive(Debug)]
struct Blob {
    digest: String,
    content: Vec<u8>,
}

impl Blob {
    fn new(content: Vec<u8>) -> Blob {
        let digest = digest(&content);
        Blob { digest, content }
    }

    /// Returns the path in a layout.
    fn path(&self) -> String {
        format!("blobs/{}", self.digest.replacen(':', "/", 1))
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({ "mediaType": media_type, "digest": self.digest, "size": self.content.len() })
    }
}

impl Packed {
    /// Packs an image with these contents.
    ///
    /// # Errors
    /// Returns the errors of tar, for instance for a path that it cannot represent.
    pub fn new(image: &Image, contents: &Contents) -> io::Result<Packed> {
        let plain = layer(contents)?;
        let mut layer =
            GzBuilder::new().mtime(0).write(Vec::new(), Compression::new(image.compression.min(9)));
        layer.write_all(&plain)?;
        let layer = Blob::new(layer.finish()?);

        // The epoch says nothing about the machine that built the image.
        let created = image.created.as_deref().unwrap_or("1970-01-01T00:00:00Z");
        let mut config = json!({
            "architecture": image.platform.architecture(),
            "os": "linux",
            "created": created,
            "config": {
                "User": image.user,
                "Env": image.environment,
                "Entrypoint": image.entrypoint,
                "Cmd": image.command,
            },
            "rootfs": { "type": "layers", "diff_ids": [digest(&plain)] },
            "history": [{ "created": created, "created_by": "ebs-csi-images" }],
        });
        if !image.labels.is_empty() {
            config["config"]["Labels"] = json!(image.labels);
        }
        let config = Blob::new(bytes(&config));
        let mut manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor("application/vnd.oci.image.config.v1+json"),
            "layers": [layer.descriptor("application/vnd.oci.image.layer.v1.tar+gzip")],
        });
        if !image.labels.is_empty() {
            manifest["annotations"] = json!(image.labels);
        }
        let manifest = Blob::new(bytes(&manifest));
        let mut descriptor = manifest.descriptor(MANIFEST);
        let architecture = image.platform.architecture();
        descriptor["platform"] = json!({ "architecture": architecture, "os": "linux" });
        descriptor["annotations"] = name_annotations(&image.reference);
        Ok(Packed { blobs: vec![manifest, config, layer], descriptor })
    }

    /// Puts the images of one name for several platforms into one index, from which a node takes
    /// its own.
    #[must_use]
    pub fn of_platforms(reference: &str, images: Vec<Packed>) -> Packed {
        let mut manifests = Vec::new();
        let mut blobs = Vec::new();
        for image in images {
            let mut descriptor = image.descriptor;
            // The name is that of the index.
            if let Some(fields) = descriptor.as_object_mut() {
                fields.remove("annotations");
            }
            manifests.push(descriptor);
            blobs.extend(image.blobs);
        }
        let index = Blob::new(index(&manifests));
        let mut descriptor = index.descriptor(INDEX);
        descriptor["annotations"] = name_annotations(reference);
        blobs.insert(0, index);
        Packed { blobs, descriptor }
    }

    /// Returns the digest, such as `sha256:…`, by which a registry serves the image.
    pub fn digest(&self) -> &str {
        self.blobs.first().map_or("", |blob| &blob.digest)
    }

    /// Returns the bytes of all blobs. For one platform, a node downloads them: layer,
    /// configuration and manifest.
    pub fn size(&self) -> usize {
        self.blobs.iter().map(|blob| blob.content.len()).sum()
    }

    /// Writes the image as an OCI archive.
    fn write_archive(&self, to: impl Write) -> io::Result<()> {
        let mut archive = Builder::new(to);
        let mut add = |name: &str, it: &[u8]| append(&mut archive, Path::new(name), 0o644, it);
        add("oci-layout", &layout())?;
        add("index.json", &index(std::slice::from_ref(&self.descriptor)))?;
        for blob in &self.blobs {
            add(&blob.path(), &blob.content)?;
        }
        archive.into_inner()?.flush()
    }

    /// Writes the image as an OCI archive at this path, at which a partial archive never stands.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn save(&self, archive: &Path) -> io::Result<()> {
        let unfinished = archive.with_extension("unfinished");
        self.write_archive(BufWriter::new(File::create(&unfinished)?))?;
        std::fs::rename(&unfinished, archive)
    }
}

/// Writes images as one OCI layout. Replaces a directory of that name.
///
/// # Errors
/// Returns the errors of the file system.
pub fn write_layout(directory: &Path, images: &[Packed]) -> io::Result<()> {
    if directory.exists() {
        std::fs::remove_dir_all(directory)?;
    }
    std::fs::create_dir_all(directory.join("blobs/sha256"))?;
    for blob in images.iter().flat_map(|image| &image.blobs) {
        std::fs::write(directory.join(blob.path()), &blob.content)?;
    }
    let descriptors: Vec<Value> = images.iter().map(|image| image.descriptor.clone()).collect();
    std::fs::write(directory.join("index.json"), index(&descriptors))?;
    std::fs::write(directory.join("oci-layout"), layout())
}

fn layout() -> Vec<u8> {
    bytes(&json!({ "imageLayoutVersion": "1.0.0" }))
}

fn index(manifests: &[Value]) -> Vec<u8> {
    bytes(&json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests }))
}

/// Returns the annotations of a name. containerd reads an annotation of its own, other tools that
/// of the specification.
fn name_annotations(reference: &str) -> Value {
    json!({
        "io.containerd.image.name": reference,
        "org.opencontainers.image.ref.name": reference,
    })
}

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

fn bytes(document: &Value) -> Vec<u8> {
    document.to_string().into_bytes()
}

fn digest(blob: &[u8]) -> String {
    format!("sha256:{}", sha256(blob))
}

/// Returns a SHA-256 in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn layer(contents: &Contents) -> io::Result<Vec<u8>> {
    let mut layer = Builder::new(Vec::new());
    for (path, entry) in contents.iter() {
        match entry {
            Entry::Directory(mode) => {
                layer.append_data(&mut header(Kind::Directory, *mode, 0), path, io::empty())?;
            }
            Entry::File(mode, content) => {
                append(&mut layer, path, *mode, content)?;
            }
            Entry::Link(target) => {
                layer.append_link(&mut header(Kind::Symlink, 0o777, 0), path, target)?;
            }
        }
    }
    layer.into_inner()
}

fn append(to: &mut Builder<impl Write>, path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    to.append_data(&mut header(Kind::Regular, mode, bytes.len() as u64), path, bytes)
}

fn header(kind: Kind, mode: u32, size: u64) -> tar::Header {
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
    use std::io::Read as _;

    use super::*;

    fn image() -> (Image, Contents) {
        let image = Image {
            reference: "example.com/a:1".to_owned(),
            entrypoint: vec!["/a".to_owned()],
            compression: 6,
            ..Image::default()
        };
        let mut contents = Contents::default();
        for (path, entry) in [
            ("/a", Entry::File(0o755, b"program".to_vec())),
            ("/b", Entry::Link("a".into())),
            ("/tmp", Entry::Directory(0o1777)),
        ] {
            contents.add(Path::new(path), entry).unwrap();
        }
        (image, contents)
    }

    fn archived(packed: &Packed) -> BTreeMap<String, Vec<u8>> {
        let mut archive = Vec::new();
        packed.write_archive(&mut archive).unwrap();
        files(&archive)
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

    fn json_of(document: &[u8]) -> Value {
        serde_json::from_slice(document).unwrap()
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
        let archived = archived(&Packed::new(&image, &contents).unwrap());
        let index = json_of(&archived["index.json"]);
        let descriptor = &index["manifests"][0];
        assert_eq!(descriptor["annotations"]["io.containerd.image.name"], "example.com/a:1");
        let manifest = json_of(blob(&archived, descriptor));
        let config = json_of(blob(&archived, &manifest["config"]));
        assert_eq!(config["config"]["Entrypoint"], json!(["/a"]));
        let packed = blob(&archived, &manifest["layers"][0]);
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(packed).read_to_end(&mut plain).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], digest(&plain));
        assert_eq!(files(&plain)["a"], b"program");
    }

    #[test]
    fn index_has_manifest_for_each_platform() {
        let packed = |platform| {
            let (image, contents) = image();
            Packed::new(&Image { platform, ..image }, &contents).unwrap()
        };
        let images = vec![packed(Platform::Amd64), packed(Platform::Arm64)];
        let combined = Packed::of_platforms("example.com/a:1", images);
        let archived = archived(&combined);
        let named = json_of(&archived["index.json"]);
        let named = named["manifests"].as_array().unwrap();
        assert_eq!(named.len(), 1);
        assert_eq!(named[0]["digest"], combined.digest());
        let name = &named[0]["annotations"]["org.opencontainers.image.ref.name"];
        assert_eq!(name, "example.com/a:1");
        let index = json_of(blob(&archived, &named[0]));
        let mut found = Vec::new();
        for descriptor in index["manifests"].as_array().unwrap() {
            let manifest = json_of(blob(&archived, descriptor));
            let config = json_of(blob(&archived, &manifest["config"]));
            assert_eq!(descriptor["platform"]["architecture"], config["architecture"]);
            blob(&archived, &manifest["layers"][0]);
            found.push(config["architecture"].as_str().unwrap().to_owned());
        }
        assert_eq!(found, ["amd64", "arm64"]);
    }

    #[test]
    fn layout_takes_the_place_of_former_one() {
        let (image, contents) = image();
        let packed = |reference: &str| {
            let reference = reference.to_owned();
            let image = Image { reference, ..image.clone() };
            Packed::new(&image, &contents).unwrap()
        };
        let directory = tempfile::tempdir().unwrap();
        let layout = directory.path().join("layout");
        write_layout(&layout, &[packed("c:1")]).unwrap();
        write_layout(&layout, &[packed("a:1"), packed("b:1")]).unwrap();
        let index = json_of(&std::fs::read(layout.join("index.json")).unwrap());
        let names = index["manifests"].as_array().unwrap().iter();
        let names: Vec<_> = names
            .map(|descriptor| &descriptor["annotations"]["org.opencontainers.image.ref.name"])
            .collect();
        assert_eq!(names, ["a:1", "b:1"]);
        // Both images have the same three blobs.
        let blobs = std::fs::read_dir(layout.join("blobs/sha256")).unwrap();
        assert_eq!(blobs.count(), 3);
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
            ("a", Kind::Regular, 0o755),
            ("b", Kind::Symlink, 0o777),
            ("tmp", Kind::Directory, 0o1777),
        ];
        assert_eq!(seen, expected.map(|(name, kind, mode)| (name.to_owned(), kind, mode)));
    }
}
