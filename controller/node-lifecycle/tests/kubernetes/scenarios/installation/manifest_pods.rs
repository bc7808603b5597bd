//! Checks that the API server accepts the pods of the manifests, and that the programs know the
//! flags in them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::environment::driver::program;
use crate::environment::manifests;
use crate::environment::process::output;
use crate::environment::world::{TestResult, World, ensure, wait_until};
use crate::scenarios::Scenario;

pub(crate) fn scenarios<'a>(world: &'a World<'a>) -> Vec<Scenario<'a>> {
    vec![
        Scenario::new("manifests_have_no_unknown_field", taken(world)),
        Scenario::new("chart_objects_have_no_unknown_field", rendered(world)),
        Scenario::new("node_policy_allows_only_the_daemonset", node_policy(world)),
        Scenario::new("programs_accept_the_flags_of_manifests", known()),
    ]
}

async fn taken(world: &World<'_>) -> TestResult {
    let pods = ["controller.yaml", "node.yaml"];
    let others =
        ["sidecars-rbac.yaml", "network-policy/networkpolicy.yaml", "admission/node-policy.yaml"];
    for object in pods.into_iter().chain(others).flat_map(manifests::read) {
        manifests::would_apply(&world.admin, &object).await?;
    }
    // Shows that the API server reports an unknown field.
    let mut odd = manifests::read("controller.yaml").remove(0);
    odd["dta"] = Value::Null;
    let taken = manifests::would_create(&world.admin, &odd).await;
    ensure(taken.is_err(), "a field that does not exist is refused")
}

/// The release and the namespace for which the chart is rendered.
pub(super) const RELEASE: (&str, &str) = ("release", "kube-system");
/// The value without which the chart renders nothing.
pub(super) const REGISTRY: [&str; 2] = ["--set", "image.containerRegistry=registry.example.com"];

/// Kinds of the chart's objects whose definitions Kubernetes does not have.
struct ForeignKinds {
    /// The Go module with the definitions; without a version, the one that the rig uses.
    module: &'static str,
    definitions: &'static [&'static str],
    api_version: &'static str,
    kinds: &'static [&'static str],
}

const FOREIGN_KINDS: [ForeignKinds; 2] = [
    ForeignKinds {
        module: "github.com/kubernetes-csi/external-snapshotter/client/v8",
        definitions: &["config/crd/snapshot.storage.k8s.io_volumesnapshotclasses.yaml"],
        api_version: "snapshot.storage.k8s.io/v1",
        kinds: &["VolumeSnapshotClass"],
    },
    ForeignKinds {
        module: "github.com/prometheus-operator/prometheus-operator@v0.85.0",
        definitions: &[
            "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
            "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
        ],
        api_version: "monitoring.coreos.com/v1",
        kinds: &["ServiceMonitor", "PrometheusRule"],
    },
];

/// Adds the definitions to the API server and waits until it serves them. Without Go or the module,
/// prints why the objects are skipped and returns false.
async fn define(world: &World<'_>, foreign: &ForeignKinds, rig: &Path) -> TestResult<bool> {
    let mut command = Command::new("go");
    command.args(["mod", "download", "-json", foreign.module]).current_dir(rig);
    let Some(found) = output(command).await.ok().filter(|it| it.status.success()) else {
        println!("skipped: no Go module with {}", foreign.kinds.join(", "));
        return Ok(false);
    };
    let found: Value = serde_json::from_slice(&found.stdout)?;
    let directory = PathBuf::from(found["Dir"].as_str().unwrap_or_default());
    for (file, kind) in foreign.definitions.iter().zip(foreign.kinds) {
        let path = directory.join(file);
        let text =
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        for definition in manifests::objects(&text) {
            manifests::create(&world.admin, &definition).await?;
        }
        wait_until(&format!("{kind} is served"), || async {
            manifests::is_served(&world.admin, foreign.api_version, kind).await
        })
        .await?;
    }
    Ok(true)
}

/// Checks what the chart renders with its own values, with those of the rig with real kubelets, and
/// with each set of values in `deploy/install/chart/ci`.
async fn rendered(world: &World<'_>) -> TestResult {
    let Some(helm) = manifests::helm() else { return Ok(()) };
    let rig = manifests::deploy().join("testing/clusters/values.yaml");
    let mut sets = vec![None, Some(rig)];
    for entry in std::fs::read_dir(manifests::deploy().join("install/chart/ci"))? {
        sets.push(Some(entry?.path()));
    }
    let (mut defined, mut undefined) = (Vec::new(), Vec::new());
    for foreign in &FOREIGN_KINDS {
        if define(world, foreign, &manifests::deploy().join("testing/clusters/programs")).await? {
            defined.push(foreign);
        } else {
            undefined.extend(foreign.kinds);
        }
    }
    let mut flags = REGISTRY.to_vec();
    flags.extend(defined.iter().flat_map(|foreign| ["--api-versions", foreign.api_version]));
    let mut shown = Vec::new();
    for set in sets {
        for object in manifests::render(&helm, RELEASE, set.as_deref(), &flags).await? {
            let kind = object["kind"].as_str().unwrap_or_default().to_owned();
            if undefined.contains(&kind.as_str()) {
                continue;
            }
            let taken = manifests::would_apply(&world.admin, &object).await;
            taken.map_err(|why| format!("{set:?}: {why}"))?;
            shown.push(kind);
        }
    }
    for kind in defined.iter().flat_map(|foreign| foreign.kinds) {
        ensure(shown.iter().any(|it| it == kind), &format!("a {kind} was shown"))?;
    }
    ensure(shown.len() > 200, &format!("{} objects were shown", shown.len()))
}

type Change = fn(&mut Value);

/// Pods that have more than the DaemonSet's, each with the words of the refusal.
const MORE: [(Change, &str); 11] = [
    (
        |pod| {
            let agent = &mut pod["spec"]["containers"][0]["securityContext"];
            agent["privileged"] = json!(true);
            agent["allowPrivilegeEscalation"] = json!(true);
        },
        "only mount-helper may be privileged",
    ),
    (
        |pod| {
            let context = json!({"privileged": true});
            push(
                &mut pod["spec"]["initContainers"],
                json!({"name": "more", "image": "x", "securityContext": context}),
            );
        },
        "only mount-helper may be privileged",
    ),
    (
        |pod| {
            let agent = &mut pod["spec"]["containers"][0]["securityContext"];
            push(&mut agent["capabilities"]["add"], json!("NET_ADMIN"));
        },
        "only the capabilities SETUID, SETGID, SETPCAP may be added",
    ),
    (|pod| add_volume(pod, json!({"hostPath": {"path": "/etc"}})), "of the host may be mounted"),
    (|pod| pod["spec"]["hostNetwork"] = json!(true), "namespaces"),
    (|pod| pod["spec"]["hostPID"] = json!(true), "namespaces"),
    (|pod| pod["spec"]["hostIPC"] = json!(true), "namespaces"),
    (|pod| pod["spec"]["automountServiceAccountToken"] = json!(true), "no service account token"),
    (
        |pod| {
            let sources = json!([{"serviceAccountToken": {"path": "token"}}]);
            add_volume(pod, json!({"projected": {"sources": sources}}));
        },
        "no service account token",
    ),
    (|pod| add_volume(pod, json!({"secret": {"secretName": "keys"}})), "no Secret"),
    (
        |pod| {
            let from = json!({"secretKeyRef": {"name": "keys", "key": "id"}});
            let variable = json!({"name": "MORE", "valueFrom": from});
            push(&mut pod["spec"]["containers"][0]["env"], variable);
        },
        "no Secret",
    ),
];

fn add_volume(pod: &mut Value, mut volume: Value) {
    volume["name"] = json!("more");
    push(&mut pod["spec"]["volumes"], volume);
}

fn push(list: &mut Value, entry: Value) {
    if let Some(list) = list.as_array_mut() {
        list.push(entry);
    }
}

/// Checks the policy in a namespace where no other scenario makes pods of nodes.
async fn node_policy(world: &World<'_>) -> TestResult {
    let (namespace, name) = ("kube-public", "of-a-node");
    for mut object in manifests::read("admission/node-policy.yaml") {
        // Other scenarios submit the object under its own name.
        object["metadata"]["name"] = json!("ebs-csi-node-elsewhere");
        if object["kind"] == "ValidatingAdmissionPolicy" {
            let selected = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
            object["spec"]["matchConstraints"]["namespaceSelector"] = selected;
        } else {
            object["spec"]["policyName"] = json!("ebs-csi-node-elsewhere");
        }
        manifests::create(&world.admin, &object).await?;
    }
    let objects = manifests::read("node.yaml");
    let daemonset = objects.iter().find(|object| object["kind"] == "DaemonSet");
    let template = &daemonset.ok_or("no DaemonSet")?["spec"]["template"];
    let labels = &template["metadata"]["labels"];
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
    });
    let changed = |change: Change| {
        let mut pod = pod.clone();
        change(&mut pod);
        pod
    };
    let (first, _) = MORE[0];
    let refused = changed(first);
    // The API server follows a new policy after a moment.
    wait_until("the policy is in force", || async {
        Ok(manifests::would_create(&world.admin, &refused).await.is_err())
    })
    .await?;
    for (change, words) in MORE {
        let taken = manifests::would_create(&world.admin, &changed(change)).await;
        let why = taken.err().map(|why| why.to_string()).unwrap_or_default();
        ensure(why.contains(words), &format!("refused as {words:?}: {why:?}"))?;
    }
    // A pod of somebody else is nothing to the policy.
    let mut other = refused.clone();
    other["metadata"]["labels"] = json!({"app": "other"});
    manifests::would_create(&world.admin, &other).await?;

    manifests::create(&world.admin, &pod).await?;
    let pods: Api<Pod> = Api::namespaced(world.admin.clone(), namespace);
    for (privileged, allowed) in [(false, true), (true, false)] {
        let context = json!({"privileged": privileged});
        let debug = json!({"name": "debug", "image": "x", "securityContext": context});
        let patch = Patch::Strategic(json!({"spec": {"ephemeralContainers": [debug]}}));
        let how = PatchParams { dry_run: true, ..PatchParams::default() };
        let taken = pods.patch_ephemeral_containers(name, &how, &patch).await;
        let what = format!("an ephemeral container, privileged {privileged}: {taken:?}");
        ensure(taken.is_ok() == allowed, &what)?;
    }
    pods.delete(name, &DeleteParams::default().grace_period(0)).await?;
    Ok(())
}

/// Checks the flags with safe detach off, as in the manifest, and on.
async fn known() -> TestResult {
    let programs =
        [("ebs-plugin", "ebs-csi-controller"), ("node-lifecycle", "ebs-csi-node-lifecycle")];
    for (container, name) in programs {
        let shipped = manifests::arguments("controller.yaml", container);
        for (gate, mode, failover) in [("false", "off", "off"), ("true", "enforce", "prove-first")]
        {
            let arguments = shipped.iter().map(|argument| {
                argument
                    .replace("$(SAFE_DETACH_GATE)", gate)
                    .replace("$(SAFE_DETACH_MODE)", mode)
                    .replace("$(FAILOVER)", failover)
            });
            // Arguments are read in order, so `--help` takes effect only when those before it are
            // valid.
            let ended = Command::new(program(name)?)
                .args(arguments)
                .arg("--help")
                .stdout(Stdio::null())
                .output()?;
            let said = String::from_utf8_lossy(&ended.stderr);
            ensure(ended.status.success(), &format!("{name}: {said}"))?;
        }
    }
    Ok(())
}
