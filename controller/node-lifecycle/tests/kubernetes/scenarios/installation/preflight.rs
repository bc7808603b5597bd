//! Runs the preflight against a real API server, with the permissions of its manifest.

use std::process::{Command, Output};

use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::environment::driver::program;
use crate::environment::manifests;
use crate::environment::world::{TestResult, World, create, ensure, wait_until};
use crate::scenarios::Scenario;

const ACCOUNT: &str = "system:serviceaccount:kube-system:ebs-csi-preflight";

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![Scenario::new("preflight_names_refusals_and_exits_with_failure", judged(world))]
}

async fn judged(world: &World<'_>) -> TestResult {
    // Without permissions nothing can be checked, which is a failure.
    let unauthorized = run(world, &[])?;
    let said = text(&unauthorized);
    ensure(unauthorized.status.code() == Some(1), &format!("unauthorized: {said}"))?;
    ensure(said.contains("Access/storageclasses"), &said)?;

    for object in manifests::read("preflight-rbac.yaml") {
        manifests::create(&world.admin, &object).await?;
    }
    // The API server takes a moment to apply the binding.
    wait_until("the preflight may read all", || async {
        Ok(!text(&run(world, &[])?).contains("Access/"))
    })
    .await?;
    let fine = run(world, &[])?;
    let said = text(&fine);
    ensure(fine.status.code() == Some(0), &said)?;
    ensure(said.ends_with("nothing is refused\n"), &said)?;
    ensure(said.contains("CSIDriver/ebs.csi.aws.com"), &said)?;

    let class = json!({
        "metadata": {"name": "preflight"}, "provisioner": "ebs.csi.aws.com",
        "mountOptions": ["noload"], "parameters": {"csi.storage.k8s.io/fstype": "ext4"},
    });
    let classes: Api<StorageClass> = Api::all(world.admin.clone());
    create(&classes, class).await?;
    let refused = run(world, &["--output=json"])?;
    classes.delete("preflight", &DeleteParams::default()).await?;
    ensure(refused.status.code() == Some(1), "something is refused")?;
    let document: Value = serde_json::from_slice(&refused.stdout)?;
    ensure(document["refused"] == 1, &document.to_string())?;
    let findings = document["findings"].as_array().into_iter().flatten();
    let named: Vec<_> = findings.filter(|f| f["verdict"] == "refused").collect();
    ensure(
        named.len() == 1 && named[0]["kind"] == "StorageClass" && named[0]["name"] == "preflight",
        &format!("{named:?}"),
    )
}

fn text(ended: &Output) -> String {
    let both = [&ended.stdout[..], &ended.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// Runs the preflight as its service account.
fn run(world: &World<'_>, arguments: &[&str]) -> TestResult<Output> {
    let kubeconfig = world.plane.kubeconfig_as(ACCOUNT);
    let mut command = Command::new(program("ebs-csi-node-lifecycle")?);
    command.arg("preflight").arg(format!("--kubeconfig={}", kubeconfig.display()));
    Ok(command.args(arguments).env_clear().output()?)
}
