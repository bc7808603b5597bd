//! Directories of other drivers and of kubelet, and places that somebody else takes meanwhile.
use super::MIB;
use crate::attacks::row;
use crate::rig::{Rig, able, done, refused, staged, target, volume};
use ebs_csi_wire::{FsType, Operation, Refusal, Unstage};
use std::fs;

#[test]
fn a_volume_is_staged_where_kubelet_stages_it() {
    if !able() {
        return;
    }
    let rig = Rig::start_with(&["--paths", "kubernetes"]);
    let volume = volume();
    let attached = rig.attach(&volume, 64 * MIB);
    let csi = "plugins/kubernetes.io/csi";
    for place in [
        // Over another driver's staging directories.
        "other.csi.example.com/0a1b/globalmount",
        "other.csi.example.com",
        "volumeDevices/staging/pvc-of-another",
        "pv/pvc-of-another/globalmount",
        // Over everything that is staged or published raw.
        "ebs.csi.aws.com",
        "volumeDevices",
        "volumeDevices/publish",
        "pv",
        // Where kubelet writes vol_data.json, which a volume may have as a link.
        "ebs.csi.aws.com/0a1b",
        "volumeDevices/pvc-1/data",
        "pv/pvc-1",
        // Beneath what is staged.
        "ebs.csi.aws.com/0a1b/globalmount/deeper",
    ] {
        let mut asked = rig.staging(&volume, FsType::Ext4);
        asked.staging = rig.kubelet(&format!("{csi}/{place}"));
        assert_eq!(
            refused(rig.ask(Operation::Stage(asked))),
            Refusal::PathOutside,
            "{place}"
        );
    }
    assert_eq!(rig.mounts(&attached), 0);
    staged(rig.stage(&volume, FsType::Ext4));
    done(rig.publish(&volume, "p"));
    done(rig.unpublish(&volume, &target(&volume, "p")));
    done(rig.unstage(&volume));
    // A raw volume is not staged, but kubelet has it unstaged; an older kubelet staged elsewhere.
    for place in ["volumeDevices/staging/pvc-1", "pv/pvc-1/globalmount"] {
        let path = format!("{csi}/{place}");
        fs::create_dir_all(rig.path("kubelet").join(&path)).expect("mkdir");
        done(rig.ask(Operation::Unstage(Unstage {
            volume: volume.clone(),
            staging: rig.kubelet(&path),
        })));
        assert!(!rig.path("kubelet").join(&path).exists());
    }
    row(
        "F5",
        "stage over other drivers' directories, over all staging paths, and where kubelet writes",
        "refused as outside: only <driver>/<hash>/globalmount is a place for it",
    );
}
