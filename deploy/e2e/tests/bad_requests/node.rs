//! Invalid requests for a volume on a node.

use std::fmt::Debug;

use ebs_csi_e2e::{Fixture, bytes, fixture};
use ebs_csi_proto::csi;
use ebs_csi_sandbox::co::{Attachment, Claim, Volume};
use tonic::Code::FailedPrecondition;
use tonic::{Response, Status};

use crate::publish::publish_rows;
use crate::refused::{Differences, Row};
use crate::stage::stage_rows;

/// An unstaged volume attached to node 0.
pub(crate) struct OnNode<'a> {
    pub(crate) fixture: &'a Fixture,
    pub(crate) volume: Volume,
    pub(crate) attachment: Attachment,
}

impl OnNode<'_> {
    /// Returns the digest of the disk, and what is mounted.
    fn state(&self) -> (String, Vec<String>) {
        let image = format!("ec2/volumes/{}.img", self.volume.id);
        let image = self.fixture.world.state_dir().join(image);
        (bytes::digest(&image), fixture::mounted_beneath(self.fixture.kubelets[0].root()))
    }

    pub(crate) fn request(&self) -> csi::NodeStageVolumeRequest {
        self.fixture.kubelets[0].stage_request(&self.volume, &self.attachment).unwrap()
    }

    /// Sends requests that must be refused, and checks after each that nothing is mounted and that
    /// the disk is unchanged.
    pub(crate) async fn send<'r, R, T: Debug>(
        &self,
        rpc: &str,
        rows: impl IntoIterator<Item = Row<'r, R>>,
        send: impl AsyncFn(R) -> Result<Response<T>, Status>,
        wrong: &mut Differences<'_>,
    ) {
        let before = self.state();
        for row in rows {
            let what = row.0;
            wrong.send(rpc, [row], &send).await;
            let after = self.state();
            if before != after {
                wrong.found.push(format!("{rpc} {what}: {before:?} became {after:?}"));
            }
        }
    }

    /// Sends such requests to stage.
    pub(crate) async fn stage<'r>(
        &self,
        rows: impl IntoIterator<Item = Row<'r, csi::NodeStageVolumeRequest>>,
        wrong: &mut Differences<'_>,
    ) {
        let node = || self.fixture.kubelets[0].node();
        self.send("stage", rows, async |it| node().node_stage_volume(it).await, wrong).await;
    }
}

#[tokio::test]
async fn bad_node_requests_are_refused_and_change_nothing() {
    let Some(fixture) = Fixture::start().await else { return };
    let (volume, attachment) = fixture.attached(&Claim::filesystem("pvc-node", "ext4", 10)).await;
    let unattached = Claim::filesystem("pvc-unattached", "ext4", 10);
    let unattached = fixture.must("create", fixture.co.create(&unattached)).await;
    let mut wrong = Differences::new(&fixture).await;
    let kubelet = &fixture.kubelets[0];
    fixture.must("a staging directory", async { kubelet.prepare_stage(&volume) }).await;
    let on = OnNode { fixture: &fixture, volume: volume.clone(), attachment: attachment.clone() };
    stage_rows(&on, &unattached.id, &mut wrong).await;
    fixture.must("stage", kubelet.stage(&volume, &attachment)).await;
    let elsewhere =
        kubelet.root().join("plugins/kubernetes.io/csi/ebs.csi.aws.com/elsewhere/globalmount");
    std::fs::create_dir_all(&elsewhere).unwrap();
    let mut request = on.request();
    request.staging_target_path = elsewhere.to_str().unwrap().to_owned();
    let path = kubelet.staging_path(&volume);
    let words: &[&str] = &["another path", "unstage", path.to_str().unwrap()];
    on.stage([("at a second path", FailedPrecondition, words, request)], &mut wrong).await;
    publish_rows(&on, &elsewhere, &mut wrong).await;
    assert!(wrong.found.is_empty(), "{}\n{}", wrong.found.join("\n"), fixture.logs());
    fixture.discard(&volume).await;
    fixture.must("delete", fixture.co.delete(&unattached.id)).await;
    fixture.finish().await;
}
