//! Requests to stage and publish that must be refused: checks the code, the message, and that
//! nothing has changed. `controller/tests/csi/refuse.rs` has those to the controller.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use csi::volume_capability::AccessType;
use ebs_csi_e2e::{Fixture, digest};
use ebs_csi_proto::csi;
use ebs_csi_sandbox::co::{Attachment, Claim, Volume};
use ebs_csi_sandbox::pod_view;
use tonic::Code::{FailedPrecondition, InvalidArgument, NotFound};
use tonic::{Code, Response, Status};

const UNKNOWN_VOLUME: &str = "vol-0123456789abcdef0";

/// What is wrong with a request, the expected code, the words that the message must contain in any
/// case, and the request.
type Row<'a, R> = (&'a str, Code, &'a [&'a str], R);

/// An unstaged volume attached to node 0, and the differences from the expected refusals.
struct OnNode<'a> {
    fixture: &'a Fixture,
    volume: Volume,
    attachment: Attachment,
    mark: u64,
    wrong: Vec<String>,
}

impl OnNode<'_> {
    fn state(&self) -> (String, Vec<PathBuf>) {
        let image = format!("ec2/volumes/{}.img", self.volume.id);
        let image = self.fixture.world.state_dir().join(image);
        let mounts = pod_view::mounts_beneath(self.fixture.kubelets[0].root());
        (digest::of_disk(&image), mounts.unwrap())
    }

    fn request(&self) -> csi::NodeStageVolumeRequest {
        self.fixture.kubelets[0].stage_request(&self.volume, &self.attachment).unwrap()
    }

    /// Sends requests that must be refused. Checks the answers, and after each that nothing is
    /// mounted and that EC2 and the disk are unchanged.
    async fn send<'r, R, T: Debug>(
        &mut self,
        rpc: &str,
        rows: impl IntoIterator<Item = Row<'r, R>>,
        send: impl AsyncFn(R) -> Result<Response<T>, Status>,
    ) {
        let before = self.state();
        for (what, code, words, request) in rows {
            let what = format!("{rpc} {what}");
            self.judge(send(request).await, &what, code, words);
            let after = self.state();
            if before != after {
                self.wrong.push(format!("{what}: {before:?} became {after:?}"));
            }
            let effective = self.fixture.ec2().effective(self.mark).await.unwrap();
            if !effective.is_empty() {
                self.wrong.push(format!("{what}: EC2 was changed: {effective:?}"));
            }
        }
    }

    fn judge<T: Debug>(
        &mut self,
        answer: Result<Response<T>, Status>,
        what: &str,
        code: Code,
        words: &[&str],
    ) {
        let status = match answer {
            Err(status) => status,
            Ok(reply) => {
                return self.wrong.push(format!("{what}: was not refused: {:?}", reply.get_ref()));
            }
        };
        let (got, message) = (status.code(), status.message());
        println!("{what}: {got:?}: {message}");
        if got != code {
            self.wrong.push(format!("{what}: {got:?}, not {code:?}: {message}"));
        }
        for word in words {
            if !message.to_lowercase().contains(&word.to_lowercase()) {
                self.wrong.push(format!("{what}: the message does not say {word:?}: {message}"));
            }
        }
    }
    async fn stage<'r>(
        &mut self,
        rows: impl IntoIterator<Item = Row<'r, csi::NodeStageVolumeRequest>>,
    ) {
        let node = self.fixture.kubelets[0].node();
        self.send("stage", rows, async |it| node.clone().node_stage_volume(it).await).await;
    }
}

#[tokio::test]
async fn bad_node_requests_are_refused_and_change_nothing() {
    let Some(fixture) = Fixture::start().await else { return };
    let (volume, attachment) = fixture.attached(&Claim::filesystem("pvc-node", "ext4", 10)).await;
    let unattached = Claim::filesystem("pvc-unattached", "ext4", 10);
    let unattached = fixture.must("create", fixture.co.create(&unattached)).await;
    let kubelet = &fixture.kubelets[0];
    fixture.must("a staging directory", async { kubelet.prepare_stage(&volume) }).await;
    let mark = fixture.ec2().last().await.unwrap();
    let mut on = OnNode {
        fixture: &fixture,
        volume: volume.clone(),
        attachment: attachment.clone(),
        mark,
        wrong: Vec::new(),
    };
    stage_rows(&mut on, &unattached.id).await;
    fixture.must("stage", kubelet.stage(&volume, &attachment)).await;
    let elsewhere =
        kubelet.root().join("plugins/kubernetes.io/csi/ebs.csi.aws.com/elsewhere/globalmount");
    std::fs::create_dir_all(&elsewhere).unwrap();
    let mut request = on.request();
    request.staging_target_path = elsewhere.to_str().unwrap().to_owned();
    let path = kubelet.staging_path(&volume);
    let words: &[&str] = &["another path", "unstage", path.to_str().unwrap()];
    on.stage([("at a second path", FailedPrecondition, words, request)]).await;
    publish_rows(&mut on, &elsewhere).await;
    assert!(on.wrong.is_empty(), "{}\n{}", on.wrong.join("\n"), fixture.logs());
    fixture.discard(&volume, &[]).await;
    fixture.must("delete", fixture.co.delete(&unattached.id)).await;
    fixture.finish().await;
}

/// Sends invalid requests; `unattached` is the id of a volume that is on no node.
async fn stage_rows(on: &mut OnNode<'_>, unattached: &str) {
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
    let from_snapshot = publish_context("origin", "snapshot");
    let from_volume = publish_context("origin", "volume");
    let denied_flag = flags("ext4", &["noatime", "loop"]);
    let behind_comma = flags("ext4", &["noatime,loop"]);
    let rows: [Row<'_, _>; 20] = [
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
        ("of a blank disk from a snapshot", FailedPrecondition, &["snapshot"], from_snapshot),
        ("of a blank disk from a volume", FailedPrecondition, &[], from_volume),
    ];
    on.stage(rows).await;
}

async fn publish_rows(on: &mut OnNode<'_>, unstaged: &Path) {
    let kubelet = &on.fixture.kubelets[0];
    let root = kubelet.root().display();
    let target = kubelet.target_path(&on.volume, "pod-1");
    std::fs::create_dir_all(target.parent().unwrap()).unwrap();
    let outside = on.fixture.world.state_dir().join("outside");
    std::os::unix::fs::symlink(&outside, kubelet.root().join("pods/linked")).unwrap();
    let good = csi::NodePublishVolumeRequest {
        volume_id: on.volume.id.clone(),
        publish_context: on.attachment.clone(),
        staging_target_path: kubelet.staging_path(&on.volume).to_str().unwrap().to_owned(),
        target_path: target.to_str().unwrap().to_owned(),
        volume_capability: Some(on.volume.content.capability()),
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
    on.send("publish", rows, send).await;
}
