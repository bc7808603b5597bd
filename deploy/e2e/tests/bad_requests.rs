//! Requests that must be refused: with which code, with which words, and that nothing has changed.

use std::collections::HashMap;
use std::fmt::Debug;

use csi::controller_client::ControllerClient;
use csi::volume_capability::AccessType;
use csi::volume_capability::access_mode::Mode;
use ebs_csi_e2e::{Setting, bytes, setting};
use ebs_csi_proto::csi;
use ebs_csi_sandbox::co::{Attachment, Claim, Source, Volume};
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

const UNKNOWN_VOLUME: &str = "vol-0123456789abcdef0";
const UNKNOWN_INSTANCE: &str = "i-0123456789abcdef0";
const GIB: i64 = 1 << 30;

/// What is expected of a refusal.
struct Refused<'a> {
    what: &'a str,
    code: Code,
    /// Each must stand in the message, whatever its case.
    words: &'a [&'a str],
}

fn refused<'a>(what: &'a str, code: Code, words: &'a [&'a str]) -> Refused<'a> {
    Refused { what, code, words }
}

/// What is wrong with an answer, if anything.
fn judge<T: Debug>(answer: Result<Response<T>, Status>, expected: &Refused<'_>) -> Vec<String> {
    let what = expected.what;
    let status = match answer {
        Ok(reply) => return vec![format!("{what}: was not refused: {:?}", reply.into_inner())],
        Err(status) => status,
    };
    let mut wrong = Vec::new();
    if status.code() != expected.code {
        wrong.push(format!(
            "{what}: {:?}, not {:?}: {}",
            status.code(),
            expected.code,
            status.message()
        ));
    }
    let text = status.message().to_lowercase();
    for word in expected.words {
        if !text.contains(&word.to_lowercase()) {
            wrong.push(format!(
                "{what}: the message does not say {word:?}: {}",
                status.message()
            ));
        }
    }
    println!("{what}: {:?}: {}", status.code(), status.message());
    wrong
}

/// Proves that EC2 was not changed since `mark`.
async fn unchanged(setting: &Setting, mark: u64, what: &str, wrong: &mut Vec<String>) {
    let effective = setting.requests().effective(mark).await;
    if !effective.is_empty() {
        wrong.push(format!("{what}: EC2 was changed: {effective:?}"));
    }
}

type Change = Box<dyn Fn(&mut csi::CreateVolumeRequest)>;

fn parameter(key: &'static str, value: &'static str) -> Change {
    Box::new(move |request| {
        request.parameters.insert(key.to_owned(), value.to_owned());
    })
}

fn size(required: i64, limit: i64) -> Change {
    Box::new(move |request| {
        request.capacity_range = Some(csi::CapacityRange {
            required_bytes: required,
            limit_bytes: limit,
        });
    })
}

fn source(id: &'static str, snapshot: bool) -> Change {
    Box::new(move |request| {
        let claim = Claim::filesystem("", "ext4", 1);
        let from = if snapshot {
            Source::Snapshot(id.to_owned())
        } else {
            Source::Volume(id.to_owned())
        };
        let co = ebs_csi_sandbox::Co::new(std::path::Path::new("/x"), "z").unwrap();
        request.volume_content_source = co
            .create_request(&claim.from_source(from))
            .volume_content_source;
    })
}

fn capability(mode: Mode) -> Change {
    Box::new(move |request| {
        for capability in &mut request.volume_capabilities {
            capability.access_mode = Some(csi::volume_capability::AccessMode { mode: mode as i32 });
        }
    })
}

fn bad_creates() -> Vec<(Refused<'static>, Change)> {
    use Code::{InvalidArgument, NotFound, OutOfRange};
    vec![
        (
            refused("create without a name", InvalidArgument, &["name"]),
            Box::new(|request| request.name.clear()),
        ),
        (
            refused(
                "create without a capability",
                InvalidArgument,
                &["volume_capabilities"],
            ),
            Box::new(|request| request.volume_capabilities.clear()),
        ),
        (
            refused(
                "create with an unknown parameter",
                InvalidArgument,
                &["flavour"],
            ),
            parameter("flavour", "mint"),
        ),
        (
            refused(
                "create with an unknown mutable parameter",
                InvalidArgument,
                &["colour"],
            ),
            Box::new(|request| {
                request
                    .mutable_parameters
                    .insert("colour".to_owned(), "red".to_owned());
            }),
        ),
        (
            refused(
                "create with IOPS that are no number",
                InvalidArgument,
                &["iops", "many"],
            ),
            parameter("iops", "many"),
        ),
        (
            refused(
                "create with a type that does not exist",
                InvalidArgument,
                &["gp9"],
            ),
            parameter("type", "gp9"),
        ),
        (
            refused(
                "create with IOPS in two ways",
                InvalidArgument,
                &["iops", "iopspergb"],
            ),
            Box::new(|request| {
                request
                    .parameters
                    .insert("iops".to_owned(), "3000".to_owned());
                request
                    .parameters
                    .insert("iopsPerGB".to_owned(), "5".to_owned());
            }),
        ),
        (
            refused(
                "create with a block size that is not one",
                InvalidArgument,
                &["blocksize"],
            ),
            parameter("blockSize", "4096 -E x"),
        ),
        (
            refused(
                "create with a cluster size without bigalloc",
                InvalidArgument,
                &["ext4clustersize", "ext4bigalloc"],
            ),
            parameter("ext4ClusterSize", "16384"),
        ),
        (
            refused(
                "create with a tag without a value",
                InvalidArgument,
                &["tagSpecification", "no-equals-sign"],
            ),
            parameter("tagSpecification_1", "no-equals-sign"),
        ),
        (
            refused(
                "create with a reserved tag",
                InvalidArgument,
                &["CSIVolumeName"],
            ),
            parameter("tagSpecification_1", "CSIVolumeName=mine"),
        ),
        (
            refused("create with a limit below the size", OutOfRange, &["limit"]),
            size(2 * GIB, GIB),
        ),
        (
            refused(
                "create with a negative size",
                InvalidArgument,
                &["required_bytes"],
            ),
            size(-1, 0),
        ),
        (
            refused(
                "create beyond what EBS makes",
                OutOfRange,
                &["capacity_range", "65536 GiB"],
            ),
            size(70_000 * GIB, 0),
        ),
        (
            refused(
                "create a file system for many nodes",
                InvalidArgument,
                &["MULTI_NODE_MULTI_WRITER", "block"],
            ),
            capability(Mode::MultiNodeMultiWriter),
        ),
        (
            refused(
                "restore of an unknown snapshot",
                NotFound,
                &["snap-0123456789abcdef0"],
            ),
            source("snap-0123456789abcdef0", true),
        ),
        (
            refused("restore of what cannot be a snapshot", NotFound, &["photo"]),
            source("photo", true),
        ),
        (
            refused("clone of an unknown volume", NotFound, &[UNKNOWN_VOLUME]),
            source(UNKNOWN_VOLUME, false),
        ),
    ]
}

async fn controller_rows(setting: &Setting, volume: &Volume, wrong: &mut Vec<String>) {
    let mut client: ControllerClient<Channel> = setting.co.controller();
    let mark = setting.requests().mark().await;
    for (expected, change) in bad_creates() {
        let mut request = setting
            .co
            .create_request(&Claim::filesystem("pvc-bad", "ext4", 10));
        change(&mut request);
        wrong.extend(judge(client.create_volume(request).await, &expected));
        unchanged(setting, mark, expected.what, wrong).await;
    }
    let mut other_size = setting
        .co
        .create_request(&Claim::filesystem(&volume.name, "ext4", 12));
    wrong.extend(judge(
        client.create_volume(other_size.clone()).await,
        &refused(
            "create of a name that has another size",
            Code::AlreadyExists,
            &[&volume.id],
        ),
    ));
    other_size.capacity_range = None;
    let publish = |volume_id: &str, node_id: &str| csi::ControllerPublishVolumeRequest {
        volume_id: volume_id.to_owned(),
        node_id: node_id.to_owned(),
        volume_capability: Some(volume.capability()),
        ..Default::default()
    };
    let (here, there) = (setting.instance(0), setting.instance(1));
    for (request, expected) in [
        (
            publish("", &here),
            refused(
                "publish without a volume",
                Code::InvalidArgument,
                &["volume_id"],
            ),
        ),
        (
            publish(&volume.id, ""),
            refused(
                "publish without a node",
                Code::InvalidArgument,
                &["node_id"],
            ),
        ),
        (
            publish(UNKNOWN_VOLUME, &here),
            refused(
                "publish of an unknown volume",
                Code::NotFound,
                &[UNKNOWN_VOLUME],
            ),
        ),
        (
            publish("my-disk", &here),
            refused(
                "publish of what cannot be a volume",
                Code::NotFound,
                &["my-disk"],
            ),
        ),
        (
            publish(&volume.id, UNKNOWN_INSTANCE),
            refused(
                "publish to an unknown node",
                Code::NotFound,
                &[UNKNOWN_INSTANCE],
            ),
        ),
        (
            publish(&volume.id, "my-laptop"),
            refused(
                "publish to what cannot be a node",
                Code::NotFound,
                &["my-laptop"],
            ),
        ),
        (
            publish(&volume.id, &there),
            refused(
                "publish of what is attached elsewhere",
                Code::FailedPrecondition,
                &[&here],
            ),
        ),
        (
            csi::ControllerPublishVolumeRequest {
                volume_capability: None,
                ..publish(&volume.id, &here)
            },
            refused(
                "publish without a capability",
                Code::InvalidArgument,
                &["volume_capability"],
            ),
        ),
    ] {
        wrong.extend(judge(
            client.controller_publish_volume(request).await,
            &expected,
        ));
        unchanged(setting, mark, expected.what, wrong).await;
    }
    let delete = |id: &str| csi::DeleteVolumeRequest {
        volume_id: id.to_owned(),
        ..Default::default()
    };
    for (request, expected) in [
        (
            delete(""),
            refused(
                "delete without a volume",
                Code::InvalidArgument,
                &["volume_id"],
            ),
        ),
        (
            delete(&volume.id),
            refused(
                "delete of what is attached",
                Code::FailedPrecondition,
                &[&volume.id],
            ),
        ),
    ] {
        wrong.extend(judge(client.delete_volume(request).await, &expected));
        unchanged(setting, mark, expected.what, wrong).await;
    }
    let asked = setting.requests().mark().await;
    client
        .delete_volume(delete("my-disk"))
        .await
        .expect("what EC2 cannot have made is gone");
    let since = setting.requests().since(asked).await;
    if !since.is_empty() {
        wrong.push(format!(
            "delete of what cannot be a volume: EC2 was asked: {since:?}"
        ));
    }
    later_rows(setting, volume, mark, &mut client, wrong).await;
}

/// Expand, modify, snapshots.
async fn later_rows(
    setting: &Setting,
    volume: &Volume,
    mark: u64,
    client: &mut ControllerClient<Channel>,
    wrong: &mut Vec<String>,
) {
    let expand = |id: &str, range: Option<(i64, i64)>| csi::ControllerExpandVolumeRequest {
        volume_id: id.to_owned(),
        capacity_range: range.map(|(required_bytes, limit_bytes)| csi::CapacityRange {
            required_bytes,
            limit_bytes,
        }),
        ..Default::default()
    };
    for (request, expected) in [
        (
            expand(&volume.id, None),
            refused(
                "expand without a size",
                Code::InvalidArgument,
                &["capacity_range"],
            ),
        ),
        (
            expand(&volume.id, Some((12 * GIB, 11 * GIB))),
            refused(
                "expand with a limit below the size",
                Code::OutOfRange,
                &["limit"],
            ),
        ),
        (
            expand(UNKNOWN_VOLUME, Some((12 * GIB, 0))),
            refused(
                "expand of an unknown volume",
                Code::NotFound,
                &[UNKNOWN_VOLUME],
            ),
        ),
        (
            expand(&volume.id, Some((70_000 * GIB, 0))),
            refused(
                "expand beyond what EBS makes",
                Code::OutOfRange,
                &["65536 GiB"],
            ),
        ),
    ] {
        wrong.extend(judge(
            client.controller_expand_volume(request).await,
            &expected,
        ));
        unchanged(setting, mark, expected.what, wrong).await;
    }
    for (key, value, expected) in [
        (
            "colour",
            "red",
            refused(
                "modify with an unknown parameter",
                Code::InvalidArgument,
                &["colour"],
            ),
        ),
        (
            "iops",
            "many",
            refused(
                "modify with IOPS that are no number",
                Code::InvalidArgument,
                &["iops"],
            ),
        ),
        (
            "tagDeletion_1",
            "CSIVolumeName",
            refused(
                "modify that removes a reserved tag",
                Code::InvalidArgument,
                &["CSIVolumeName"],
            ),
        ),
    ] {
        let request = csi::ControllerModifyVolumeRequest {
            volume_id: volume.id.clone(),
            mutable_parameters: HashMap::from([(key.to_owned(), value.to_owned())]),
            ..Default::default()
        };
        wrong.extend(judge(
            client.controller_modify_volume(request).await,
            &expected,
        ));
        unchanged(setting, mark, expected.what, wrong).await;
    }
    let snapshot = |name: &str, source: &str, parameter: Option<&str>| csi::CreateSnapshotRequest {
        name: name.to_owned(),
        source_volume_id: source.to_owned(),
        parameters: parameter
            .map(|key| (key.to_owned(), "x".to_owned()))
            .into_iter()
            .collect(),
        ..Default::default()
    };
    for (request, expected) in [
        (
            snapshot("", &volume.id, None),
            refused("snapshot without a name", Code::InvalidArgument, &["name"]),
        ),
        (
            snapshot("s", "", None),
            refused(
                "snapshot without a source",
                Code::InvalidArgument,
                &["source_volume_id"],
            ),
        ),
        (
            snapshot("s", UNKNOWN_VOLUME, None),
            refused(
                "snapshot of an unknown volume",
                Code::NotFound,
                &[UNKNOWN_VOLUME],
            ),
        ),
        (
            snapshot("s", &volume.id, Some("colour")),
            refused(
                "snapshot with an unknown parameter",
                Code::InvalidArgument,
                &["colour"],
            ),
        ),
        (
            snapshot("s", &volume.id, Some("outpostArn")),
            refused(
                "snapshot with an ARN that is none",
                Code::InvalidArgument,
                &["outpostarn"],
            ),
        ),
    ] {
        wrong.extend(judge(client.create_snapshot(request).await, &expected));
        unchanged(setting, mark, expected.what, wrong).await;
    }
    let list = |entries: i32, token: &str| csi::ListSnapshotsRequest {
        max_entries: entries,
        starting_token: token.to_owned(),
        ..Default::default()
    };
    for (request, expected) in [
        (
            list(-1, ""),
            refused(
                "list with a negative page",
                Code::InvalidArgument,
                &["max_entries"],
            ),
        ),
        (
            list(0, "no-token"),
            refused("list from a token that is none", Code::Aborted, &["token"]),
        ),
    ] {
        wrong.extend(judge(client.list_snapshots(request).await, &expected));
    }
}

#[tokio::test]
async fn bad_requests_to_the_controller_are_refused_and_change_nothing() {
    let Some(setting) = Setting::start().await else {
        return;
    };
    let volume = setting
        .must(
            "create",
            setting
                .co
                .create(&Claim::filesystem("pvc-good", "ext4", 10)),
        )
        .await;
    let instance = setting.instance(0);
    setting
        .must("attach", setting.co.attach(&volume, &instance))
        .await;
    let mut wrong = Vec::new();
    controller_rows(&setting, &volume, &mut wrong).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    setting
        .must("detach", setting.co.detach(&volume.id, &instance))
        .await;
    setting.must("delete", setting.co.delete(&volume.id)).await;
    setting.finish().await;
}

/// A volume on node 0 that is not staged.
struct OnNode<'a> {
    setting: &'a Setting,
    volume: Volume,
    attachment: Attachment,
}

impl OnNode<'_> {
    fn image(&self) -> std::path::PathBuf {
        self.setting
            .world
            .state_dir()
            .join(format!("ec2/volumes/{}.img", self.volume.id))
    }

    fn request(&self) -> csi::NodeStageVolumeRequest {
        self.setting.kubelets[0]
            .stage_request(&self.volume, &self.attachment)
            .unwrap()
    }

    /// Sends what must be refused and looks that nothing is mounted and the disk is as it was.
    async fn stage(
        &self,
        expected: &Refused<'_>,
        request: csi::NodeStageVolumeRequest,
        wrong: &mut Vec<String>,
    ) {
        let kubelet = &self.setting.kubelets[0];
        let before = (
            bytes::digest(&self.image()),
            setting::mounted_beneath(kubelet.root()),
        );
        let answer = kubelet.node().node_stage_volume(request).await;
        wrong.extend(judge(answer, expected));
        let after = (
            bytes::digest(&self.image()),
            setting::mounted_beneath(kubelet.root()),
        );
        if before != after {
            wrong.push(format!("{}: {before:?} became {after:?}", expected.what));
        }
    }
}

fn with_flags(request: &mut csi::NodeStageVolumeRequest, kind: &str, flags: &[&str]) {
    if let Some(AccessType::Mount(mount)) = request
        .volume_capability
        .as_mut()
        .and_then(|capability| capability.access_type.as_mut())
    {
        mount.fs_type = kind.to_owned();
        mount.mount_flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    }
}

async fn stage_rows(on: &OnNode<'_>, wrong: &mut Vec<String>) {
    use Code::{FailedPrecondition, InvalidArgument, NotFound};
    let root = on.setting.kubelets[0].root().to_owned();
    let good = on.request();
    let at = |path: &str| csi::NodeStageVolumeRequest {
        staging_target_path: path.to_owned(),
        ..good.clone()
    };
    let inside = |path: &str| at(&format!("{}/{path}", root.display()));
    let csi_directory = root.join("plugins/kubernetes.io/csi");
    std::fs::create_dir_all(&csi_directory).unwrap();
    let outside = on.setting.world.state_dir().join("outside");
    std::fs::create_dir_all(outside.join("globalmount")).unwrap();
    std::os::unix::fs::symlink(&outside, csi_directory.join("link")).unwrap();
    let volume = |id: &str| csi::NodeStageVolumeRequest {
        volume_id: id.to_owned(),
        ..good.clone()
    };
    let flags = |kind: &str, flags: &[&str]| {
        let mut request = good.clone();
        with_flags(&mut request, kind, flags);
        request
    };
    let volume_context = |key: &str, value: &str| {
        let mut request = good.clone();
        request
            .volume_context
            .insert(key.to_owned(), value.to_owned());
        request
    };
    let publish_context = |key: &str, value: &str| {
        let mut request = good.clone();
        request
            .publish_context
            .insert(key.to_owned(), value.to_owned());
        request
    };
    let path = &["staging_target_path"][..];
    let outside_words = [outside.to_str().unwrap()];
    let rows = [
        (
            refused("stage without a volume", InvalidArgument, &["volume_id"]),
            volume(""),
        ),
        (
            refused("stage of what cannot be a volume", NotFound, &["my-disk"]),
            volume("my-disk"),
        ),
        (
            refused("stage of what is not attached", NotFound, &[UNKNOWN_VOLUME]),
            volume(UNKNOWN_VOLUME),
        ),
        (
            refused("stage without a path", InvalidArgument, path),
            at(""),
        ),
        (
            refused("stage at a relative path", InvalidArgument, path),
            at("plugins/kubernetes.io/csi/a"),
        ),
        (
            refused("stage at a path with ..", InvalidArgument, path),
            inside("plugins/kubernetes.io/csi/../../../../../etc/globalmount"),
        ),
        (
            refused(
                "stage outside the kubelet directory",
                InvalidArgument,
                &outside_words,
            ),
            at(outside.join("globalmount").to_str().unwrap()),
        ),
        (
            refused("stage where no volume belongs", InvalidArgument, &["pki"]),
            inside("pki/globalmount"),
        ),
        (
            refused(
                "stage through a symbolic link",
                InvalidArgument,
                &["symbolic link"],
            ),
            inside("plugins/kubernetes.io/csi/link/globalmount"),
        ),
        (
            refused(
                "stage without a capability",
                InvalidArgument,
                &["volume_capability"],
            ),
            csi::NodeStageVolumeRequest {
                volume_capability: None,
                ..good.clone()
            },
        ),
        (
            refused(
                "stage of a file system nobody makes",
                InvalidArgument,
                &["btrfs", "ext4"],
            ),
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
            refused(
                "stage with a flag of another file system",
                InvalidArgument,
                &["mount flag"],
            ),
            flags("ext4", &["nouuid"]),
        ),
        (
            refused(
                "stage with a forbidden flag behind a comma",
                InvalidArgument,
                &["mount flag"],
            ),
            flags("ext4", &["noatime,loop"]),
        ),
        (
            refused(
                "stage with a block size that is not one",
                InvalidArgument,
                &["blocksize"],
            ),
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

/// Two volumes are attached; the request for the one names the device of the other.
async fn wrong_device(on: &OnNode<'_>, wrong: &mut Vec<String>) {
    let other = on
        .setting
        .must(
            "create",
            on.setting
                .co
                .create(&Claim::filesystem("pvc-unattached", "ext4", 10)),
        )
        .await;
    let request = csi::NodeStageVolumeRequest {
        volume_id: other.id.clone(),
        ..on.request()
    };
    on.stage(
        &refused(
            "stage with the device of another volume",
            Code::NotFound,
            &[&other.id],
        ),
        request,
        wrong,
    )
    .await;
    on.setting
        .must("delete", on.setting.co.delete(&other.id))
        .await;
}

#[tokio::test]
async fn bad_requests_to_the_node_are_refused_and_change_nothing() {
    let Some(setting) = Setting::start().await else {
        return;
    };
    let mut wrong = Vec::new();
    let volume = setting
        .must(
            "create",
            setting
                .co
                .create(&Claim::filesystem("pvc-node", "ext4", 10)),
        )
        .await;
    let instance = setting.instance(0);
    let attachment = setting
        .must("attach", setting.co.attach(&volume, &instance))
        .await;
    let kubelet = &setting.kubelets[0];
    setting
        .must("a staging directory", async {
            kubelet.prepare_stage(&volume)
        })
        .await;
    let on = OnNode {
        setting: &setting,
        volume: volume.clone(),
        attachment: attachment.clone(),
    };
    stage_rows(&on, &mut wrong).await;
    wrong_device(&on, &mut wrong).await;
    setting
        .must("stage", kubelet.stage(&volume, &attachment))
        .await;
    let elsewhere = kubelet
        .root()
        .join("plugins/kubernetes.io/csi/ebs.csi.aws.com/elsewhere/globalmount");
    std::fs::create_dir_all(&elsewhere).unwrap();
    on.stage(
        &refused(
            "a second stage elsewhere",
            Code::FailedPrecondition,
            &[
                "another path",
                "unstage",
                kubelet.staging_path(&volume).to_str().unwrap(),
            ],
        ),
        csi::NodeStageVolumeRequest {
            staging_target_path: elsewhere.to_str().unwrap().to_owned(),
            ..on.request()
        },
        &mut wrong,
    )
    .await;
    publish_rows(&on, &elsewhere, &mut wrong).await;
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), setting.logs());
    setting.discard(&volume).await;
    setting.finish().await;
}

async fn publish_rows(on: &OnNode<'_>, unstaged: &std::path::Path, wrong: &mut Vec<String>) {
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
        staging_target_path: kubelet
            .staging_path(&on.volume)
            .to_str()
            .unwrap()
            .to_owned(),
        target_path: target.to_str().unwrap().to_owned(),
        volume_capability: Some(on.volume.capability()),
        ..Default::default()
    };
    let at = |path: &str| csi::NodePublishVolumeRequest {
        target_path: path.to_owned(),
        ..good.clone()
    };
    let word = &["target_path"][..];
    let before = setting::mounted_beneath(kubelet.root());
    for (expected, request) in [
        (
            refused("publish without a target", InvalidArgument, word),
            at(""),
        ),
        (
            refused("publish at a path with ..", InvalidArgument, word),
            at(&format!(
                "{root}/pods/pod-1/volumes/kubernetes.io~csi/../../../../../etc/mount"
            )),
        ),
        (
            refused(
                "publish outside the kubelet directory",
                InvalidArgument,
                &["/etc"],
            ),
            at("/etc/mount"),
        ),
        (
            refused("publish where no volume belongs", InvalidArgument, &["pki"]),
            at(&format!("{root}/pki/mount")),
        ),
        (
            refused(
                "publish through a symbolic link",
                InvalidArgument,
                &["symbolic link"],
            ),
            at(&format!(
                "{root}/pods/linked/volumes/kubernetes.io~csi/pv/mount"
            )),
        ),
        (
            refused(
                "publish of what is not staged there",
                FailedPrecondition,
                &["stage"],
            ),
            csi::NodePublishVolumeRequest {
                staging_target_path: unstaged.to_str().unwrap().to_owned(),
                ..good.clone()
            },
        ),
        (
            refused(
                "publish of what is not attached",
                NotFound,
                &[UNKNOWN_VOLUME],
            ),
            csi::NodePublishVolumeRequest {
                volume_id: UNKNOWN_VOLUME.to_owned(),
                ..good.clone()
            },
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
