//! Invalid requests to publish.

use ebs_csi_proto::csi;
use tonic::Code::{FailedPrecondition, InvalidArgument, NotFound};

use crate::UNKNOWN_VOLUME;
use crate::node::OnNode;
use crate::refused::{Differences, Row};

pub(crate) async fn publish_rows(
    on: &OnNode<'_>,
    unstaged: &std::path::Path,
    wrong: &mut Differences<'_>,
) {
    let kubelet = &on.fixture.kubelets[0];
    let root = kubelet.root().display();
    let target = kubelet.target_path(&on.volume, "pod-1");
    std::fs::create_dir_all(target.parent().unwrap()).unwrap();
    let outside = on.fixture.world.state_dir().join("outside");
    std::os::unix::fs::symlink(&outside, kubelet.root().join("pods/linked")).unwrap();
    let good = csi::NodePublishVolumeRequest {
        volume_id: on.volume.id.clone(),
        publish_context: on.attachment.context.clone(),
        staging_target_path: kubelet.staging_path(&on.volume).to_str().unwrap().to_owned(),
        target_path: target.to_str().unwrap().to_owned(),
        volume_capability: Some(on.volume.capability()),
        ..Default::default()
    };
    let at = |path: &str| {
        let target_path = path.replace("ROOT", &root.to_string());
        csi::NodePublishVolumeRequest { target_path, ..good.clone() }
    };
    let dots = at("ROOT/pods/pod-1/volumes/kubernetes.io~csi/../../../../../etc/mount");
    let link = at("ROOT/pods/linked/volumes/kubernetes.io~csi/pv/mount");
    let (mut not_staged, mut unknown) = (good.clone(), good.clone());
    not_staged.staging_target_path = unstaged.to_str().unwrap().to_owned();
    unknown.volume_id = UNKNOWN_VOLUME.to_owned();
    let rows: [Row<'_, _>; 7] = [
        ("without a target", InvalidArgument, &["target_path"], at("")),
        ("at a path with ..", InvalidArgument, &["target_path"], dots),
        ("outside the kubelet directory", InvalidArgument, &["/etc"], at("/etc/mount")),
        ("where no volume belongs", InvalidArgument, &["pki"], at("ROOT/pki/mount")),
        ("through a symbolic link", InvalidArgument, &["symbolic link"], link),
        ("of what is not staged there", FailedPrecondition, &["stage"], not_staged),
        ("of what is not attached", NotFound, &[UNKNOWN_VOLUME], unknown),
    ];
    let send = async |request| {
        let answer = kubelet.node().node_publish_volume(request).await;
        assert!(!target.exists(), "{} was made", target.display());
        answer
    };
    on.send("publish", rows, send, wrong).await;
}
