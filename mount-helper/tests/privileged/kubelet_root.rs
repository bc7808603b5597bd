//! A kubelet root as on real nodes.
use crate::rig::{Rig, done, staged, staging, target, told};
use ebs_csi_wire::{
    FsType, Inspect, KubeletPath, Observation, Operation, Outcome, Unpublish, Unstage,
};

const MIB: u64 = 1 << 20;

/// Some nodes keep kubelet's directory on another disk, behind a link. The mount table contains no
/// links.
#[test]
fn symlinked_kubelet_root_serves_and_reports_link_paths() {
    let Some(mut rig) = Rig::start() else { return };
    rig.stop();
    let link = rig.path("link");
    std::os::unix::fs::symlink(rig.path("kubelet"), &link).expect("symlink");
    rig.run(&["--kubelet-root", link.to_str().expect("utf-8")]);
    let by_link = |relative: &str| {
        let path = link.join(relative);
        KubeletPath::parse(path.to_str().expect("utf-8")).expect("a path")
    };
    let (volume, _attached) = rig.new_disk(64 * MIB);
    let (stage_at, show_at) = (by_link(&staging(&volume)), by_link(&target(&volume, "p")));
    let mut stage = rig.staging(&volume, FsType::Ext4);
    stage.staging = stage_at.clone();
    assert!(staged(rig.ask(Operation::Stage(stage))).formatted);
    let mut publish = rig.publishing(&volume, "p");
    publish.staging = stage_at.clone();
    publish.target = show_at.clone();
    assert!(!done(rig.ask(Operation::PublishFilesystem(publish))));
    let Outcome::Inventory(held) = rig.ask(Operation::Inspect(Inspect::default())) else {
        panic!("inventory expected");
    };
    let paths: Vec<_> = held.volumes.into_iter().map(|held| held.path).collect();
    assert_eq!(paths, [stage_at.clone(), show_at.clone()]);
    let unstage = || {
        rig.ask(Operation::Unstage(Unstage { volume: volume.clone(), staging: stage_at.clone() }))
    };
    let told = told(unstage());
    assert_eq!(told.seen, Some(Observation::MountedAt(show_at.clone())));
    assert!(!done(
        rig.ask(Operation::Unpublish(Unpublish { volume: volume.clone(), target: show_at }))
    ));
    assert!(!done(unstage()));
}
