//! PersistentVolumes and StorageClasses: what the driver's node and controller services refuse of
//! them.

use std::collections::HashMap;

use ebs_csi_parameters::{VolumeParameters, check_tag};
use ebs_csi_policy::flag;
use ebs_csi_proto::{DRIVER_NAME, Failure};
use ebs_csi_wire::{FsType, VolumeId};
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;

use super::{Finding, Severity};

/// The in-tree provisioner, whose volumes Kubernetes passes to this driver.
const IN_TREE: &str = "kubernetes.io/aws-ebs";
/// Prefix of the handles of node-local disks.
const NODE_LOCAL: &str = "local-ebs://";

pub(super) fn volumes(ours: &[Volume]) -> Vec<Finding> {
    let findings = ours.iter().flat_map(Volume::judge).collect();
    or_fine("PersistentVolume", ours.len(), findings)
}

/// Returns the findings; without any, the finding that all objects can be used.
fn or_fine(kind: &'static str, count: usize, mut findings: Vec<Finding>) -> Vec<Finding> {
    if findings.is_empty() {
        let says = format!("{count} of this driver, all can be used");
        findings.push(Finding::fine(kind, says));
    }
    findings
}

pub(super) fn classes(all: &[StorageClass]) -> Vec<Finding> {
    let is_ours =
        |class: &&StorageClass| class.provisioner == DRIVER_NAME || class.provisioner == IN_TREE;
    let ours: Vec<_> = all.iter().filter(is_ours).collect();
    let findings = ours.iter().flat_map(|class| judge_class(class)).collect();
    or_fine("StorageClass", ours.len(), findings)
}

/// A volume of this driver, including a volume in the in-tree form.
pub(super) struct Volume {
    name: String,
    handle: String,
    fs_type: Option<String>,
    is_block: bool,
    options: Vec<String>,
}

impl Volume {
    pub(super) fn of(object: &PersistentVolume) -> Option<Self> {
        let spec = object.spec.as_ref()?;
        let (handle, fs_type) = match (&spec.csi, &spec.aws_elastic_block_store) {
            (Some(csi), _) if csi.driver == DRIVER_NAME => {
                (csi.volume_handle.clone(), csi.fs_type.clone())
            }
            (None, Some(in_tree)) => {
                // `aws://us-east-1a/vol-0123456789abcdef0`, or the id alone.
                let id = in_tree.volume_id.rsplit('/').next().unwrap_or_default();
                (id.to_owned(), in_tree.fs_type.clone())
            }
            _ => return None,
        };
        Some(Self {
            name: object.name_any(),
            handle,
            fs_type,
            is_block: spec.volume_mode.as_deref() == Some("Block"),
            options: spec.mount_options.clone().unwrap_or_default(),
        })
    }

    fn judge(&self) -> Vec<Finding> {
        let finding = |severity, says: String, next: &str| Finding {
            severity,
            kind: "PersistentVolume",
            name: self.name.clone(),
            says,
            next: next.to_owned(),
        };
        let mut findings = Vec::new();
        if self.handle.starts_with(NODE_LOCAL) {
            findings.push(finding(
                Severity::Noted,
                format!("its handle {:?} names a disk of the node itself", self.handle),
                "start the controller with --enable-node-local-volumes",
            ));
        } else if VolumeId::parse(&self.handle).is_err() {
            findings.push(finding(
                Severity::Refused,
                format!("its handle {:?} is not an EBS volume's id", self.handle),
                "make a PersistentVolume whose handle is vol-…, or delete this one",
            ));
        }
        if self.is_block {
            return findings;
        }
        let next = "make a PersistentVolume for the same handle that this driver takes";
        let refused = mount_refusal(self.fs_type.as_deref(), &self.options);
        findings.extend(refused.map(|says| finding(Severity::Refused, says, next)));
        findings
    }
}

fn judge_class(class: &StorageClass) -> Vec<Finding> {
    let finding = |says, next: &str| Finding {
        severity: Severity::Refused,
        kind: "StorageClass",
        name: class.name_any(),
        says,
        next: next.to_owned(),
    };
    let mut given = class.parameters.iter().flatten();
    let fs_type = given.find(|(key, _)| {
        matches!(key.to_ascii_lowercase().as_str(), "csi.storage.k8s.io/fstype" | "fstype")
    });
    let fs_type = fs_type.map(|(_, value)| value.as_str());
    let options = class.mount_options.as_deref().unwrap_or_default();
    let next = "make a class without it; volumes that were made by this one keep it";
    let refused = mount_refusal(fs_type, options);
    let mut findings: Vec<_> = refused.map(|says| finding(says, next)).into_iter().collect();
    if let Err(refused) = judge_parameters(class, file_system(fs_type).ok()) {
        let next = "make a class as deploy/docs/parameters.md says; this one's volumes stay";
        findings.push(finding(refused.text().to_owned(), next));
    }
    findings
}

/// Returns what CreateVolume answers to the parameters of a class, unless it accepts them.
fn judge_parameters(class: &StorageClass, fs: Option<FsType>) -> Result<(), Failure> {
    let class = VolumeParameters::parse(&of_create_volume(class))?;
    fs.map_or(Ok(()), |fs| class.format.check_for(fs))?;
    class.tags.iter().try_for_each(|tag| check_tag("parameters", tag))
}

/// Returns the parameters that CreateVolume gets for a class: external-provisioner removes those
/// with its own prefix, and translates those of the in-tree provisioner
/// (k8s.io/csi-translation-lib, `TranslateInTreeStorageClassToCSI`).
fn of_create_volume(class: &StorageClass) -> HashMap<String, String> {
    let mut parameters = HashMap::new();
    for (key, value) in class.parameters.iter().flatten() {
        if class.provisioner == IN_TREE {
            match key.to_ascii_lowercase().as_str() {
                "fstype" | "zone" | "zones" => continue,
                "iopspergb" => {
                    parameters.insert("allowautoiopspergbincrease".to_owned(), "true".to_owned());
                }
                _ => {}
            }
        }
        if !key.starts_with("csi.storage.k8s.io/") {
            parameters.insert(key.clone(), value.clone());
        }
    }
    parameters
}

/// Returns what the node service refuses of a file system and its mount options.
fn mount_refusal(fs_type: Option<&str>, options: &[String]) -> Option<String> {
    match file_system(fs_type) {
        Ok(fs) => flag::parse(options, &[fs], false).err().map(|error| error.to_string()),
        Err(error) => Some(error),
    }
}

fn file_system(fs_type: Option<&str>) -> Result<FsType, String> {
    match fs_type.unwrap_or_default() {
        "" => Ok(FsType::Ext4),
        name => FsType::parse(name).map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn judge(spec: Value) -> Vec<Finding> {
        let object = json!({"metadata": {"name": "pv"}, "spec": spec});
        let object = serde_json::from_value(object).unwrap();
        volumes(&Volume::of(&object).into_iter().collect::<Vec<_>>())
    }

    fn volume(csi: Value, more: Value) -> Vec<Finding> {
        let mut spec = more;
        spec["csi"] = csi;
        judge(spec)
    }

    fn ours(handle: &str, fs_type: &str) -> Value {
        json!({"driver": DRIVER_NAME, "volumeHandle": handle, "fsType": fs_type})
    }

    #[test]
    fn unusable_persistent_volume_is_refused_with_reason() {
        const GOOD: &str = "vol-0123456789abcdef0";
        let other = json!({"driver": "other.example.com", "volumeHandle": "x"});
        let rows = [
            (ours(GOOD, ""), json!({}), Severity::Fine, "1 of this driver"),
            (
                ours(GOOD, "xfs"),
                json!({"mountOptions": ["noatime,nouuid"]}),
                Severity::Fine,
                "1 of",
            ),
            (ours("vol-1", "ext4"), json!({}), Severity::Refused, "vol-1"),
            (ours("local-ebs://dev/xvdbz", "ext4"), json!({}), Severity::Noted, "local-ebs"),
            (ours(GOOD, "ntfs"), json!({}), Severity::Refused, "ntfs"),
            (ours(GOOD, "ntfs"), json!({"volumeMode": "Block"}), Severity::Fine, "1 of"),
            (ours(GOOD, "ext4"), json!({"mountOptions": ["noload"]}), Severity::Refused, "journal"),
            (ours(GOOD, "xfs"), json!({"mountOptions": ["ro", "norecovery"]}), Severity::Fine, "1"),
            (
                ours(GOOD, "ext4"),
                json!({"mountOptions": ["no_such"]}),
                Severity::Refused,
                "no_such",
            ),
            (ours(GOOD, "ext4"), json!({"mountOptions": ["a b"]}), Severity::Refused, "a b"),
            (other, json!({}), Severity::Fine, "0 of this driver"),
        ];
        for (csi, more, severity, word) in rows {
            let found = volume(csi.clone(), more);
            assert_eq!(found.len(), 1, "{csi}: {found:?}");
            assert_eq!(found[0].severity, severity, "{csi}: {found:?}");
            assert!(found[0].says.contains(word), "{csi}: {found:?}");
        }
    }

    #[test]
    fn in_tree_volumes_are_judged_by_their_id() {
        let of = |id: &str| {
            judge(json!({"awsElasticBlockStore": {"volumeID": id, "fsType": "ext4"}}))[0].severity
        };
        assert_eq!(of("aws://us-east-1a/vol-0123456789abcdef0"), Severity::Fine);
        assert_eq!(of("aws://us-east-1a/disk-1"), Severity::Refused);
    }

    /// The check covers the classes of this driver and of the in-tree plugin.
    #[test]
    fn only_ebs_storage_classes_can_be_refused() {
        let class = |provisioner: &str, fs_type: &str, options: Value| {
            let object = json!({"metadata": {"name": "c"}, "provisioner": provisioner,
                "parameters": {"csi.storage.k8s.io/fstype": fs_type}, "mountOptions": options});
            classes(&[serde_json::from_value(object).unwrap()])
        };
        assert_eq!(class(DRIVER_NAME, "XFS", json!(["discard"]))[0].severity, Severity::Fine);
        assert_eq!(class(DRIVER_NAME, "ext2", json!([]))[0].severity, Severity::Refused);
        assert_eq!(class(IN_TREE, "ext4", json!(["rbind"]))[0].severity, Severity::Refused);
        assert_eq!(class("other", "ext2", json!(["rbind"]))[0].severity, Severity::Fine);
    }

    fn with_parameters(provisioner: &str, parameters: Value) -> Finding {
        let object = json!({"metadata": {"name": "c"}, "provisioner": provisioner,
            "parameters": parameters});
        let mut found = classes(&[serde_json::from_value(object).unwrap()]);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    #[test]
    fn class_that_create_volume_refuses_is_reported() {
        for (parameters, text) in [
            (
                json!({"encrypted": "True"}),
                "parameters.encrypted: \"True\" is neither \"true\" nor",
            ),
            (json!({"iops": "lots"}), "parameters.iops: \"lots\" is not a whole number from 0 to"),
            (
                json!({"sype": "gp3"}),
                "parameters: \"sype\" is not a parameter of this driver; known are",
            ),
            (json!({"iops": "3000", "iopsPerGB": "5"}), "parameters: iops and iopsPerGB exclude"),
            (
                json!({"csi.storage.k8s.io/fstype": "xfs", "bytesPerInode": "8192"}),
                "parameters: bytesPerInode is not an option of xfs",
            ),
            (
                json!({"inodeSize": "300"}),
                "parameters: inodeSize is 300, it must be a power of two",
            ),
            (
                json!({"tagSpecification_1": "CSIVolumeName=x"}),
                "parameters.tagSpecification: the tag \"CSIVolumeName\" is the driver's own",
            ),
            (
                json!({"tagSpecification_1": "a={{ range .PVCName }}{{ end }}"}),
                "parameters.tagSpecification: \"a={{ range .PVCName }}{{ end }}\": ",
            ),
        ] {
            for provisioner in [DRIVER_NAME, IN_TREE] {
                let found = with_parameters(provisioner, parameters.clone());
                assert_eq!(found.severity, Severity::Refused, "{parameters}: {found:?}");
                assert!(found.says.starts_with(text), "{parameters}: {found:?}");
            }
            let other = with_parameters("other", parameters);
            assert_eq!(other.severity, Severity::Fine, "{other:?}");
        }
    }

    #[test]
    fn parameters_that_create_volume_accepts_are_fine() {
        let parameters = json!({"type": "gp3", "Encrypted": "true", "iopsPerGB": "5",
            "fsType": "xfs", "inodeSize": "512", "tagSpecification_1": "a={{ .PVCName }}",
            "csi.storage.k8s.io/provisioner-secret-name": "s"});
        for provisioner in [DRIVER_NAME, IN_TREE] {
            let found = with_parameters(provisioner, parameters.clone());
            assert_eq!(found.severity, Severity::Fine, "{found:?}");
        }
        // Migration makes the zones a topology of the class.
        let zones = json!({"zones": "us-east-1a,us-east-1b", "Zone": "us-east-1a"});
        let found = with_parameters(IN_TREE, zones.clone());
        assert_eq!(found.severity, Severity::Fine, "{found:?}");
        let found = with_parameters(DRIVER_NAME, zones);
        assert_eq!(found.severity, Severity::Refused, "{found:?}");
    }

    /// Migration adds the parameter by which the driver raises too few IOPS.
    #[test]
    fn migrated_ratio_with_own_raise_is_refused() {
        let parameters = json!({"iopsPerGB": "5", "allowAutoIOPSPerGBIncrease": "true"});
        let found = with_parameters(IN_TREE, parameters.clone());
        assert!(found.says.contains("allowautoiopspergbincrease is given twice"), "{found:?}");
        let found = with_parameters(DRIVER_NAME, parameters);
        assert_eq!(found.severity, Severity::Fine, "{found:?}");
    }
}
