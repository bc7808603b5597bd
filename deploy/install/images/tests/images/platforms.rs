//! Images for amd64 and arm64 in one index, with small programs in place of the driver's. The
//! packages of arm64 are unpacked, and nothing of them is run.

use std::path::{Path, PathBuf};

use ebs_csi_e2e::registry::{Registry, has};
use serde_json::Value;

use crate::{packed, pushed};

/// A program that stands for each program of the driver: it links what the tools link.
const PROGRAM: &str = "usr/sbin/mke2fs";

fn json(path: PathBuf) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn unpacked_packages_give_arm64_images_in_one_index() {
    let host = Path::new("/").join(PROGRAM);
    if std::env::consts::ARCH != "x86_64" || !host.exists() {
        println!("skipped: needs Debian on amd64 with e2fsprogs");
        return;
    }
    if !has(&["regctl", "cyclonedx"]) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let scratch = scratch.path();
    let packages = scratch.join("packages");
    let unpacked = packed::script("unpack-packages")
        .arg("arm64")
        .arg(&packages)
        .args(["e2fsprogs", "xfsprogs"])
        .output()
        .unwrap();
    if !unpacked.status.success() {
        let error = String::from_utf8_lossy(&unpacked.stderr);
        let why = error.lines().last().unwrap_or("unknown");
        println!("skipped: the packages of arm64 cannot be had: {why}");
        return;
    }
    for (directory, program) in [("amd64", host), ("arm64", packages.join(PROGRAM))] {
        packed::copy_programs(&program, &scratch.join(directory));
    }
    let shown = scratch.display();
    let arguments = [
        "--repository=ebs-csi".to_owned(),
        format!("--programs=linux/arm64={shown}/arm64"),
        format!("--packages=linux/arm64={shown}/packages"),
        format!("--programs=linux/amd64={shown}/amd64"),
    ];
    let pack = |name: &str, arguments: &[String]| packed::pack(&scratch.join(name), arguments);
    for name in ["first", "second"] {
        pack(name, &arguments).unwrap();
    }
    let digests = |name: &str| std::fs::read(scratch.join(name).join("digests.yaml")).unwrap();
    assert!(digests("first") == digests("second"));
    assert!(String::from_utf8_lossy(&digests("first")).contains("architectures: [amd64, arm64]"));
    each_index_lists_both_platforms(&scratch.join("first"));
    if let Some(registry) = Registry::start() {
        pushed::assert_pushed(&registry, &scratch.join("first"), "v9");
    }
    let listing = std::fs::read_to_string(scratch.join("first/arm64/mount-helper.files.tsv"));
    packed::assert_committed_files(&listing.unwrap(), "mount-helper-files-arm64.tsv");

    // Without unpacked packages, the tools would be this machine's.
    let error = pack("mixed", &arguments[..2]).unwrap_err();
    assert!(error.contains("arm64"), "{error}");
    // A file that is not as its package has it.
    std::fs::copy(packages.join(PROGRAM), packages.join("usr/sbin/resize2fs")).unwrap();
    let error = pack("changed", &arguments).unwrap_err();
    assert!(error.contains("is not as its package"), "{error}");
}

fn each_index_lists_both_platforms(output: &Path) {
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap();
        json(output.join("layout/blobs").join(digest.replacen(':', "/", 1)))
    };
    let images = json(output.join("layout/index.json"));
    let images = images["manifests"].as_array().unwrap();
    assert_eq!(images.len(), 4);
    for image in images {
        let index = blob(image);
        let platforms = index["manifests"].as_array().unwrap().iter();
        let platforms: Vec<_> = platforms
            .map(|listed| {
                let config = blob(&blob(listed)["config"]);
                config["architecture"].as_str().unwrap().to_owned()
            })
            .collect();
        assert_eq!(platforms, ["amd64", "arm64"]);
    }
    for platform in ["amd64", "arm64"] {
        let bill = json(output.join(platform).join("mount-helper.cdx.json"));
        let bill = bill.to_string();
        let own = bill.split(&format!("?arch={platform}")).count() - 1;
        let other = if platform == "amd64" { "arm64" } else { "amd64" };
        assert!(own > 0 && bill.contains("pkg:deb/debian/xfsprogs@"), "{platform}");
        assert!(!bill.contains(&format!("?arch={other}")), "{platform}");
    }
}
