//! Invalid requests to publish, to expand and for statistics.

use ebs_csi_e2e::setting;
use ebs_csi_proto::csi;
use tonic::Code;

use crate::UNKNOWN_VOLUME;
use crate::node::OnNode;
use crate::refused::{judge, refused};

pub(crate) async fn publish_rows(
    on: &OnNode<'_>,
    unstaged: &std::path::Path,
    wrong: &mut Vec<String>,
) {
    use Code::{FailedPrecondition, InvalidArgument, NotFound};
    let kubelet = &on.setting.kubelets[0];
    let root = kubelet.root().display().to_string();
    let target = kubelet.target_path(&on.volume, "pod-1");
    std::fs::create_dir_all(target.parent().unwrap()).unwrap();
    let pods = kubelet.root().join("pods");
    let outside = on.setting.world.state_dir().join("outside");
    std::os::unix::fs::symlink(&outside, pods.join("linked")).unwrap();
    let good = csi::NodePublishVolumeRequest {
        volume_id: on.volume.id.clone(),
        publish_context: on.attachment.context.clone(),
        staging_target_path: kubelet.staging_path(&on.volume).to_str().unwrap().to_owned(),
        target_path: target.to_str().unwrap().to_owned(),
        volume_capability: Some(on.volume.capability()),
        ..Default::default()
    };
    let at =
        |path: &str| csi::NodePublishVolumeRequest { target_path: path.to_owned(), ..good.clone() };
    let word = &["target_path"][..];
    let before = setting::mounted_beneath(kubelet.root());
    for (expected, request) in [
        (refused("publish without a target", InvalidArgument, word), at("")),
        (
            refused("publish at a path with ..", InvalidArgument, word),
            at(&format!("{root}/pods/pod-1/volumes/kubernetes.io~csi/../../../../../etc/mount")),
        ),
        (
            refused("publish outside the kubelet directory", InvalidArgument, &["/etc"]),
            at("/etc/mount"),
        ),
        (
            refused("publish where no volume belongs", InvalidArgument, &["pki"]),
            at(&format!("{root}/pki/mount")),
        ),
        (
            refused("publish through a symbolic link", InvalidArgument, &["symbolic link"]),
            at(&format!("{root}/pods/linked/volumes/kubernetes.io~csi/pv/mount")),
        ),
        (
            refused("publish of what is not staged there", FailedPrecondition, &["stage"]),
            csi::NodePublishVolumeRequest {
                staging_target_path: unstaged.to_str().unwrap().to_owned(),
                ..good.clone()
            },
        ),
        (
            refused("publish of what is not attached", NotFound, &[UNKNOWN_VOLUME]),
            csi::NodePublishVolumeRequest { volume_id: UNKNOWN_VOLUME.to_owned(), ..good.clone() },
        ),
    ] {
        let answer = kubelet.node().node_publish_volume(request).await;
        wrong.extend(judge(answer, &expected));
        let after = setting::mounted_beneath(kubelet.root());
        if before != after {
            wrong.push(format!("{}: {before:?} became {after:?}", expected.what));
        }
        if target.exists() {
            wrong.push(format!("{}: made {}", expected.what, target.display()));
        }
    }
}
