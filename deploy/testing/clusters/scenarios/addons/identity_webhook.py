"""The webhook that gives pods an AWS identity: its own program where `--identity-webhook` names it,
else a stand-in, because no package registry has the program. The stand-in makes the documented
changes: https://docs.aws.amazon.com/eks/latest/userguide/pod-configuration.html"""

import base64
import contextlib
import http.server
import json
import ssl
import threading

from rig.api import Api
from rig.network import CONTROL

ROLE_ANNOTATION = "eks.amazonaws.com/role-arn"
TOKEN_VOLUME = "aws-iam-token"
AUDIENCE = "sts.amazonaws.com"
_SKIP = "eks.amazonaws.com/skip-containers"
_DIRECTORY = "/var/run/secrets/eks.amazonaws.com/serviceaccount"
TOKEN_FILE = f"{_DIRECTORY}/token"
_PORT = 4443
_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_NAME = "pod-identity-webhook"


@contextlib.contextmanager
def serving(rig):
    """Has the API server ask the webhook about each new pod. Returns what serves."""
    rig.certificates.sign(_NAME, f"/CN={_NAME}", f"IP:{CONTROL}")
    key, certificate = (rig.certificates.path(f"{_NAME}.{end}") for end in ("key", "crt"))
    if rig.identity_webhook:
        rig.state.start(_NAME, [
            rig.identity_webhook, "--in-cluster=false", f"--port={_PORT}", "--metrics-port=4444",
            f"--kubeconfig={rig.certificates.path('admin.kubeconfig')}",
            f"--tls-key={key}", f"--tls-cert={certificate}", "--v=4",
        ], "control")
    else:
        _stand_in(rig, key, certificate)
    authority = str(rig.certificates.authority)
    rig.api.wait("webhook serves",
                 lambda: ssl.get_server_certificate((CONTROL, _PORT), ca_certs=authority), 30)
    rig.api.request("POST", _CONFIGURATIONS, _configuration(rig))
    try:
        yield "the webhook's own program" if rig.identity_webhook else "the webhook's stand-in"
    finally:
        rig.api.request("DELETE", f"{_CONFIGURATIONS}/{_NAME}")
        rig.state.stop(_NAME)


def _configuration(rig):
    authority = base64.b64encode(rig.certificates.authority.read_bytes()).decode()
    return {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": _NAME},
        "webhooks": [{
            "name": "pod-identity-webhook.amazonaws.com", "failurePolicy": "Ignore",
            "clientConfig": {"url": f"https://{CONTROL}:{_PORT}/mutate", "caBundle": authority},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                       "resources": ["pods"]}],
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
        }],
    }


def _stand_in(rig, key, certificate):
    """Serves in a thread, to this process's end."""
    api = Api(rig.certificates)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):  # pylint: disable=invalid-name
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
            changes = _changes(api, asked["namespace"], asked["object"])
            patch = base64.b64encode(json.dumps(changes).encode()).decode()
            answer = json.dumps({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": {"uid": asked["uid"], "allowed": True, "patchType": "JSONPatch", "patch": patch},
            }).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer((CONTROL, _PORT), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def _changes(api, namespace, pod):
    """The JSON patch for a pod: none where its account has no role."""
    spec, annotations = pod["spec"], pod["metadata"].get("annotations", {})
    account = api.get("ServiceAccount", spec.get("serviceAccountName", "default"), namespace)
    role = account["metadata"].get("annotations", {}).get(ROLE_ANNOTATION)
    if not role:
        return []
    token = {"audience": AUDIENCE, "expirationSeconds": 86400, "path": "token"}
    volume = {"name": TOKEN_VOLUME, "projected": {"sources": [{"serviceAccountToken": token}]}}
    given = [{"name": "AWS_ROLE_ARN", "value": role},
             {"name": "AWS_WEB_IDENTITY_TOKEN_FILE", "value": TOKEN_FILE}]
    mount = {"name": TOKEN_VOLUME, "mountPath": _DIRECTORY, "readOnly": True}
    changes = [{"op": "add", "path": "/spec/volumes", "value": [volume, *spec.get("volumes", [])]}]
    skipped = annotations.get(_SKIP, "").split(",")
    for kind in ("initContainers", "containers"):
        for number, one in enumerate(spec.get(kind, [])):
            if one["name"] not in skipped:
                value = {**one, "env": [*one.get("env", []), *given],
                         "volumeMounts": [*one.get("volumeMounts", []), mount]}
                changes.append({"op": "replace", "path": f"/spec/{kind}/{number}", "value": value})
    return changes
