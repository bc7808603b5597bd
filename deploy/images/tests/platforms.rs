//! Images for amd64 and arm64 in one index, with small programs in place of the driver's. The
//! packages of arm64 are unpacked, and nothing of them is run.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn checkout() -> PathBuf {
    let directory = std::env::var_os("CARGO_MANIFEST_DIR").expect("tests are run by cargo");
    Path::new(&directory).join("../..")
}

/// A program that stands for each program of the driver: it links what the tools link.
const PROGRAM: &str = "usr/sbin/mke2fs";

fn json(path: PathBuf) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Packs the programs into a directory.
fn pack(scratch: &Path, name: &str, arguments: &[String]) -> (bool, String) {
    let output = scratch.join(name);
    std::fs::create_dir(&output).unwrap();
    let done = Command::new(env!("CARGO_BIN_EXE_ebs-csi-driver-images"))
        .args(["--repository", "ebs-csi", "--tag", "v9"])
        .args(["--release", "9.0.0", "--compression", "0"])
        .arg("--checkout")
        .arg(checkout())
        .arg("--output")
        .arg(&output)
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    (done.status.success(), said)
}

#[test]
fn unpacked_packages_give_arm64_images_in_one_index() {
    let host = Path::new("/").join(PROGRAM);
    if std::env::consts::ARCH != "x86_64" || !host.exists() {
        println!("skipped: needs Debian on amd64 with e2fsprogs");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let scratch = scratch.path();
    let packages = scratch.join("packages");
    let unpacked = Command::new(checkout().join("deploy/images/unpack-packages"))
        .arg("arm64")
        .arg(&packages)
        .args(["e2fsprogs", "xfsprogs"])
        .output()
        .unwrap();
    if !unpacked.status.success() {
        let said = String::from_utf8_lossy(&unpacked.stderr);
        let why = said.lines().last().unwrap_or("unknown");
        println!("skipped: the packages of arm64 cannot be had: {why}");
        return;
    }
    for (directory, program) in [("amd64", host), ("arm64", packages.join(PROGRAM))] {
        std::fs::create_dir(scratch.join(directory)).unwrap();
        for name in ["controller", "node-lifecycle", "node-agent", "mount-helper"] {
            let to = scratch.join(directory).join(format!("ebs-csi-{name}"));
            std::fs::copy(&program, to).unwrap();
        }
    }
    let shown = scratch.display();
    let arguments = [
        format!("--programs=linux/arm64={shown}/arm64"),
        format!("--packages=linux/arm64={shown}/packages"),
        format!("--programs=linux/amd64={shown}/amd64"),
    ];
    for name in ["first", "second"] {
        let (packed, said) = pack(scratch, name, &arguments);
        assert!(packed, "{said}");
    }
    let digests = |name: &str| std::fs::read(scratch.join(name).join("digests.yaml")).unwrap();
    assert!(digests("first") == digests("second"));
    assert!(String::from_utf8_lossy(&digests("first")).contains("architectures: [amd64, arm64]"));
    each_index_lists_both_platforms(&scratch.join("first"));
    arm64_helper_holds_the_committed_files(&scratch.join("first/arm64"));

    // Without unpacked packages, the tools would be this machine's.
    let (packed, said) = pack(scratch, "mixed", &arguments[..1]);
    assert!(!packed && said.contains("arm64"), "{said}");
    // A file that is not as its package has it.
    std::fs::copy(packages.join(PROGRAM), packages.join("usr/sbin/resize2fs")).unwrap();
    let (packed, said) = pack(scratch, "changed", &arguments);
    assert!(!packed && said.contains("is not as its package"), "{said}");
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

fn arm64_helper_holds_the_committed_files(output: &Path) {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    if !release.contains("\nVERSION_ID=\"12\"") {
        println!("skipped: the committed list is that of Debian 12");
        return;
    }
    let mut held = String::from("mode\towner\tpackage\tpath\n");
    let listing = std::fs::read_to_string(output.join("mount-helper.files.tsv")).unwrap();
    for line in listing.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [mode, owner, _, package, _, _, path] = fields[..] else {
            panic!("{line}");
        };
        if package != "ebs-csi" {
            held.push_str(&format!("{mode}\t{owner}\t{package}\t{path}\n"));
        }
    }
    let committed = checkout().join("deploy/images/mount-helper-files-arm64.tsv");
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&committed, &held).unwrap();
    }
    let committed = std::fs::read_to_string(&committed).unwrap();
    assert!(
        committed == held,
        "mount-helper-files-arm64.tsv is not this; UPDATE_GENERATED=1 writes it:\n{held}"
    );
}
