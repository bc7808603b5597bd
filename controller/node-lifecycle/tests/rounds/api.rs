//! An API server with a fixed state: lists do not change, and requests for changes are counted.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

/// The objects, and how often each kind of request was made.
#[derive(Debug, Default)]
pub(crate) struct ApiServer {
    /// The objects by the path under which they are read.
    objects: BTreeMap<String, Value>,
    pub(crate) lease: Option<Value>,
    lease_version: u64,
    pub(crate) events: Vec<Value>,
    /// The number of requests by method and kind (`PATCH nodes`).
    requests: BTreeMap<String, usize>,
    pub(crate) forbidden: bool,
}

pub(crate) type SharedApiServer = Arc<Mutex<ApiServer>>;

pub(crate) fn lock(api: &SharedApiServer) -> MutexGuard<'_, ApiServer> {
    api.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the Node object of this number, in one of two zones.
pub(crate) fn node(number: usize, ready: bool) -> Value {
    let zone = ["us-east-1a", "us-east-1b"][number % 2];
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("node-{number:04}"), "uid": format!("uid-{number}"), "resourceVersion": "7",
            "labels": {"topology.kubernetes.io/zone": zone}},
        "spec": {"providerID": format!("aws:///{zone}/{}", instance(number))},
        "status": {
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "Unknown" }}],
            "nodeInfo": {"bootID": "boot-1"},
        },
    })
}

pub(crate) fn instance(number: usize) -> String {
    format!("i-0a{number:015x}")
}

impl ApiServer {
    /// Returns this many nodes, each with a volume; those with a number below `lost` are not Ready.
    pub(crate) fn of(nodes: usize, lost: usize) -> SharedApiServer {
        let mut api = Self::default();
        for number in 0..nodes {
            api.put("/api/v1/nodes", node(number, number >= lost));
            let (name, volume) = (format!("pv-{number:04}"), format!("vol-0a{number:015x}"));
            let driver = ebs_csi_proto::DRIVER_NAME;
            api.put(
                "/api/v1/persistentvolumes",
                json!({"metadata": {"name": name}, "spec": {"csi": {"driver": driver, "volumeHandle": volume}}}),
            );
            api.put(
                "/apis/storage.k8s.io/v1/volumeattachments",
                json!({
                    "metadata": {"name": format!("csi-{number:04}"), "uid": format!("va-{number}"), "resourceVersion": "1",
                        "annotations": {"csi.alpha.kubernetes.io/node-id": instance(number)}},
                    "spec": {"attacher": driver, "nodeName": format!("node-{number:04}"), "source": {"persistentVolumeName": name}},
                }),
            );
        }
        api.put(
            "/apis/storage.k8s.io/v1/csidrivers",
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": {"name": ebs_csi_proto::DRIVER_NAME, "annotations": {"ebs.csi.aws.com/safe-detach": "v1"}}}),
        );
        Arc::new(Mutex::new(api))
    }

    fn put(&mut self, collection: &str, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        self.objects.insert(format!("{collection}/{name}"), object);
    }

    fn object(&mut self, path: &str) -> &mut Value {
        self.objects.get_mut(path).expect("an object of that path")
    }

    fn node(&mut self, number: usize) -> &mut Value {
        self.object(&format!("/api/v1/nodes/node-{number:04}"))
    }

    /// Removes the node's provider id; its CSINode names the instance, and is owned by the Node of
    /// that uid.
    pub(crate) fn name_by_csi_node(&mut self, number: usize, owner: &str) {
        let name = format!("node-{number:04}");
        self.node(number)["spec"] = json!({});
        let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": name, "uid": owner}]);
        let drivers = json!([{"name": ebs_csi_proto::DRIVER_NAME, "nodeID": instance(number)}]);
        self.put(
            "/apis/storage.k8s.io/v1/csinodes",
            json!({"metadata": {"name": name, "ownerReferences": owner}, "spec": {"drivers": drivers}}),
        );
    }

    /// Gives that node the driver's taint, and an evicted pod with the node's volume.
    pub(crate) fn evict(&mut self, number: usize) {
        let (node, volume) = (format!("node-{number:04}"), format!("pv-{number:04}"));
        let about = json!({"instance": instance(number), "launched": "t", "boot": "boot-1"});
        let object = self.node(number);
        object["metadata"]["annotations"] =
            json!({"ebs.csi.aws.com/out-of-service": about.to_string()});
        object["spec"]["taints"] = json!([{"key": "node.kubernetes.io/out-of-service",
            "value": "ebs-safe-detach", "effect": "NoExecute"}]);
        self.bind(&volume, "default");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "db-0", "namespace": "default", "uid": "pod-db-0", "resourceVersion": "5",
                "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": node, "containers": [],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
            "status": {"phase": "Running"},
        });
        self.put("/api/v1/pods", pod.clone());
        self.put("/api/v1/namespaces/default/pods", pod);
    }

    /// Binds the volume to the claim `data` of that namespace.
    fn bind(&mut self, volume: &str, namespace: &str) {
        let object = self.object(&format!("/api/v1/persistentvolumes/{volume}"));
        object["spec"]["claimRef"] = json!({"namespace": namespace, "name": "data"});
        object["status"] = json!({"phase": "Bound"});
    }

    /// Adds a pod on that node in which no container has started, and which uses the volume of the
    /// node of number `volume`.
    pub(crate) fn add_pending_pod(&mut self, namespace: &str, number: usize, volume: usize) {
        self.bind(&format!("pv-{volume:04}"), namespace);
        let pod = json!({
            "metadata": {"name": "db-0", "namespace": namespace, "uid": format!("pod-{namespace}"), "resourceVersion": "5"},
            "spec": {"nodeName": format!("node-{number:04}"),
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
            "status": {"phase": "Pending"},
        });
        self.objects.insert(format!("/api/v1/pods/{namespace}-db-0"), pod);
    }

    /// Adds the node-agent's pod on that node, with the zone that Kubernetes copies or without it.
    pub(crate) fn agent_pod(&mut self, number: usize, copied: bool) {
        let zone = json!({"topology.kubernetes.io/zone": "us-east-1a"});
        let labels = if copied { zone } else { json!({}) };
        let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "ebs-csi-node", "uid": "d", "controller": true}]);
        self.put(
            "/api/v1/namespaces/kube-system/pods",
            json!({
                "metadata": {"name": format!("ebs-csi-node-{number:04}"), "namespace": "kube-system", "uid": format!("pod-{number}"),
                    "resourceVersion": "3", "labels": labels, "ownerReferences": owner},
                "spec": {"nodeName": format!("node-{number:04}")},
            }),
        );
    }

    pub(crate) fn set_instance_type(&mut self, number: usize, instance_type: &str) {
        let labels = &mut self.node(number)["metadata"]["labels"];
        labels["node.kubernetes.io/instance-type"] = json!(instance_type);
    }

    /// Makes kubelet of that node report the node's volume as in use.
    pub(crate) fn use_volume(&mut self, number: usize) {
        let volume = format!("kubernetes.io/csi/ebs.csi.aws.com^vol-0a{number:015x}");
        self.node(number)["status"]["volumesInUse"] = json!([volume]);
    }

    /// Marks the attachment of that node's volume as being deleted, with a detach that was refused
    /// with that token.
    pub(crate) fn refuse(&mut self, number: usize, token: &str) {
        let path = format!("/apis/storage.k8s.io/v1/volumeattachments/csi-{number:04}");
        let object = self.object(&path);
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let message = format!("SafeDetachRefused/{token}: it stays");
        object["status"] = json!({"attached": true, "detachError": {"message": message}});
    }

    /// Returns how often a request (`PATCH nodes`) was made.
    pub(crate) fn count(&self, what: &str) -> usize {
        self.requests.get(what).copied().unwrap_or(0)
    }

    pub(crate) fn count_all(&self) -> usize {
        self.requests.values().sum()
    }

    pub(crate) fn clear_counts(&mut self) {
        self.requests.clear();
    }

    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        let path = path.strip_suffix("/status").unwrap_or(path);
        let kinds = ["nodes", "csinodes", "pods", "persistentvolumes", "volumeattachments"];
        let is_collection = kinds.iter().any(|kind| path.ends_with(kind));
        let kind = path.rsplit('/').nth(usize::from(!is_collection));
        let what = format!("{method} {}", kind.unwrap_or_default());
        *self.requests.entry(what).or_default() += 1;
        if path.contains("/events") {
            // The event is created or repeated.
            let event: Value = serde_json::from_slice(body).unwrap_or_default();
            self.events.push(event.clone());
            return (200, event);
        }
        if path.contains("/leases") {
            return self.lease(body);
        }
        if is_collection {
            let within = format!("{path}/");
            let items = self.objects.range(within.clone()..);
            let items = items.take_while(|(key, _)| key.starts_with(&within));
            let items: Vec<&Value> = items.map(|(_, object)| object).collect();
            let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": items});
            return (200, list);
        }
        if self.forbidden && method == Method::PATCH && path.contains("/pods/") {
            return failure(403, "Forbidden");
        }
        let object = self.objects.get(path).cloned();
        object.map_or_else(|| failure(404, "NotFound"), |object| (200, object))
    }

    /// Answers as the API server does: a write with an outdated version is a conflict.
    fn lease(&mut self, body: &[u8]) -> (u16, Value) {
        if let Ok(mut lease) = serde_json::from_slice::<Value>(body) {
            let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
            if self.lease.as_ref().is_some_and(|known| version(known) != version(&lease)) {
                return failure(409, "Conflict");
            }
            self.lease_version += 1;
            lease["metadata"]["resourceVersion"] = json!(self.lease_version.to_string());
            self.lease = Some(lease);
        }
        self.lease.clone().map_or_else(|| failure(404, "NotFound"), |lease| (200, lease))
    }
}

fn failure(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": reason});
    (code, status)
}

/// Returns a client of this server. A watch never delivers an event.
pub(crate) fn client(api: &SharedApiServer) -> kube::Client {
    let api = Arc::clone(api);
    let service = tower::service_fn(move |request: Request<Body>| {
        let api = Arc::clone(&api);
        async move {
            let (parts, body) = request.into_parts();
            if parts.uri.query().is_some_and(|query| query.contains("watch=true")) {
                std::future::pending::<()>().await;
            }
            let body = body.collect_bytes().await.unwrap_or_default();
            let (code, value) = lock(&api).answer(&parts.method, parts.uri.path(), &body);
            let response = Response::builder().status(code);
            let response = response.body(Body::from(value.to_string().into_bytes()));
            Ok::<_, Infallible>(response.expect("a response"))
        }
    });
    kube::Client::new(service, "kube-system")
}
