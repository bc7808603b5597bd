//! A volume on a node, and invalid requests for it.

use ebs_csi_e2e::{Setting, bytes, setting};
use ebs_csi_proto::csi;
use ebs_csi_sandbox::co::{Attachment, Claim, Volume};
use tonic::Code;

use crate::publish::publish_rows;
use crate::refused::{Refused, judge, refused};
use crate::stage::{stage_rows, wrong_device};

/// An unstaged volume attached to node 0.
pub(crate) struct OnNode<'a> {
    pub(crate) setting: &'a Setting,
    pub(crate) volume: Volume,
    pub(crate) attachment: Attachment,
}

impl OnNode<'_> {
    pub(crate) fn image(&self) -> std::path::PathBuf {
        self.setting.world.state_dir().join(format!("ec2/volumes/{}.img", self.volume.id))
    }

    pub(crate) fn request(&self) -> csi::NodeStageVolumeRequest {
        self.setting.kubelets[0].stage_request(&self.volume, &self.attachment).unwrap()
    }

    /// Sends a request that must be refused, and checks that nothing is mounted and that the disk
    /// is unchanged.
    pub(crate) async fn stage(
        &self,
        expected: &Refused<'_>,
        request: csi::NodeStageVolumeRequest,
        wrong: &mut Vec<String>,
    ) {
        let kubelet = &self.setting.kubelets[0];
        let before = (bytes::digest(&self.image()), setting::mounted_beneath(kubelet.root()));
        let answer = kubelet.node().node_stage_volume(request).await;
        wrong.extend(judge(answer, expected));
        let after = (bytes::digest(&self.image()), setting::mounted_beneath(kubelet.root()));
        if before != after {
            wrong.push(format!("{}: {before:?} became {after:?}", expected.what));
        }
    }
}

#[tokio::test]
async fn bad_node_requests_are_refused_and_change_nothing() {
    let Some(setting) = Setting::start().await else { return };
    let mut wrong = Vec::new();
    let volume =
        setting.must("create", setting.co.create(&Claim::filesystem("pvc-node", "ext4", 10))).await;
    let instance = setting.instance(0);
    let attachment = setting.must("attach", setting.co.attach(&volume, &instance)).await;
    let kubelet = &setting.kubelets[0];
    setting.must("a staging directory", async { kubelet.prepare_stage(&volume) }).await;
    let on = OnNode { setting: &setting, volume: volume.clone(), attachment: attachment.clone() };
    stage_rows(&on, &mut wrong).await;
    wrong_device(&on, &mut wrong).await;
    setting.must("stage", kubelet.stage(&volume, &attachment)).await;
    let elsewhere =
        kubelet.root().join("plugins/kubernetes.io/csi/ebs.csi.aws.com/elsewhere/globalmount");
    std::fs::create_dir_all(&elsewhere).unwrap();
    on.stage(
        &refused(
            "a second stage elsewhere",
            Code::FailedPrecondition,
            &["another path", "unstage", kubelet.staging_path(&volume).to_str().unwrap()],
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
