//! Invalid requests to stage.

use csi::volume_capability::AccessType;
use ebs_csi_proto::csi;
use tonic::Code::{FailedPrecondition, InvalidArgument, NotFound};

use crate::UNKNOWN_VOLUME;
use crate::node::OnNode;
use crate::refused::{Differences, Row};

/// Sends invalid requests; `unattached` is the id of a volume that is on no node.
pub(crate) async fn stage_rows(on: &OnNode<'_>, unattached: &str, wrong: &mut Differences<'_>) {
    let root = on.fixture.kubelets[0].root().to_owned();
    let csi_directory = root.join("plugins/kubernetes.io/csi/ebs.csi.aws.com");
    std::fs::create_dir_all(&csi_directory).unwrap();
    let outside = on.fixture.world.state_dir().join("outside");
    let mount_outside = outside.join("globalmount");
    std::fs::create_dir_all(&mount_outside).unwrap();
    std::os::unix::fs::symlink(&outside, csi_directory.join("link")).unwrap();
    let (outside, mount_outside) = (outside.to_str().unwrap(), mount_outside.to_str().unwrap());

    let with = |change: &dyn Fn(&mut csi::NodeStageVolumeRequest)| {
        let mut request = on.request();
        change(&mut request);
        request
    };
    let at = |path: &str| with(&|request| request.staging_target_path = path.to_owned());
    let inside = |path: &str| at(&format!("{}/{path}", root.display()));
    let volume = |id: &str| with(&|request| request.volume_id = id.to_owned());
    let flags = |kind: &str, flags: &[&str]| {
        with(&|request| {
            let capability = request.volume_capability.as_mut().expect("a capability");
            let Some(AccessType::Mount(mount)) = &mut capability.access_type else { return };
            mount.fs_type = kind.to_owned();
            mount.mount_flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        })
    };
    let volume_context = |key: &str, value: &str| {
        with(&|request| drop(request.volume_context.insert(key.to_owned(), value.to_owned())))
    };
    let publish_context = |key: &str, value: &str| {
        let key = format!("ebs.csi.aws.com/{key}");
        with(&|request| drop(request.publish_context.insert(key.clone(), value.to_owned())))
    };
    let path: &[&str] = &["staging_target_path"];
    let dots = inside("plugins/kubernetes.io/csi/../../../../../etc/globalmount");
    let link = inside("plugins/kubernetes.io/csi/ebs.csi.aws.com/link/globalmount");
    let no_capability = with(&|request| request.volume_capability = None);
    let block_size = volume_context("blocksize", "4096 -E x");
    let smaller = publish_context("size-bytes", "21474836480");
    let smaller_words: &[&str] = &["smaller", "a disk of 10737418240 bytes"];
    let blank = publish_context("origin", "snapshot");
    let denied_flag = flags("ext4", &["noatime", "loop"]);
    let behind_comma = flags("ext4", &["noatime,loop"]);
    let rows: [Row<'_, _>; 19] = [
        ("without a volume", InvalidArgument, &["volume_id"], volume("")),
        ("of an invalid volume id", NotFound, &["my-disk"], volume("my-disk")),
        ("of what is not attached", NotFound, &[UNKNOWN_VOLUME], volume(UNKNOWN_VOLUME)),
        ("with another's device", NotFound, &[unattached], volume(unattached)),
        ("without a path", InvalidArgument, path, at("")),
        ("at a relative path", InvalidArgument, path, at("plugins/kubernetes.io/csi/a")),
        ("at a path with ..", InvalidArgument, path, dots),
        ("outside the kubelet directory", InvalidArgument, &[outside], at(mount_outside)),
        ("where no volume belongs", InvalidArgument, &["pki"], inside("pki/globalmount")),
        ("through a symbolic link", InvalidArgument, &["symbolic link"], link),
        ("without a capability", InvalidArgument, &["volume_capability"], no_capability),
        ("of an unknown file system", InvalidArgument, &["btrfs", "ext4"], flags("btrfs", &[])),
        ("with a denied flag", InvalidArgument, &["mount flag", "remove it"], denied_flag),
        ("with another's flag", InvalidArgument, &["mount flag"], flags("ext4", &["nouuid"])),
        ("with a denied flag behind a comma", InvalidArgument, &["mount flag"], behind_comma),
        ("with an invalid block size", InvalidArgument, &["blocksize"], block_size),
        ("of a partition", InvalidArgument, &["partition"], volume_context("partition", "-1")),
        ("of a disk smaller than attached", FailedPrecondition, smaller_words, smaller),
        ("of a blank disk from a snapshot", FailedPrecondition, &["snapshot"], blank),
    ];
    on.stage(rows, wrong).await;
}
