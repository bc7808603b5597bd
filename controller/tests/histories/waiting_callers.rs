//! Callers that wait for the same operation are answered in the same order in each run.

use std::collections::HashMap;
use std::sync::Arc;

use ebs_csi_controller::csi::service::{Controller, ServiceSettings};
use ebs_csi_proto::csi;
use ebs_csi_proto::csi::controller_server::Controller as Service;
use serde_json::json;
use tonic::Request;

use super::workload::mount;
use crate::world::in_process::{InProcess, block_on};

/// Requests what the other callers request, and something of its own as soon as the first result is
/// there: EC2 then sees in which order the callers were answered.
async fn caller(controller: Controller, n: usize) {
    let create = async |name: &str| {
        let request = csi::CreateVolumeRequest {
            name: name.to_owned(),
            volume_capabilities: vec![mount()],
            ..Default::default()
        };
        let answer = controller.create_volume(Request::new(request)).await.unwrap();
        answer.into_inner().volume.unwrap()
    };
    let shared = create("pvc-shared").await;
    create(&format!("pvc-after-create-{n}")).await;
    let change = csi::ControllerModifyVolumeRequest {
        volume_id: shared.volume_id.clone(),
        mutable_parameters: HashMap::from([("iops".to_owned(), "4000".to_owned())]),
        ..Default::default()
    };
    controller.controller_modify_volume(Request::new(change)).await.unwrap();
    create(&format!("pvc-after-modify-{n}")).await;
    let gone = csi::DeleteVolumeRequest { volume_id: shared.volume_id, ..Default::default() };
    controller.delete_volume(Request::new(gone)).await.unwrap();
}

/// Returns the requests to EC2 while many callers waited for the same operations.
fn many_callers_of_one_key() -> Vec<String> {
    block_on(async {
        let world = InProcess::new(json!({ "seed": 1, "profile": "fast" }));
        let controller =
            Controller::new(world.access(1).await, ServiceSettings::default(), Arc::default());
        let callers: Vec<_> =
            (0..12).map(|n| tokio::spawn(caller(controller.clone(), n))).collect();
        for caller in callers {
            caller.await.unwrap();
        }
        world.log_lines()
    })
}

/// Each caller then makes a create of its own, so the order of EC2's requests shows the order of
/// the answers.
#[test]
fn waiting_callers_are_answered_in_reproducible_order() {
    let first = many_callers_of_one_key();
    let made = |what: &str| first.iter().filter(|line| line.contains(what)).count();
    assert_eq!(made("Action=CreateVolume&"), 25, "{first:#?}");
    assert_eq!(made("Action=ModifyVolume&"), 1);
    for _ in 0..3 {
        for (n, (a, b)) in first.iter().zip(&many_callers_of_one_key()).enumerate() {
            assert_eq!(a, b, "request {n}");
        }
    }
}
