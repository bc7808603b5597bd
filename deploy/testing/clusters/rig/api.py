"""The Kubernetes API over one connection, with an administrator's certificate."""

import http.client
import json
import ssl
import time

from .network import CONTROL

# Path and whether it has a namespace, by kind.
_PATHS = {
    "Namespace": ("/api/v1", "namespaces", False),
    "Node": ("/api/v1", "nodes", False),
    "Pod": ("/api/v1", "pods", True),
    "Event": ("/api/v1", "events", True),
    "Secret": ("/api/v1", "secrets", True),
    "ConfigMap": ("/api/v1", "configmaps", True),
    "ServiceAccount": ("/api/v1", "serviceaccounts", True),
    "PersistentVolume": ("/api/v1", "persistentvolumes", False),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims", True),
    "Deployment": ("/apis/apps/v1", "deployments", True),
    "DaemonSet": ("/apis/apps/v1", "daemonsets", True),
    "StatefulSet": ("/apis/apps/v1", "statefulsets", True),
    "Role": ("/apis/rbac.authorization.k8s.io/v1", "roles", True),
    "RoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "rolebindings", True),
    "ClusterRole": ("/apis/rbac.authorization.k8s.io/v1", "clusterroles", False),
    "ClusterRoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", False),
    "Lease": ("/apis/coordination.k8s.io/v1", "leases", True),
    "StorageClass": ("/apis/storage.k8s.io/v1", "storageclasses", False),
    "CSINode": ("/apis/storage.k8s.io/v1", "csinodes", False),
    "VolumeAttributesClass": ("/apis/storage.k8s.io/v1", "volumeattributesclasses", False),
    "VolumeAttachment": ("/apis/storage.k8s.io/v1", "volumeattachments", False),
    "VolumeSnapshot": ("/apis/snapshot.storage.k8s.io/v1", "volumesnapshots", True),
    "VolumeSnapshotClass": ("/apis/snapshot.storage.k8s.io/v1", "volumesnapshotclasses", False),
    "VolumeSnapshotContent": ("/apis/snapshot.storage.k8s.io/v1", "volumesnapshotcontents", False),
    "VolumeGroupSnapshot": ("/apis/groupsnapshot.storage.k8s.io/v1", "volumegroupsnapshots", True),
    "VolumeGroupSnapshotClass": (
        "/apis/groupsnapshot.storage.k8s.io/v1", "volumegroupsnapshotclasses", False),
    "VolumeGroupSnapshotContent": (
        "/apis/groupsnapshot.storage.k8s.io/v1", "volumegroupsnapshotcontents", False),
}


class ApiError(Exception):
    """The API server's refusal."""

    def __init__(self, status, method, path, body):
        super().__init__(f"{method} {path}: {status} {body[:400]}")
        self.status = status


class Api:
    """Requests to the API server. Not for several threads."""

    def __init__(self, certificates):
        self._tls = ssl.create_default_context(cafile=str(certificates.authority))
        self._tls.load_cert_chain(certificates.path("admin.crt"), certificates.path("admin.key"))
        self._connection = None

    def request(self, method, path, body=None, content_type="application/json", user=None):
        payload = None if body is None else json.dumps(body)
        headers = {"Content-Type": content_type, "Accept": "application/json"}
        if user:
            headers["Impersonate-User"] = user
        for attempt in (1, 2):
            try:
                if self._connection is None:
                    self._connection = http.client.HTTPSConnection(
                        CONTROL, 443, context=self._tls, timeout=30)
                self._connection.request(method, path, payload, headers)
                response = self._connection.getresponse()
                text = response.read().decode()
                break
            except (OSError, http.client.HTTPException):
                self._connection = None
                if attempt == 2:
                    raise
        if response.status >= 300:
            raise ApiError(response.status, method, path, text)
        return json.loads(text) if text.startswith("{") else text

    def ready(self):
        try:
            return self.request("GET", "/readyz") == "ok"
        except (OSError, ApiError, http.client.HTTPException):
            return False

    @staticmethod
    def path(kind, name=None, namespace=None):
        prefix, plural, namespaced = _PATHS[kind]
        middle = f"/namespaces/{namespace}" if namespaced and namespace else ""
        return f"{prefix}{middle}/{plural}" + (f"/{name}" if name else "")

    def get(self, kind, name, namespace=None):
        """The object, None if there is none."""
        try:
            return self.request("GET", self.path(kind, name, namespace))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, kind, namespace=None, labels=None):
        query = f"?labelSelector={labels}" if labels else ""
        return self.request("GET", self.path(kind, None, namespace) + query).get("items", [])

    def apply(self, *objects):
        """Server-side apply."""
        for one in objects:
            meta = one["metadata"]
            path = self.path(one["kind"], meta["name"], meta.get("namespace"))
            self.request("PATCH", f"{path}?fieldManager=rig&force=true", one,
                         "application/apply-patch+yaml")

    def create(self, one):
        meta = one["metadata"]
        return self.request("POST", self.path(one["kind"], None, meta.get("namespace")), one)

    def patch(self, kind, name, namespace, change, subresource="", user=None):
        """A merge patch, as another user where one is named."""
        return self.request("PATCH", self.path(kind, name, namespace) + subresource, change,
                            "application/merge-patch+json", user)

    def delete(self, kind, name, namespace=None, grace=None):
        query = "" if grace is None else f"?gracePeriodSeconds={grace}"
        try:
            self.request("DELETE", self.path(kind, name, namespace) + query)
        except ApiError as error:
            if error.status != 404:
                raise

    def wait(self, what, holds, seconds, pause=0.1):
        """Waits until `holds` returns something true, and returns that."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                found = holds()
            except (OSError, http.client.HTTPException):
                found = None
            if found:
                return found
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not within {seconds:g} s")
            time.sleep(pause)
