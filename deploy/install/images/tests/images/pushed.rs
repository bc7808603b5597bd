//! `push`, with small images and a registry on loopback.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ebs_csi_e2e::registry::{Registry, has};
use ebs_csi_e2e::repository::prepared;
use serde_json::Value;

use crate::packed::{self, NAMES};

/// A program that `prepare` installs.
fn tool(name: &str) -> Command {
    Command::new(prepared(name).unwrap())
}

fn succeeds(command: &mut Command) -> String {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

fn manifest(registry: &Registry, reference: &str) -> Value {
    let reference = format!("{}/{reference}", registry.address);
    serde_json::from_str(&succeeds(tool("crane").args(["manifest", &reference]))).unwrap()
}

fn push(registry: &str, images: &Path, options: &[&str], environment: &[(&str, &Path)]) -> Output {
    let mut command = packed::script("push");
    command.arg(registry).arg("--images").arg(images).arg("--plain-http").args(options);
    command.envs(environment.iter().copied()).output().unwrap()
}

fn printed(out: &Output) -> Value {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_saphyr::from_str(&String::from_utf8_lossy(&out.stdout)).unwrap()
}

/// Pushes what a build wrote for both platforms, and compares the registry's content with it and
/// with the values that are printed.
pub(crate) fn assert_pushed(registry: &Registry, images: &Path, tag: &str) {
    let own = std::fs::read_to_string(images.join("digests.yaml")).unwrap();
    let own: Value = serde_saphyr::from_str(&own).unwrap();
    let values = printed(&push(&format!("{}/team/", registry.address), images, &[], &[]));
    assert_eq!(values["images"]["architectures"], own["images"]["architectures"]);
    assert!(values["sidecars"].is_null());
    for (name, key) in
        NAMES.into_iter().zip(["controller", "nodeLifecycle", "nodeAgent", "mountHelper"])
    {
        let image = &values["images"][key];
        let repository = format!("{}/team/ebs-csi-{name}", registry.address);
        assert_eq!(image["repository"], repository.as_str());
        assert_eq!(image["digest"], own["images"][key]["digest"]);
        let digest = image["digest"].as_str().unwrap();
        for reference in
            [format!("team/ebs-csi-{name}:{tag}"), format!("team/ebs-csi-{name}@{digest}")]
        {
            let index = manifest(registry, &reference);
            let images = index["manifests"].as_array().unwrap().iter();
            let platforms: Vec<_> =
                images.map(|it| it["platform"]["architecture"].clone()).collect();
            assert_eq!(platforms, ["amd64", "arm64"], "{reference}");
        }
    }
}

const SIDECARS: [&str; 4] = ["csi-attacher", "csi-provisioner", "csi-resizer", "csi-snapshotter"];

/// Writes images of one small file for two platforms as a build does. Also returns their digests.
fn stand_ins(place: &Path) -> (PathBuf, BTreeMap<&'static str, String>) {
    let (root, images) = (place.join("root"), place.join("images"));
    std::fs::create_dir(&root).unwrap();
    std::fs::create_dir(&images).unwrap();
    let layout = images.join("layout");
    let at = |tag: &str| format!("{}:{tag}", layout.display());
    let mut digests = BTreeMap::new();
    for name in NAMES.into_iter().chain(["sidecar"]) {
        std::fs::write(root.join("name"), name).unwrap();
        let mut index = tool("regctl");
        index.args(["index", "create", &format!("ocidir://{}", at(name))]);
        for platform in ["amd64", "arm64"] {
            let own = at(&format!("{name}-{platform}"));
            let mut image = packed::script("image");
            image.arg(&root).arg(&own).arg(format!("linux/{platform}"));
            succeeds(image.args(["1970-01-01T00:00:00Z", "none"]));
            index.args(["--ref", &format!("ocidir://{own}")]);
        }
        succeeds(&mut index);
        let digest =
            succeeds(tool("regctl").args(["image", "digest", &format!("ocidir://{}", at(name))]));
        digests.insert(name, digest.trim().to_owned());
    }
    let pinned = format!(
        "images:\n  architectures: [amd64, arm64]\n  controller: {{digest: \"{}\"}}\n  \
         mountHelper: {{digest: \"{}\"}}\n  nodeAgent: {{digest: \"{}\"}}\n  nodeLifecycle: {{digest: \"{}\"}}\n",
        digests["controller"],
        digests["mount-helper"],
        digests["node-agent"],
        digests["node-lifecycle"],
    );
    std::fs::write(images.join("digests.yaml"), pinned).unwrap();
    let own = NAMES.map(|name| format!("r.test/ebs-csi-{name}:v9\n")).concat();
    let others = SIDECARS.map(|name| format!("registry.k8s.io/sig-storage/{name}:v1\n")).concat();
    std::fs::write(images.join("images.txt"), own + &others).unwrap();
    (images, digests)
}

#[test]
fn pushed_images_have_both_platforms_and_digests() {
    if !has(&["regctl"]) {
        return;
    }
    let Some(registry) = Registry::start() else { return };
    let place = tempfile::tempdir().unwrap();
    let (images, digests) = stand_ins(place.path());
    assert_pushed(&registry, &images, "v9");

    // The registry stands for the sidecars' own, too.
    let source = place.path().join("regctl.json");
    let hosts = serde_json::json!({"hosts": {"registry.k8s.io": {"tls": "disabled", "hostname": registry.address}}});
    std::fs::write(&source, hosts.to_string()).unwrap();
    let environment = [("REGCTL_CONFIG", source.as_path())];
    let air_gapped = |options: &[&str]| {
        push(&format!("{}/mirror", registry.address), &images, options, &environment)
    };
    let missing = air_gapped(&["--sidecars"]);
    assert!(!missing.status.success() && missing.stdout.is_empty(), "{missing:?}");
    let layout = format!("ocidir://{}/layout:sidecar", images.display());
    for name in SIDECARS {
        let target = format!("{}/sig-storage/{name}:v1", registry.address);
        let mut copy = tool("regctl");
        copy.args(["--host", &format!("reg={},tls=disabled", registry.address)]);
        succeeds(copy.args(["image", "copy", &layout, &target]));
    }
    let values = printed(&air_gapped(&["--sidecars"]));
    let images_of_overlay = printed(&air_gapped(&["--sidecars", "--kustomize"]));
    let images_of_overlay = images_of_overlay["images"].as_array().unwrap();
    assert_eq!(images_of_overlay.len(), 8);
    for name in SIDECARS {
        let image = &values["sidecars"][&name["csi-".len()..]]["image"];
        assert_eq!(image["repository"], format!("{}/mirror/{name}", registry.address));
        assert_eq!(image["digest"], digests["sidecar"].as_str());
        assert_eq!(
            manifest(&registry, &format!("mirror/{name}:v1"))["manifests"][1]["platform"]["architecture"],
            "arm64"
        );
        let own = format!("registry.k8s.io/sig-storage/{name}");
        let entry = images_of_overlay.iter().find(|it| it["name"] == own.as_str()).unwrap();
        assert_eq!((&entry["newName"], &entry["digest"]), (&image["repository"], &image["digest"]));
    }

    let nobody = push("127.0.0.1:1", &images, &[], &[]);
    assert!(!nobody.status.success() && nobody.stdout.is_empty(), "{nobody:?}");
    let nothing = push(&registry.address, place.path(), &[], &[]);
    let said = String::from_utf8_lossy(&nothing.stderr).into_owned();
    assert!(!nothing.status.success() && said.contains("images/build --output"), "{said}");
}
