//! The Containerfile makes images of the same files, users and entry points as `build`. buildah
//! takes the files where the stage that compiles would put them.

use std::path::Path;
use std::process::Command;

use ebs_csi_e2e::registry::has;
use ebs_csi_e2e::repository::root;
use serde_json::Value;

use crate::packed::{self, NAMES};

/// A program that stands for each program of the driver.
const PROGRAM: &str = "/usr/sbin/mke2fs";

fn run(command: &mut Command) -> Result<String, String> {
    let done = command.output().map_err(|error| error.to_string())?;
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&done.stderr))),
    }
}

/// Returns buildah with its storage below a directory.
fn buildah(scratch: &Path) -> Command {
    let mut buildah = Command::new("buildah");
    buildah.args(["--storage-driver", "vfs", "--root"]).arg(scratch.join("storage"));
    buildah.arg("--runroot").arg(scratch.join("run"));
    buildah
}

/// Unpacks the layer of the layout's image of this name. Returns the image's configuration.
fn unpack(layout: &Path, name: &str, to: &Path) -> Value {
    let json = |path: &Path| serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap();
        layout.join("blobs").join(digest.replacen(':', "/", 1))
    };
    let index: Value = json(&layout.join("index.json"));
    let is_named = |listed: &&Value| {
        let reference = &listed["annotations"]["org.opencontainers.image.ref.name"];
        reference.as_str().unwrap().contains(name)
    };
    let manifest: Value =
        json(&blob(index["manifests"].as_array().unwrap().iter().find(is_named).unwrap()));
    assert_eq!(manifest["layers"].as_array().map(Vec::len), Some(1), "{name}");
    std::fs::create_dir_all(to).unwrap();
    let layer = blob(&manifest["layers"][0]);
    run(Command::new("tar").arg("-xpf").arg(layer).arg("-C").arg(to)).unwrap();
    json(&blob(&manifest["config"]))
}

/// Returns type, mode, owner, path and link of each file.
fn entries(root: &Path) -> String {
    let found = run(Command::new("find").current_dir(root).args([
        ".",
        "-mindepth",
        "1",
        "-printf",
        "%y %m %U:%G %P %l\n",
    ]));
    let found = found.unwrap();
    let mut lines: Vec<&str> = found.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

#[test]
fn containerfile_gives_the_images_of_build() {
    if !Path::new(PROGRAM).exists() || !Path::new("/usr/sbin/mkfs.xfs").exists() {
        println!("skipped: needs Debian with e2fsprogs and xfsprogs");
        return;
    }
    if !has(&["regctl", "cyclonedx", "buildah"]) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let scratch = scratch.path();
    if let Err(why) = run(buildah(scratch).args(["from", "scratch"])) {
        println!("skipped: buildah makes no container: {why}");
        return;
    }
    packed::copy_programs(Path::new(PROGRAM), &scratch.join("programs"));
    let programs = format!("--programs={}", scratch.join("programs").display());
    let roots = format!("--roots={}", scratch.join("context/roots").display());
    packed::pack(&scratch.join("output"), &[programs, roots]).unwrap();

    std::fs::create_dir(scratch.join("empty")).unwrap();
    for name in NAMES {
        let context = format!("build={}", scratch.join("context").display());
        run(buildah(scratch)
            .args(["build", "--isolation", "chroot", "--pull-never"])
            .args([
                "--timestamp",
                "0",
                "--build-context",
                &context,
                "--target",
                name,
                "--tag",
                name,
            ])
            .arg("--file")
            .arg(root().join("deploy/install/images/Containerfile"))
            .arg(scratch.join("empty")))
        .unwrap();
        let layout = scratch.join(format!("{name}.layout"));
        let target = format!("oci:{}:{name}", layout.display());
        run(buildah(scratch).args(["push", "--quiet", name, &target])).unwrap();

        let [theirs, ours] = ["theirs", "ours"].map(|of| scratch.join(format!("{name}.{of}")));
        let built = unpack(&layout, name, &theirs);
        let packed = unpack(&scratch.join("output/layout"), name, &ours);
        for field in ["User", "Entrypoint"] {
            assert_eq!(built["config"][field], packed["config"][field], "{name}: {field}");
        }
        for label in ["title", "description"] {
            let label = format!("org.opencontainers.image.{label}");
            let [built, packed] = [&built, &packed].map(|it| &it["config"]["Labels"][&label]);
            assert!(built.is_string() && built == packed, "{name}: {label}");
        }
        assert_eq!(entries(&theirs), entries(&ours), "{name}");
        run(Command::new("diff").args(["-r", "--no-dereference"]).args([&theirs, &ours])).unwrap();
    }
}
