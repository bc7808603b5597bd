//! A kubelet root as on real nodes.
use crate::rig::{MIB, Rig, done, refusal, staged, staging, target, text};
use ebs_csi_wire::{FsType, KubeletPath, Observation, Operation, Unpublish, Unstage};

/// Some nodes keep kubelet's directory on another disk, behind a link. The mount table contains no
/// links.
#[test]
fn symlinked_kubelet_root_serves_and_reports_link_paths() {
    let Some(mut rig) = Rig::start() else { return };
    rig.stop();
    let link = rig.path("link");
    std::os::unix::fs::symlink(rig.path("kubelet"), &link).expect("symlink");
    rig.run(&["--kubelet-root", text(&link)]);
    let by_link = |relative: &str| KubeletPath::parse(text(&link.join(relative))).expect("a path");
    let (volume, _attached) = rig.new_disk(64 * MIB);
    let (stage_at, show_at) = (by_link(&staging(&volume)), by_link(&target(&volume, "p")));
    assert!(
        staged(rig.stage_with(&volume, FsType::Ext4, |request| request.staging = stage_at.clone()))
            .formatted
    );
    assert!(!done(rig.publish_with(&volume, "p", |request| {
        (request.staging, request.target) = (stage_at.clone(), show_at.clone());
    })));
    let held = rig.inventory();
    let paths: Vec<_> = held.volumes.into_iter().map(|held| held.path).collect();
    assert_eq!(paths, [stage_at.clone(), show_at.clone()]);
    let unstage = || {
        rig.call(Operation::Unstage(Unstage { volume: volume.clone(), staging: stage_at.clone() }))
    };
    let told = refusal(unstage());
    assert_eq!(told.seen, Some(Observation::MountedAt(show_at.clone())));
    assert!(!done(
        rig.call(Operation::Unpublish(Unpublish { volume: volume.clone(), target: show_at }))
    ));
    assert!(!done(unstage()));
}
