//! Each row about places: a path that the row allows and one that it denies.

mod fixtures;

use ebs_csi_policy::place::{self, PLACES, PatternPart, PlaceClass, PlaceFor, allowed};
use ebs_csi_wire::{
    Expand, FsType, KubeletPath, Operation, Origin, PublishBlock, PublishFilesystem, Refusal,
    Stage, Stats, Unpublish, Unstage, VolumeId,
};
use proptest::prelude::*;

const ROOT: &str = "/var/lib/kubelet";
const STAGING: &str = "plugins/kubernetes.io/csi/ebs.csi.aws.com/0a1b2c/globalmount";
const TARGET: &str = "pods/5f0b/volumes/kubernetes.io~csi/pvc-1/mount";
const BLOCK: &str = "plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/5f0b";
const KUBELETS_OWN: &str = "plugins/kubernetes.io/csi/volumeDevices/pvc-1/dev/5f0b";

/// The uses that change what is mounted.
const WRITING: [PlaceFor; 3] =
    [PlaceFor::Stage, PlaceFor::PublishFilesystem, PlaceFor::PublishBlock];

fn root() -> KubeletPath {
    KubeletPath::parse(ROOT).expect("a path")
}

fn beneath(path: &str) -> KubeletPath {
    KubeletPath::parse(&format!("{ROOT}/{path}")).expect("a path")
}

fn is_allowed(class: PlaceClass, operation: PlaceFor, path: &str) -> bool {
    let path = beneath(path);
    allowed(class, &[operation], path.strip_root(&root()).expect("beneath the root"))
}

/// Returns a path that the row matches and a path that it does not match.
fn paths(parts: &[PatternPart]) -> (String, String) {
    let text = |part: &PatternPart| match part {
        PatternPart::Name(name) => (*name).to_owned(),
        PatternPart::One => "one".to_owned(),
        PatternPart::Rest => "some/where/below".to_owned(),
    };
    let good: Vec<String> = parts.iter().map(text).collect();
    (good.join("/"), format!("elsewhere/{}", good.join("/")))
}

#[test]
fn only_names_of_classes_are_parsed() {
    for (name, class) in [
        ("kubernetes", Some(PlaceClass::Kubernetes)),
        ("any", Some(PlaceClass::Any)),
        ("Any", None),
        ("", None),
    ] {
        assert_eq!(PlaceClass::parse(name), class, "{name}");
        assert!(class.is_none_or(|class| class.as_str() == name));
    }
}

#[test]
fn each_place_row_allows_only_matching_paths() {
    for row in PLACES {
        let (good, bad) = paths(row.parts);
        for operation in row.operations {
            assert!(is_allowed(row.class, *operation, &good), "{good}");
            assert!(!is_allowed(PlaceClass::Any, *operation, &bad), "{bad}");
        }
        // The directory above a pattern is not itself a place.
        let (above, _) = good.rsplit_once('/').expect("more than one component");
        let path = beneath(above);
        let above = path.strip_root(&root()).expect("beneath the root");
        assert!(row.parts.last() == Some(&PatternPart::Rest) || !row.matches(above), "{above}");
    }
}

#[test]
fn kubelet_paths_are_allowed_only_for_their_operation() {
    for (path, operation) in [
        (STAGING, PlaceFor::Stage),
        ("plugins/kubernetes.io/csi/pv/pvc-1/globalmount", PlaceFor::Unstage),
        ("plugins/kubernetes.io/csi/volumeDevices/staging/pvc-1", PlaceFor::Unstage),
        (TARGET, PlaceFor::PublishFilesystem),
        (BLOCK, PlaceFor::PublishBlock),
        (KUBELETS_OWN, PlaceFor::Stats),
    ] {
        assert!(is_allowed(PlaceClass::Kubernetes, operation, path), "{path}");
    }
    for (path, operation) in [
        (TARGET, PlaceFor::Stage),
        (TARGET, PlaceFor::PublishBlock),
        (STAGING, PlaceFor::PublishFilesystem),
        (BLOCK, PlaceFor::PublishFilesystem),
        // Nothing is published or unpublished at kubelet's own bind of a raw volume.
        (KUBELETS_OWN, PlaceFor::PublishBlock),
        (KUBELETS_OWN, PlaceFor::Stage),
        ("plugins/kubernetes.io/csi/volumeDevices/pvc-1/data/5f0b", PlaceFor::Stats),
        ("pods/5f0b/volumes/kubernetes.io~empty-dir/x/mount", PlaceFor::PublishFilesystem),
        ("pods/5f0b/volumes/kubernetes.io~csi/pvc-1/mount/deeper", PlaceFor::PublishFilesystem),
        ("pods/5f0b/volumes/kubernetes.io~csi/pvc-1", PlaceFor::PublishFilesystem),
        ("plugins/kubernetes.io/csi", PlaceFor::Stage),
        // Nothing is staged in the directories of other drivers, in the directories above a
        // volume's, or where kubelet writes.
        ("plugins/kubernetes.io/csi/other.csi.example.com/0a1b2c/globalmount", PlaceFor::Stage),
        ("plugins/kubernetes.io/csi/ebs.csi.aws.com", PlaceFor::Stage),
        ("plugins/kubernetes.io/csi/ebs.csi.aws.com/0a1b2c", PlaceFor::Stage),
        ("plugins/kubernetes.io/csi/ebs.csi.aws.com/0a1b2c/globalmount/x", PlaceFor::Stage),
        ("plugins/kubernetes.io/csi/pv/pvc-1/globalmount", PlaceFor::Stage),
        ("plugins/kubernetes.io/csi/volumeDevices/staging/pvc-1", PlaceFor::Stage),
        ("plugins/other/socket", PlaceFor::Stage),
        ("pki/kubelet-client", PlaceFor::Stage),
    ] {
        assert!(!is_allowed(PlaceClass::Kubernetes, operation, path), "{path}");
    }
}

#[test]
fn any_class_is_limited_to_plugins_and_pods() {
    for operation in WRITING {
        for path in ["plugins/sanity/staging", "pods/x"] {
            assert!(is_allowed(PlaceClass::Any, operation, path));
            assert!(!is_allowed(PlaceClass::Kubernetes, operation, path));
        }
        for path in
            ["plugins", "pods", "pki/x", "config.yaml", "plugins_registry/x", "device-plugins/x"]
        {
            assert!(!is_allowed(PlaceClass::Any, operation, path), "{path}");
        }
    }
}

fn volume() -> VolumeId {
    VolumeId::parse("vol-0123456789abcdef0").expect("an id")
}

/// Returns each operation that names a path, with the given paths.
fn operations(staging: &KubeletPath, target: &KubeletPath, block: &KubeletPath) -> Vec<Operation> {
    vec![
        Operation::Stage(Stage {
            disk: fixtures::disk(Origin::Blank),
            staging: staging.clone(),
            fs: FsType::Ext4,
            read_only: false,
            flags: Vec::new(),
            format: Vec::new(),
        }),
        Operation::Unstage(Unstage { volume: volume(), staging: staging.clone() }),
        Operation::PublishFilesystem(PublishFilesystem {
            disk: fixtures::disk(Origin::Blank),
            staging: staging.clone(),
            target: target.clone(),
            read_only: false,
            flags: Vec::new(),
        }),
        Operation::PublishBlock(PublishBlock {
            disk: fixtures::disk(Origin::Blank),
            target: block.clone(),
            read_only: false,
        }),
        Operation::Unpublish(Unpublish { volume: volume(), target: target.clone() }),
        Operation::Unpublish(Unpublish { volume: volume(), target: block.clone() }),
        Operation::Expand(Expand {
            volume: volume(),
            path: staging.clone(),
            required_bytes: None,
            limit_bytes: None,
        }),
        Operation::Stats(Stats { volume: volume(), path: target.clone() }),
    ]
}

#[test]
fn operation_path_outside_allowed_places_is_refused() {
    let root = root();
    for operation in operations(&beneath(STAGING), &beneath(TARGET), &beneath(BLOCK)) {
        let checked = place::check(&operation, &root, PlaceClass::Kubernetes);
        assert_eq!(checked, Ok(()), "{operation:?}");
    }
    for elsewhere in
        ["/etc/passwd", "/var/lib/kubelet", "/var/lib/kubelet-2/pods/x", "/var/lib/kubelet/pki/x"]
    {
        let elsewhere = KubeletPath::parse(elsewhere).expect("a path");
        for operation in operations(&elsewhere, &elsewhere, &elsewhere) {
            let checked = place::check(&operation, &root, PlaceClass::Any);
            assert_eq!(checked, Err(Refusal::PathOutside), "{operation:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn kubernetes_places_are_subset_of_any(path in "[a-z]{1,8}(/[a-z~.]{1,12}[a-z]){0,6}", head in 0..3_usize) {
        let path = format!("{}{path}", ["", "plugins/", "pods/"][head]);
        for operation in WRITING {
            if is_allowed(PlaceClass::Kubernetes, operation, &path) {
                prop_assert!(is_allowed(PlaceClass::Any, operation, &path));
            }
        }
    }
}
