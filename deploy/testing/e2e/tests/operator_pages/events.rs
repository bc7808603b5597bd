//! `deploy/docs/events.md`: the events that the driver writes, and the words in its answers.

use std::fmt::Write as _;

use ebs_csi_proto::{Condition, code_name};
use ebs_csi_sandbox::binaries::Binaries;

use crate::{assert_current, cell, printed, programs};

fn render(binaries: &Binaries) -> String {
    let mut out = String::from(
        "# Events and the words in the driver's answers\n\n\
         For operators. The driver itself writes events on Nodes, Pods and VolumeAttachments (the second\n\
         table). Most failures reach a user in the events of Kubernetes' own components, which quote the\n\
         driver's answer:\n\n\
         | Event | Object | Written by | Quotes the answer to |\n|---|---|---|---|\n\
         | `ProvisioningFailed` | PersistentVolumeClaim | external-provisioner | CreateVolume |\n\
         | `FailedAttachVolume` | Pod | kube-controller-manager, from the VolumeAttachment's `status.attachError` | ControllerPublishVolume |\n\
         | `FailedMount` | Pod | kubelet | NodeStageVolume, NodePublishVolume |\n\
         | `FailedMapVolume` | Pod | kubelet | the same of a raw block volume |\n\
         | `VolumeResizeFailed` | PersistentVolumeClaim | external-resizer, kubelet | ControllerExpandVolume, NodeExpandVolume |\n\
         | `VolumeModifyFailed` | PersistentVolumeClaim | external-resizer | ControllerModifyVolume |\n\
         | `SnapshotCreationFailed`, `SnapshotDeleteError` | VolumeSnapshotContent; also the `status.error` of the VolumeSnapshot | external-snapshotter | CreateSnapshot, DeleteSnapshot |\n\
         | `GroupSnapshotCreationFailed`, `GroupSnapshotDeleteError` | VolumeGroupSnapshotContent; also the `status.error` of the VolumeGroupSnapshot | external-snapshotter | CreateVolumeGroupSnapshot, DeleteVolumeGroupSnapshot |\n\
         | `VolumeFailedDelete` | PersistentVolume | external-provisioner | DeleteVolume |\n\n\
         [troubleshooting.md](troubleshooting.md) says what to do, by the words of the message.\n\n\
         Generated from what `ebs-csi-node-lifecycle events` prints and from the lists of conditions and\n\
         refusals by `UPDATE_GENERATED=1 cargo test --workspace --test operator_pages`.\n\n\
         ## Events of node-lifecycle\n\n\
         | Reason | Object | Type | Meaning | Next step |\n|---|---|---|---|---|\n",
    );
    let told = printed(binaries, "node-lifecycle", &["events"]);
    let (mut events, mut refusals) = (0, String::new());
    for line in told.lines() {
        match line.split('\t').collect::<Vec<_>>()[..] {
            ["event", reason, object, type_, meaning, next_step] => {
                let (meaning, next_step) = (cell(meaning), cell(next_step));
                let _ =
                    writeln!(out, "| `{reason}` | {object} | {type_} | {meaning} | {next_step} |");
                events += 1;
            }
            ["refusal", token, meaning, next_step] => {
                let (meaning, next_step) = (cell(meaning), cell(next_step));
                let _ = writeln!(refusals, "| `{token}` | {meaning} | {next_step} |");
            }
            _ => panic!("neither an event nor a refusal: {line}"),
        }
    }
    assert!(events >= 10 && refusals.lines().count() >= 10, "{told}");

    out.push_str(
        "\n## Codes\n\n\
         An answer begins with `rpc error: code = CODE desc = `. Sidecars and kubelet call again after\n\
         every code; the codes marked *maybe* say that the work may still be in progress.\n\n\
         | Code | | When |\n|---|---|---|\n",
    );
    for condition in Condition::ALL {
        let code = code_name(condition.code());
        let maybe = if condition.may_be_in_progress() { "maybe" } else { "" };
        let _ = writeln!(out, "| `{code}` | {maybe} | {} |", cell(condition.meaning()));
    }

    out.push_str(
        "\n## Refusals of the mount-helper\n\n\
         In events of kubelet. The mount-helper's log has the word as `reason=WORD`; the event has the\n\
         explanation.\n\n| Word | Explanation |\n|---|---|\n",
    );
    for refusal in ebs_csi_wire::Refusal::ALL {
        let _ = writeln!(out, "| `{refusal}` | {} |", cell(refusal.explain()));
    }

    out.push_str(
        "\n## Refusals of safe detach\n\n\
         In `status.detachError` of a VolumeAttachment, as `SafeDetachRefused/WORD`\n\
         ([safe-detach.md](safe-detach.md)).\n\n| Word | Meaning | Next step |\n|---|---|---|\n",
    );
    out + &refusals
}

#[test]
fn events_page_matches_programs() {
    let Some(binaries) = programs(&["node-lifecycle"]) else { return };
    assert_current("deploy/docs/events.md", &render(&binaries));
}
