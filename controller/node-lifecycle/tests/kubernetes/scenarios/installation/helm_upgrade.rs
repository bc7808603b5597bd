//! Upgrades a release of the Go driver's chart to this chart with Helm and back, for the one object
//! whose merge loses something. No controller runs Deployments here, so no pod starts.

use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use serde_json::{Value, json};

use crate::environment::driver::program;
use crate::environment::manifests;
use crate::environment::process::{output, succeed};
use crate::environment::world::{TestResult, World, ensure};
use crate::scenarios::Scenario;

const NAMESPACE: &str = "helm-upgrade";
const DEPLOYMENT: &str = "ebs-csi-controller";
const REPEATED: [&str; 2] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![Scenario::new("second_helm_upgrade_brings_repeated_variables_back", upgraded(world))]
}

async fn upgraded(world: &World<'_>) -> TestResult {
    let Some(helm) = manifests::helm() else { return Ok(()) };
    let directory = tempfile::tempdir()?;
    let kubeconfig = world.plane.kubeconfig("admin");
    let run = async |words: Vec<&str>| -> TestResult {
        let mut command = Command::new(&helm);
        command.args(words).args(["--namespace", NAMESPACE, "--kubeconfig"]).arg(&kubeconfig);
        succeed(command).await.map(drop)
    };
    let former = chart(directory.path(), "former", &go_driver())?;
    let ours = chart(directory.path(), "ours", &rendered(&helm, directory.path()).await?)?;
    let (former, ours) = (former.display().to_string(), ours.display().to_string());

    // As Helm 3 did, with which most releases of the Go driver were installed.
    let how = ["--create-namespace", "--server-side=false"];
    run([&["install", "ebs", &former][..], &how].concat()).await?;
    ensure(named(&kubeconfig).await? == REPEATED, "the preflight names what stands twice")?;
    for (upgrade, expected) in [("the first", &[][..]), ("the second", &REPEATED)] {
        run(vec!["upgrade", "ebs", &ours]).await?;
        let deployments: Api<Deployment> = Api::namespaced(world.admin.clone(), NAMESPACE);
        let found = serde_json::to_value(deployments.get(DEPLOYMENT).await?)?;
        let kept: Vec<&str> =
            REPEATED.into_iter().filter(|name| variables(&found).contains(name)).collect();
        ensure(kept == expected, &format!("{upgrade} upgrade leaves {kept:?}"))?;
        ensure(named(&kubeconfig).await?.is_empty(), "nothing stands twice any more")?;
    }
    let merged = run(vec!["rollback", "ebs", "1"]).await;
    ensure(merged.is_err(), "a rollback that merges cannot bring back what stood twice")?;
    run(vec!["rollback", "ebs", "1", "--force-replace"]).await?;
    ensure(named(&kubeconfig).await? == REPEATED, "the release is what it was")?;
    run(vec!["uninstall", "ebs"]).await
}

/// What the Go driver's chart 2.64 renders where `controller.env` repeats the two variables that
/// the chart takes from a Secret.
fn go_driver() -> Value {
    let secret = |name: &str, key: &str| {
        let from = json!({"name": "aws-secret", "key": key, "optional": true});
        json!({"name": name, "valueFrom": {"secretKeyRef": from}})
    };
    let labels = json!({
        "app": DEPLOYMENT, "app.kubernetes.io/name": "aws-ebs-csi-driver",
        "app.kubernetes.io/instance": "ebs",
    });
    let mut env = vec![
        json!({"name": "CSI_ENDPOINT", "value": "unix:///var/lib/csi/sockets/pluginproxy/csi.sock"}),
        secret(REPEATED[0], "key_id"),
        secret(REPEATED[1], "access_key"),
        json!({"name": "AWS_REGION", "value": "eu-west-1"}),
    ];
    env.extend(given());
    let container = json!({"name": "ebs-plugin", "image": "x", "env": env});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": DEPLOYMENT, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    })
}

/// `controller.env`.
fn given() -> [Value; 2] {
    REPEATED.map(|name| json!({"name": name, "value": "given"}))
}

/// Returns this chart's Deployment with the same values.
async fn rendered(helm: &Path, directory: &Path) -> TestResult<Value> {
    let values = directory.join("values.json");
    let given = json!({
        "image": {"containerRegistry": "registry.example.com"},
        "controller": {"region": "eu-west-1", "env": given()},
    });
    std::fs::write(&values, given.to_string())?;
    let objects = manifests::render(helm, ("ebs", NAMESPACE), Some(&values), &[]).await?;
    let of = |object: &Value| object["kind"] == "Deployment";
    Ok(objects.into_iter().find(of).ok_or("no Deployment")?)
}

/// Writes a chart of that one object.
fn chart(directory: &Path, name: &str, object: &Value) -> TestResult<PathBuf> {
    let chart = directory.join(name);
    std::fs::create_dir_all(chart.join("templates"))?;
    let about = "apiVersion: v2\nname: aws-ebs-csi-driver\nversion: 1.0.0\n";
    std::fs::write(chart.join("Chart.yaml"), about)?;
    std::fs::write(chart.join("templates/deployment.yaml"), object.to_string())?;
    Ok(chart)
}

/// Returns the variables that the preflight finds more than once.
async fn named(kubeconfig: &Path) -> TestResult<Vec<&'static str>> {
    let mut command = Command::new(program("ebs-csi-node-lifecycle")?);
    command.arg("preflight").arg(format!("--kubeconfig={}", kubeconfig.display())).env_clear();
    let said = String::from_utf8_lossy(&output(command).await?.stdout)
        .lines()
        .filter(|line| line.contains(NAMESPACE) && line.contains("more than once"))
        .collect::<String>();
    Ok(REPEATED.into_iter().filter(|name| said.contains(&format!("ebs-plugin {name}"))).collect())
}

fn variables(deployment: &Value) -> Vec<&str> {
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array();
    let plugin = containers.into_iter().flatten().find(|it| it["name"] == "ebs-plugin");
    let all = plugin.and_then(|it| it["env"].as_array()).into_iter().flatten();
    all.filter_map(|it| it["name"].as_str()).collect()
}
