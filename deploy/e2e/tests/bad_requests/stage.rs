//! Invalid requests to stage.

use csi::volume_capability::AccessType;
use ebs_csi_proto::csi;
use ebs_csi_sandbox::co::Claim;
use tonic::Code;

use crate::UNKNOWN_VOLUME;
use crate::node::OnNode;
use crate::refused::refused;

fn with_flags(request: &mut csi::NodeStageVolumeRequest, kind: &str, flags: &[&str]) {
    if let Some(AccessType::Mount(mount)) =
        request.volume_capability.as_mut().and_then(|capability| capability.access_type.as_mut())
    {
        mount.fs_type = kind.to_owned();
        mount.mount_flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    }
}

pub(crate) async fn stage_rows(on: &OnNode<'_>, wrong: &mut Vec<String>) {
    use Code::{FailedPrecondition, InvalidArgument, NotFound};
    let root = on.setting.kubelets[0].root().to_owned();
    let good = on.request();
    let at = |path: &str| csi::NodeStageVolumeRequest {
        staging_target_path: path.to_owned(),
        ..good.clone()
    };
    let inside = |path: &str| at(&format!("{}/{path}", root.display()));
    let csi_directory = root.join("plugins/kubernetes.io/csi/ebs.csi.aws.com");
    std::fs::create_dir_all(&csi_directory).unwrap();
    let outside = on.setting.world.state_dir().join("outside");
    std::fs::create_dir_all(outside.join("globalmount")).unwrap();
    std::os::unix::fs::symlink(&outside, csi_directory.join("link")).unwrap();
    let volume =
        |id: &str| csi::NodeStageVolumeRequest { volume_id: id.to_owned(), ..good.clone() };
    let flags = |kind: &str, flags: &[&str]| {
        let mut request = good.clone();
        with_flags(&mut request, kind, flags);
        request
    };
    let volume_context = |key: &str, value: &str| {
        let mut request = good.clone();
        request.volume_context.insert(key.to_owned(), value.to_owned());
        request
    };
    let publish_context = |key: &str, value: &str| {
        let mut request = good.clone();
        request.publish_context.insert(key.to_owned(), value.to_owned());
        request
    };
    let path = &["staging_target_path"][..];
    let outside_words = [outside.to_str().unwrap()];
    let rows = [
        (refused("stage without a volume", InvalidArgument, &["volume_id"]), volume("")),
        (refused("stage of what cannot be a volume", NotFound, &["my-disk"]), volume("my-disk")),
        (
            refused("stage of what is not attached", NotFound, &[UNKNOWN_VOLUME]),
            volume(UNKNOWN_VOLUME),
        ),
        (refused("stage without a path", InvalidArgument, path), at("")),
        (
            refused("stage at a relative path", InvalidArgument, path),
            at("plugins/kubernetes.io/csi/a"),
        ),
        (
            refused("stage at a path with ..", InvalidArgument, path),
            inside("plugins/kubernetes.io/csi/../../../../../etc/globalmount"),
        ),
        (
            refused("stage outside the kubelet directory", InvalidArgument, &outside_words),
            at(outside.join("globalmount").to_str().unwrap()),
        ),
        (
            refused("stage where no volume belongs", InvalidArgument, &["pki"]),
            inside("pki/globalmount"),
        ),
        (
            refused("stage through a symbolic link", InvalidArgument, &["symbolic link"]),
            inside("plugins/kubernetes.io/csi/ebs.csi.aws.com/link/globalmount"),
        ),
        (
            refused("stage without a capability", InvalidArgument, &["volume_capability"]),
            csi::NodeStageVolumeRequest { volume_capability: None, ..good.clone() },
        ),
        (
            refused("stage of a file system nobody makes", InvalidArgument, &["btrfs", "ext4"]),
            flags("btrfs", &[]),
        ),
        (
            refused(
                "stage with a flag that is not allowed",
                InvalidArgument,
                &["mount flag", "remove it"],
            ),
            flags("ext4", &["noatime", "loop"]),
        ),
        (
            refused("stage with a flag of another file system", InvalidArgument, &["mount flag"]),
            flags("ext4", &["nouuid"]),
        ),
        (
            refused("stage with a forbidden flag behind a comma", InvalidArgument, &["mount flag"]),
            flags("ext4", &["noatime,loop"]),
        ),
        (
            refused("stage with a block size that is not one", InvalidArgument, &["blocksize"]),
            volume_context("blocksize", "4096 -E x"),
        ),
        (
            refused("stage of a partition", InvalidArgument, &["partition"]),
            volume_context("partition", "-1"),
        ),
        (
            refused(
                "stage of a disk that is smaller than what was attached",
                FailedPrecondition,
                &["smaller", "a disk of 10737418240 bytes"],
            ),
            publish_context("ebs.csi.aws.com/size-bytes", "21474836480"),
        ),
        (
            refused(
                "stage of an empty disk that should have come from a snapshot",
                FailedPrecondition,
                &["snapshot"],
            ),
            publish_context("ebs.csi.aws.com/origin", "snapshot"),
        ),
    ];
    for (expected, request) in rows {
        on.stage(&expected, request, wrong).await;
    }
}

/// Attaches two volumes; the request for one of them names the device of the other.
pub(crate) async fn wrong_device(on: &OnNode<'_>, wrong: &mut Vec<String>) {
    let other = on
        .setting
        .must("create", on.setting.co.create(&Claim::filesystem("pvc-unattached", "ext4", 10)))
        .await;
    let request = csi::NodeStageVolumeRequest { volume_id: other.id.clone(), ..on.request() };
    on.stage(
        &refused("stage with the device of another volume", Code::NotFound, &[&other.id]),
        request,
        wrong,
    )
    .await;
    on.setting.must("delete", on.setting.co.delete(&other.id)).await;
}
