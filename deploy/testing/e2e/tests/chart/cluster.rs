//! What the chart refuses in the cluster that it looks at: an HTTP server of the test answers for
//! the API server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use ebs_csi_e2e::program::output;
use serde_json::{Value, json};

use crate::{REGISTRY, helm, root};

/// Serves the objects of one kind each: the path of a list or of an object, with the answer; the
/// server's own list of APIs comes after these. Everything else is not found. Returns the server's
/// URL; its threads end with the process.
fn api_server(objects: Vec<(&'static str, Value)>) -> String {
    let resource = |kind: &str, plural: &str, namespaced: bool| {
        json!({"kind": kind, "name": plural, "singularName": "", "namespaced": namespaced,
               "verbs": ["get", "list"]})
    };
    let resources = [
        resource("Node", "nodes", false),
        resource("Namespace", "namespaces", false),
        resource("ServiceAccount", "serviceaccounts", true),
    ];
    let mut answers = objects;
    answers.extend([
        ("/version", json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0"})),
        ("/api", json!({"kind": "APIVersions", "versions": ["v1"]})),
        ("/apis", json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})),
        (
            "/api/v1",
            json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": resources}),
        ),
    ]);
    let answers = Arc::new(answers);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answers = Arc::clone(&answers);
            std::thread::spawn(move || serve(stream, &answers));
        }
    });
    url
}

/// Answers the requests of one connection until it ends.
fn serve(stream: TcpStream, answers: &[(&'static str, Value)]) -> Option<()> {
    let mut writer = stream.try_clone().ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut first = String::new();
        reader.read_line(&mut first).ok()?;
        let path = first.split(' ').nth(1)?.split('?').next()?.to_owned();
        let mut header = String::new();
        while header != "\r\n" {
            header.clear();
            reader.read_line(&mut header).ok().filter(|read| *read > 0)?;
        }
        let missing = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                             "reason": "NotFound", "code": 404});
        let found = answers.iter().find(|(at, _)| *at == path);
        let (status, body) = match found {
            Some((_, body)) => ("200 OK", body.to_string()),
            None => ("404 Not Found", missing.to_string()),
        };
        let length = body.len();
        write!(
            writer,
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
        .ok()?;
    }
}

/// Returns what Helm says when it renders the chart for that cluster. After the rendering Helm asks
/// for more of the API than the server has.
fn said(helm: &Path, server: &str, values: &str) -> String {
    let mut command = Command::new(helm);
    command
        .args(["template", "release", "deploy/install/chart", "--namespace", "kube-system"])
        .args(["--dry-run=server", "--kube-apiserver", server])
        .args(["--values", REGISTRY, "--set", values])
        .current_dir(root());
    output(&mut command).expect_err(values)
}

const RENDERED: &str = "failed to download openapi";

fn node(name: &str, labels: &[(&str, &str)]) -> Value {
    let mut all = json!({"kubernetes.io/os": "linux"});
    for (key, value) in labels {
        all[*key] = json!(value);
    }
    json!({"metadata": {"name": name, "labels": all}})
}

/// An upgrade from the Go driver ends its pods on nodes that the new DaemonSet does not select, in
/// spite of `OnDelete`.
#[test]
fn nodes_of_other_architectures_refuse_the_installation() {
    let Some(helm) = helm() else { return };
    let arch = "kubernetes.io/arch";
    let nodes = json!({"kind": "NodeList", "apiVersion": "v1", "items": [
        node("a", &[(arch, "amd64")]),
        node("b", &[(arch, "arm64"), ("disk", "ebs")]),
        node("auto", &[(arch, "arm64"), ("disk", "ebs"), ("eks.amazonaws.com/compute-type", "auto")]),
        node("windows", &[(arch, "arm64"), ("kubernetes.io/os", "windows")]),
    ]});
    let server = api_server(vec![("/api/v1/nodes", nodes)]);
    let affinity = |operator: &str| {
        let terms = "node.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.\
                     nodeSelectorTerms[0].matchExpressions[0]";
        format!("{terms}.key=disk,{terms}.operator={operator},{terms}.values={{ebs}}")
    };
    for (values, nodes) in [
        ("nameOverride=", "1: b"),
        ("node.affinity=null", "2: b,auto"),
        ("node.nodeSelector.disk=ebs", "1: b"),
        (&affinity("In"), "2: b,auto"),
        (&affinity("Exists"), "2: b,auto"),
        ("node.enableLinux=false,additionalDaemonSets.x.enableLinux=true", "1: b"),
    ] {
        let error = said(&helm, &server, values);
        let nodes = format!("has arm64 nodes ({nodes})");
        for words in [&nodes, "--platform linux/amd64,linux/arm64", "digests.yaml"] {
            assert!(error.contains(words), "{values}: no {words:?} in: {error}");
        }
    }
    for values in [
        "images.architectures={amd64,arm64}",
        "images.architectures=null",
        r"node.nodeSelector.kubernetes\.io/arch=amd64",
        &affinity("NotIn"),
        &affinity("DoesNotExist"),
        "node.enableLinux=false",
    ] {
        let error = said(&helm, &server, values);
        assert!(error.contains(RENDERED), "{values}: {error}");
    }
}

/// The annotation of an account that the chart does not make gives node pods an AWS role as well.
#[test]
fn foreign_node_account_with_aws_role_is_refused() {
    let Some(helm) = helm() else { return };
    let account = json!({"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {
        "name": "shared", "namespace": "kube-system",
        "annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/ebs"}}});
    let path = "/api/v1/namespaces/kube-system/serviceaccounts/shared";
    let server = api_server(vec![(path, account)]);
    let values = "node.serviceAccount.create=false,node.serviceAccount.name=";
    let error = said(&helm, &server, &format!("{values}shared"));
    assert!(error.contains("no AWS role belongs on a node"), "{error}");
    for accepted in ["shared,node.serviceAccount.foreign=true", "other"] {
        let error = said(&helm, &server, &format!("{values}{accepted}"));
        assert!(error.contains(RENDERED), "{accepted}: {error}");
    }
}

/// The sidecar goes on without the definitions, and no VolumeGroupSnapshot would ever be taken.
#[test]
fn group_snapshots_without_definitions_are_refused() {
    let Some(helm) = helm() else { return };
    let path = "/api/v1/namespaces/kube-system";
    let namespace = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "x"}});
    let values = "groupSnapshots.enabled=true";
    let server = api_server(vec![(path, namespace.clone())]);
    let error = said(&helm, &server, values);
    assert!(error.contains("does not serve groupsnapshot.storage.k8s.io/v1"), "{error}");
    let nodes = said(&helm, &server, &format!("{values},nodeComponentOnly=true"));
    assert!(nodes.contains(RENDERED), "{nodes}");
    let group = "groupsnapshot.storage.k8s.io";
    let version = json!({"groupVersion": format!("{group}/v1"), "version": "v1"});
    let served = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [
        {"name": group, "versions": [version.clone()], "preferredVersion": version}]});
    let resources = json!({"kind": "APIResourceList", "groupVersion": format!("{group}/v1"),
                           "resources": []});
    let server = api_server(vec![
        (path, namespace),
        ("/apis", served),
        ("/apis/groupsnapshot.storage.k8s.io/v1", resources),
    ]);
    let accepted = said(&helm, &server, values);
    assert!(accepted.contains(RENDERED), "{accepted}");
}
