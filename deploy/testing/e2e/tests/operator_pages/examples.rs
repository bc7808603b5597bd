//! `deploy/install/examples`: whole manifests, and READMEs whose commands
//! `deploy/testing/clusters/scenarios/examples.py` can run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ebs_csi_e2e::repository::entries;
use serde_json::Value;

use crate::read;

/// Returns the folders of examples.
fn folders() -> Vec<PathBuf> {
    let paths = entries("deploy/install/examples").into_iter().map(|(_, path)| path);
    let folders: Vec<PathBuf> = paths.filter(|path| path.is_dir()).collect();
    assert!(folders.len() >= 13, "{}", folders.len());
    folders
}

/// Returns the names of a folder's manifests, and their objects; not what kubectl makes from a
/// template.
fn manifests(folder: &Path) -> (BTreeSet<String>, Vec<Value>) {
    let (mut names, mut objects) = (BTreeSet::new(), Vec::new());
    for entry in std::fs::read_dir(folder).expect("an example") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name == "README.md" || name.ends_with(".gotmpl") {
            continue;
        }
        assert!(name.ends_with(".yaml"), "{}: no manifest", path.display());
        let text = std::fs::read_to_string(&path).expect("a manifest");
        for document in text.split("---\n") {
            objects.push(serde_saphyr::from_str(document).expect("YAML"));
        }
        names.insert(name.into_owned());
    }
    (names, objects)
}

#[test]
fn examples_name_only_their_own_objects() {
    for folder in folders() {
        let shown = folder.display();
        let (_, objects) = manifests(&folder);
        let own = |kind: &str, name: &Value| {
            let mut all = objects.iter();
            all.any(|it| it["kind"] == kind && it["metadata"]["name"] == *name)
        };
        let mut seen = 0;
        for object in &objects {
            assert!(object["metadata"]["namespace"].is_null(), "{shown}: a namespace");
            let spec = &object["spec"];
            let templates = spec["volumeClaimTemplates"].as_array();
            let claims = templates.into_iter().flatten().map(|it| &it["spec"]);
            for claim in claims.chain([spec]) {
                let class = &claim["storageClassName"];
                if !class.is_null() && class != "" {
                    assert!(own("StorageClass", class), "{shown}: {class}");
                    seen += 1;
                }
                let attributes = &claim["volumeAttributesClassName"];
                assert!(
                    attributes.is_null() || own("VolumeAttributesClass", attributes),
                    "{shown}"
                );
            }
            let pod = match object["kind"] == "Pod" {
                true => spec,
                false => &spec["template"]["spec"],
            };
            for volume in pod["volumes"].as_array().into_iter().flatten() {
                let claim = &volume["persistentVolumeClaim"]["claimName"];
                let is_own = own("PersistentVolumeClaim", claim);
                assert!(volume["ephemeral"].is_object() || is_own, "{shown}: {claim}");
                seen += 1;
            }
        }
        assert!(seen > 0, "{shown}: nothing is used");
    }
}

/// Each manifest is applied by a command, each command names what exists, and the last but those
/// of claims deletes.
#[test]
fn readme_commands_apply_and_delete_manifests() {
    let overview = read("deploy/install/examples/README.md");
    for folder in folders() {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let readme = std::fs::read_to_string(folder.join("README.md")).expect("its README");
        assert!(overview.contains(&format!("[{name}]({name}/README.md)")), "{name}");
        let commands = readme.lines().filter_map(|line| line.strip_prefix("    "));
        let commands: Vec<&str> = commands.collect();
        let path = format!("deploy/install/examples/{name}");
        let applied = |target: &str| {
            let command = format!("kubectl apply -f {target}");
            commands.iter().any(|line| *line == command)
        };
        for command in &commands {
            let verb = command.split(' ').nth(1).unwrap_or_default();
            let known = ["apply", "wait", "rollout", "exec", "logs", "patch", "get", "delete"];
            let is_known = command.starts_with("kubectl ") && known.contains(&verb);
            assert!(is_known, "{name}: {command}");
        }
        for manifest in manifests(&folder).0 {
            let whole = applied(&path) || applied(&format!("{path}/{manifest}"));
            assert!(whole, "{name}: {manifest} is not applied");
        }
        let delete = format!("kubectl delete -f {path}");
        let is_deleted = commands.iter().any(|line| line.starts_with(&delete));
        assert!(is_deleted, "{name}: not deleted");
        let waits = ["kubectl wait ", "kubectl rollout "];
        let is_wait = |line: &&str| waits.iter().any(|it| line.starts_with(it));
        assert!(commands.iter().any(is_wait), "{name} waits for nothing");
    }
}
