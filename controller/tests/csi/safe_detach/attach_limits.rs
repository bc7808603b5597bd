//! What the SafeDetach socket tells of instance types.

use ebs_csi_controller::safe_detach::Mode;
use ebs_csi_proto::safe_detach::attach_limits_response::Kind;
use ebs_csi_proto::safe_detach::{AttachLimitsRequest, QueryRequest};
use serde_json::json;
use tonic::Code;

use crate::driver::{Driver, NODE_1, within};

async fn limits(driver: &Driver, types: &[&str]) -> Vec<(String, u32, Kind)> {
    let instance_types = types.iter().map(|name| (*name).to_owned()).collect();
    let request = within(AttachLimitsRequest { instance_types }, 30);
    let answers = driver.instance_types.clone().attach_limits(request).await.unwrap();
    let answers = answers.into_inner().answers.into_iter();
    answers.map(|said| (said.instance_type.clone(), said.limit, said.kind())).collect()
}

fn known(name: &str, limit: u32, kind: Kind) -> (String, u32, Kind) {
    (name.to_owned(), limit, kind)
}

fn unknown(name: &str) -> (String, u32, Kind) {
    known(name, 0, Kind::Unspecified)
}

/// EC2 refuses names that it does not know; a Xen type has no number of slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_are_told_in_every_mode() {
    for mode in [Mode::Off, Mode::Ec2Only, Mode::Enforce] {
        let driver = Driver::under(mode, json!({})).await;
        let long = "z".repeat(65);
        let asked = ["z9.large", "no.such", "m5.large", "t2.nano", "", &long, "z9.large"];
        let want = vec![
            known("z9.large", 100, Kind::Dedicated),
            unknown("no.such"),
            known("m5.large", 27, Kind::Shared),
            unknown("t2.nano"),
            unknown(""),
            unknown(&long),
            known("z9.large", 100, Kind::Dedicated),
        ];
        assert_eq!(limits(&driver, &asked).await, want, "{mode}");
        let calls = driver.world.calls("DescribeInstanceTypes");
        assert_eq!(limits(&driver, &["z9.large", "m5.large"]).await.len(), 2);
        let repeated = driver.world.calls("DescribeInstanceTypes");
        assert_eq!(repeated, calls, "the answers are remembered");
        let query = driver.safe_detach.clone().query(QueryRequest::default()).await;
        let code = query.map_or_else(|status| status.code(), |_| Code::Ok);
        assert_eq!(code, if mode == Mode::Off { Code::Unimplemented } else { Code::Ok }, "{mode}");
    }
}

/// An attach and a limit need one call of a type.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attach_uses_answer_that_limits_learned() {
    let driver = Driver::in_world(json!({ "instances": [
        { "id": NODE_1, "type": "r8gb.48xlarge", "zone": "us-east-1a" },
    ] }))
    .await;
    let want = [known("r8gb.48xlarge", 128, Kind::Dedicated)];
    assert_eq!(limits(&driver, &["r8gb.48xlarge"]).await, want);
    let id = driver.created("pvc-1", 1).await;
    driver.publish(&id, NODE_1).await.unwrap();
    assert_eq!(driver.world.calls("DescribeInstanceTypes"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_are_unknown_without_ec2() {
    let driver = Driver::new().await;
    driver.world.deny("DescribeInstanceTypes");
    let asked = ["z9.large", "m5.large"];
    assert_eq!(limits(&driver, &asked).await, asked.map(unknown));
}
