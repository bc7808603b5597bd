//! The driver's images, with small programs in place of the driver's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use ebs_csi_e2e::registry::has;
use ebs_csi_e2e::repository::{prepared, root, yaml};
use serde_json::Value;

use crate::packed::{self, NAMES, fields};

/// A program of this machine that stands for each program of the driver: it links what the tools
/// link, and is small.
const PROGRAM: &str = "/usr/sbin/mke2fs";

/// Returns whether the images cannot be made on this machine, and says so.
fn is_skipped() -> bool {
    let needed = ["/usr/sbin/mkfs.xfs", "/usr/share/ca-certificates/mozilla", PROGRAM];
    let has_all = needed.iter().all(|path| Path::new(path).exists());
    let is_possible = has_all && Path::new("/var/lib/dpkg/status").exists();
    if !is_possible {
        println!("skipped: needs Debian with e2fsprogs, xfsprogs and ca-certificates");
        return true;
    }
    !has(&["regctl", "cyclonedx"])
}

/// The files that the program wrote, by their names below the output's directory.
type Files = BTreeMap<String, Vec<u8>>;

/// Returns the files of one run, which takes seconds.
fn built() -> &'static Files {
    static FILES: OnceLock<Files> = OnceLock::new();
    FILES.get_or_init(run)
}

fn run() -> Files {
    let scratch = tempfile::tempdir().unwrap();
    let (programs, output) = (scratch.path().join("programs"), scratch.path().join("output"));
    packed::copy_programs(Path::new(PROGRAM), &programs);
    let programs = format!("--programs={}", programs.display());
    let labels = ["--revision=77", "--created=2026-01-02T03:04:05Z"].map(str::to_owned);
    let [revision, created] = labels;
    let repository = "--repository=example.com/ebs-csi".to_owned();
    packed::pack(&output, &[repository, revision, created, programs]).unwrap();
    let mut files = Files::new();
    read(&output, "", &mut files);
    files
}

fn read(directory: &Path, prefix: &str, files: &mut Files) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{prefix}{}", path.file_name().unwrap().display());
        if path.is_dir() {
            read(&path, &format!("{name}/"), files);
        } else {
            files.insert(name, std::fs::read(&path).unwrap());
        }
    }
}

fn text<'a>(files: &'a Files, name: &str) -> &'a str {
    std::str::from_utf8(&files[name]).unwrap()
}

fn json(files: &Files, name: &str) -> Value {
    serde_json::from_slice(&files[name]).unwrap()
}

/// Returns the manifests of the layout by the images' names.
fn manifests(files: &Files) -> BTreeMap<String, Value> {
    let index = json(files, "layout/index.json");
    let listed = index["manifests"].as_array().unwrap().iter();
    listed
        .map(|listed| {
            let name = &listed["annotations"]["org.opencontainers.image.ref.name"];
            let digest = listed["digest"].as_str().unwrap().replacen(':', "/", 1);
            let manifest = json(files, &format!("layout/blobs/{digest}"));
            (name.as_str().unwrap().to_owned(), manifest)
        })
        .collect()
}

#[test]
fn second_build_writes_the_same_bytes() {
    if is_skipped() {
        return;
    }
    let (first, second) = (built(), run());
    let names: Vec<&String> = first.keys().collect();
    assert_eq!(names, second.keys().collect::<Vec<_>>());
    for (name, content) in first {
        assert!(*content == second[name], "{name} differs");
    }
}

#[test]
fn each_image_has_labels_bill_files_licences_digest() {
    if is_skipped() {
        return;
    }
    let files = built();
    labels_are_the_specifications(files);
    references_name_each_image_and_sidecar(files);
    for name in NAMES {
        bill_is_closed(files, name);
        listing_names_package_of_each_file(files, name);
        licences_are_those_of_the_parts(files, name);
    }
    let listing = text(files, "mount-helper.files.tsv");
    packed::assert_committed_files(listing, "mount-helper-files.tsv");
}

#[test]
fn bills_follow_the_schema_of_cyclonedx() {
    if is_skipped() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in built() {
        if name.ends_with(".cdx.json") {
            std::fs::write(directory.path().join(name), content).unwrap();
        }
    }
    let validate = || packed::script("validate").arg(directory.path()).output().unwrap();
    let valid = validate();
    let output = String::from_utf8_lossy(&valid.stdout);
    assert!(valid.status.success() && output.matches(": valid\n").count() == 4, "{output}");
    // The validator sees what is wrong.
    let bill = directory.path().join("controller.cdx.json");
    let changed = std::fs::read_to_string(&bill).unwrap().replace("\"library\"", "\"libraries\"");
    std::fs::write(&bill, changed).unwrap();
    assert_eq!(validate().status.code(), Some(1));
}

/// What the sources of Python show of their functions.
#[test]
fn examples_of_functions_hold() {
    if !has(&["cyclonedx"]) {
        return;
    }
    let sources = root().join("deploy/install/images");
    let python = prepared("../cyclonedx/bin/python3").unwrap();
    for name in ["__init__.py", "bill.py", "crates.py", "debian.py"] {
        let examples = Command::new(&python)
            .env("PYTHONPATH", &sources)
            .args(["-B", "-m", "doctest"])
            .arg(sources.join("parts").join(name))
            .output()
            .unwrap();
        let shown = String::from_utf8_lossy(&examples.stdout);
        assert!(examples.status.success(), "{name}: {shown}");
    }
}

fn labels_are_the_specifications(files: &Files) {
    for (reference, manifest) in manifests(files) {
        let digest = manifest["config"]["digest"].as_str().unwrap().replacen(':', "/", 1);
        let config = json(files, &format!("layout/blobs/{digest}"));
        let labels = &config["config"]["Labels"];
        assert_eq!(*labels, manifest["annotations"], "{reference}");
        let label = |name: &str| &labels[format!("org.opencontainers.image.{name}")];
        assert_eq!(label("version"), "9.0.0");
        assert_eq!(label("revision"), "77");
        assert_eq!(label("created"), "2026-01-02T03:04:05Z");
        assert_eq!(config["created"], "2026-01-02T03:04:05Z");
        assert!(reference.contains(label("title").as_str().unwrap()));
        assert!(label("source").is_null());
        let licences = label("licenses").as_str().unwrap();
        spdx::Expression::parse(licences).unwrap_or_else(|error| panic!("{licences}: {error}"));
    }
}

fn references_name_each_image_and_sidecar(files: &Files) {
    let references: BTreeSet<&str> = text(files, "images.txt").lines().collect();
    let images: BTreeSet<String> = manifests(files).into_keys().collect();
    assert_eq!(images.len(), 4);
    assert!(images.iter().all(|image| references.contains(image.as_str())));
    let sidecar = |name: &str| references.iter().any(|reference| reference.contains(name));
    for name in ["csi-provisioner:", "csi-attacher:", "csi-resizer:", "csi-snapshotter:"] {
        assert!(sidecar(name), "{name}");
    }
    // The chart has the keys of the values that pin the digests.
    let chart = yaml("deploy/install/chart/values.yaml");
    let pinned: Value = serde_saphyr::from_str(text(files, "digests.yaml")).unwrap();
    let mut pinned = pinned["images"].as_object().unwrap().clone();
    let architectures = pinned.remove("architectures").unwrap();
    assert_eq!(architectures.as_array().map(Vec::len), Some(1));
    let index = text(files, "layout/index.json");
    for (key, image) in &pinned {
        assert!(chart["images"][key].get("digest").is_some(), "{key}");
        assert!(index.contains(image["digest"].as_str().unwrap()), "{key}");
    }
    assert_eq!(pinned.len(), 4);
}

/// References are unique and lead to a component; the schema cannot say either.
fn bill_is_closed(files: &Files, name: &str) {
    let bill = json(files, &format!("{name}.cdx.json"));
    let components = bill["components"].as_array().unwrap();
    let reference = |component: &Value| component["bom-ref"].as_str().unwrap().to_owned();
    let references: BTreeSet<String> = components.iter().map(reference).collect();
    assert_eq!(references.len(), components.len(), "{name}");
    for component in components {
        let licences = component["licenses"].as_array();
        assert!(licences.is_some_and(|listed| !listed.is_empty()), "{component}");
    }
    let mut reached = BTreeSet::new();
    for dependency in bill["dependencies"].as_array().unwrap() {
        for on in dependency["dependsOn"].as_array().into_iter().flatten() {
            reached.insert(on.as_str().unwrap().to_owned());
        }
    }
    assert_eq!(reached, references, "{name}: image uses its components");
    let digest = &bill["metadata"]["component"]["hashes"][0]["content"];
    let index = text(files, "layout/index.json");
    assert!(index.contains(digest.as_str().unwrap()), "{name}");
    let has = |part: &str| references.iter().any(|reference| reference.contains(part));
    assert!(has(&format!("ebs-csi-{name}@")) && has("rust-std@") && has("pkg:cargo/"));
    assert_eq!(has("pkg:deb/debian/xfsprogs@"), name == "mount-helper");
    assert_eq!(has("pkg:deb/debian/ca-certificates@"), name == "controller");
    assert_eq!(has("pkg:cargo/aws-sdk-ec2@"), name == "controller");
}

fn listing_names_package_of_each_file(files: &Files, name: &str) {
    let listing = text(files, &format!("{name}.files.tsv"));
    let program = format!("/usr/bin/ebs-csi-{name}");
    let licences = format!("/usr/share/doc/ebs-csi-{name}/licences.txt");
    let mut own = vec![program.as_str(), &licences];
    own.extend((name == "mount-helper").then_some("/etc/mke2fs.conf"));
    for line in listing.lines().skip(1) {
        let [mode, owner, _, package, version, _, path] = fields(line);
        assert_eq!(owner, "0:0", "{line}");
        if mode.starts_with('-') {
            let is_own = own.contains(&path);
            assert_eq!(package == "ebs-csi", is_own, "{line}");
            assert!(!version.is_empty() && version != "-", "{line}");
            assert!(matches!(mode, "-644" | "-755"), "{line}");
        }
    }
    assert!(own.iter().all(|own| listing.contains(own)), "{listing}");
    let certificates = listing.lines().find(|line| line.contains("ca-certificates.crt"));
    let package = certificates.map(|line| fields(line)[3]);
    assert_eq!(package, (name == "controller").then_some("ca-certificates"));
}

fn licences_are_those_of_the_parts(files: &Files, name: &str) {
    let licences = text(files, &format!("{name}.licences.txt"));
    let bill = json(files, &format!("{name}.cdx.json"));
    for component in bill["components"].as_array().unwrap() {
        let part = |field: &str| component[field].as_str().unwrap();
        let heading = format!("\n{} {}", part("name"), part("version"));
        assert!(licences.contains(&heading), "{name}: {heading}");
    }
    if name == "mount-helper" {
        assert!(licences.contains("GNU GENERAL PUBLIC LICENSE"));
        assert!(licences.contains("GNU LESSER GENERAL PUBLIC LICENSE"));
    }
}

/// The configuration in the image is ours: a newer mke2fs has defaults that older checkers refuse.
#[test]
fn shipped_configuration_makes_what_debian_12_makes() {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    if is_skipped() || !release.contains("VERSION_ID=\"12\"") {
        println!("skipped: needs Debian 12");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let policy = root().join("policy/mke2fs.conf");
    for fs in ["ext3", "ext4"] {
        for size in [3 << 20, 64 << 20, 1 << 30, 5 << 40] {
            let made = [policy.as_path(), Path::new("/etc/mke2fs.conf")].map(|configuration| {
                let disk = scratch.path().join("disk");
                std::fs::File::create(&disk).unwrap().set_len(size).unwrap();
                let uuid = "11111111-2222-3333-4444-555555555555";
                let options = format!("hash_seed={uuid},lazy_itable_init=1,lazy_journal_init=1");
                let status = Command::new(PROGRAM)
                    .env("MKE2FS_CONFIG", configuration)
                    .args(["-q", "-F", "-t", fs, "-m", "0", "-U", uuid, "-E", &options])
                    .arg(&disk)
                    .status();
                assert!(status.unwrap().success());
                let shown = Command::new("/usr/sbin/dumpe2fs").arg("-h").arg(&disk).output();
                let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
                let is_constant = |line: &&str| {
                    !line.contains("created:")
                        && !line.contains("time:")
                        && !line.contains("checked:")
                        && !line.contains("hecksum:")
                };
                shown.lines().filter(is_constant).collect::<Vec<_>>().join("\n")
            });
            assert!(made[0].contains("Filesystem features"), "{fs} of {size}");
            assert_eq!(made[0], made[1], "{fs} of {size}");
        }
    }
}
