"""What the driver's accounts may do in Kubernetes, which container holds a token, and what the
node's processes hold beside the policy."""

import subprocess
from pathlib import Path

from rig.api import ApiError
from rig.cluster import NAMESPACE
from rig.images import SIDECARS

from .expect import expect

_CONTROLLER = f"system:serviceaccount:{NAMESPACE}:ebs-csi-controller-sa"
_NODE = f"system:serviceaccount:{NAMESPACE}:ebs-csi-node-sa"
_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
# Where a compromised account would do the most harm; no role of the driver names them.
_NEVER = (
    ("", "secrets", ""), ("", "configmaps", ""), ("", "serviceaccounts", "token"),
    ("", "pods", "exec"), ("", "nodes", "status"), ("", "nodes", "proxy"), ("", "pods", "ephemeralcontainers"),
    ("rbac.authorization.k8s.io", "clusterroles", ""), ("rbac.authorization.k8s.io", "rolebindings", ""),
    ("apps", "daemonsets", ""), ("apps", "deployments", ""), ("storage.k8s.io", "csidrivers", ""),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", ""),
)
_SECRETS = "var/run/secrets/kubernetes.io/serviceaccount/token"
_WITH_TOKEN = ("ebs-csi-node-lifecycle", *SIDECARS)
_WITHOUT_TOKEN = ("ebs-csi-controller", "ebs-csi-node-agent", "ebs-csi-mount-helper")


def play(rig):
    _roles(rig)
    _node_account(rig)
    _admission(rig)
    _tokens(rig)
    _audit(rig)


def _rules(rig):
    """What the roles bound to the controller's account allow: namespace ("" for all), group,
    resource, verb and object name."""
    api, rules = rig.api, []
    account = _CONTROLLER.rsplit(":", 1)[1]
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        for binding in api.list(kind):
            if not any(one["kind"] == "ServiceAccount" and one["name"] == account
                       for one in binding.get("subjects", [])):
                continue
            namespace = binding["metadata"].get("namespace", "")
            role = api.get(binding["roleRef"]["kind"], binding["roleRef"]["name"],
                           namespace if binding["roleRef"]["kind"] == "Role" else None)
            for rule in role["rules"]:
                rules += [(namespace, group, resource, verb, name)
                          for group in rule["apiGroups"] for resource in rule["resources"]
                          for verb in rule["verbs"] for name in rule.get("resourceNames", [""])]
    return set(rules)


def _allowed(rig, user, namespace, group, resource, verb, name=""):
    resource, _, part = resource.partition("/")
    attributes = {"namespace": namespace, "group": group, "resource": resource, "subresource": part,
                  "verb": verb, "name": name}
    asked = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
             "spec": {"user": user, "resourceAttributes": attributes,
                      "groups": ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}",
                                 "system:authenticated"]}}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return rig.api.request("POST", path, asked)["status"]["allowed"]


def _roles(rig):
    """Each verb of each role is allowed. Every other verb on the same resource is refused, and so is
    a right of one namespace or one object elsewhere."""
    rules, allowed, refused = _rules(rig), 0, 0
    targets = {(namespace, group, resource, name) for namespace, group, resource, _, name in rules}
    for namespace, group, resource, name in sorted(targets):
        asked = {(namespace, name), (namespace, "another" if name else ""),
                 ("default" if namespace else "", name)}
        for where, which in sorted(asked):
            for verb in _VERBS:
                given = any((place, group, resource, verb, one) in rules
                            for place in {where, ""} for one in {which, ""})
                found = _allowed(rig, _CONTROLLER, where, group, resource, verb, which)
                expect(found == given, f"{verb} {resource} {which} in {where or 'all namespaces'} is "
                       f"{'allowed' if given else 'refused'}")
                allowed, refused = allowed + given, refused + (not given)
    for group, resource, part in _NEVER:
        resource = f"{resource}/{part}" if part else resource
        for verb in _VERBS:
            expect(not _allowed(rig, _CONTROLLER, NAMESPACE, group, resource, verb),
                   f"{verb} {resource} is refused")
            refused += 1
    print(f"  controller's account: {allowed} requests allowed, {refused} neighbours refused", flush=True)


def _node_account(rig):
    """The node's account has no right, and no pod mounts its token."""
    rules = {rule[:3] for rule in _rules(rig)} | {("", group, resource) for group, resource, _ in _NEVER}
    for namespace, group, resource in sorted(rules):
        for verb in _VERBS:
            expect(not _allowed(rig, _NODE, namespace, group, resource, verb),
                   f"{verb} {resource} is refused to nodes")
    print(f"  node's account: {len(rules) * len(_VERBS)} requests refused", flush=True)


def _admission(rig):
    """What RBAC allows of a Node, and the admission policy refuses."""
    taint = {"key": "dedicated", "value": "other", "effect": "NoSchedule"}
    dead = {"key": "node.kubernetes.io/out-of-service", "value": "ebs-safe-detach", "effect": "NoExecute"}
    attempts = {
        "a label": {"metadata": {"labels": {"rig.test/label": "x"}}},
        "an annotation": {"metadata": {"annotations": {"rig.test/annotation": "x"}}},
        "unschedulable": {"spec": {"unschedulable": True}},
        "another taint": {"spec": {"taints": [taint]}},
        "out of service, of a ready node": {"spec": {"taints": [dead]}},
    }
    for what, change in attempts.items():
        try:
            rig.api.patch("Node", "n1", None, change, user=_CONTROLLER)
        except ApiError as error:
            expect(error.status in (403, 422) and "ebs-csi-node-lifecycle" in str(error),
                   f"the policy refuses {what}: {error}")
        else:
            raise AssertionError(f"a Node was given {what}")
    print(f"  admission policy: {len(attempts)} changes of a Node refused", flush=True)


def _tokens(rig):
    """Who finds the service account's token in its own root directory."""
    for program in (*_WITH_TOKEN, *_WITHOUT_TOKEN):
        found = [pid for node in rig.nodes for pid in node.processes(program)]
        expect(found, f"{program} runs")
        for pid in found:
            there = Path(f"/proc/{pid}/root/{_SECRETS}").exists()
            expect(there == (program in _WITH_TOKEN), f"{program} has a token: {there}")
    print(f"  token in {', '.join(_WITH_TOKEN)}; in none of {', '.join(_WITHOUT_TOKEN)}", flush=True)


def _audit(rig):
    """The auditor's table of the processes on one node."""
    program = rig.built / "ebs-csi-policy"
    for name, profile in (("ebs-csi-node-agent", "node-agent"), ("ebs-csi-controller", "controller"),
                          ("ebs-csi-node-lifecycle", "node-lifecycle")):
        for pid in rig.node("n1").processes(name):
            done = subprocess.run([program, "audit", "--pid", str(pid), "--as", profile],
                                  capture_output=True, text=True)
            expect(done.returncode == 0, f"{name} holds what the policy gives: {done.stdout}{done.stderr}")
            print("    " + done.stdout.replace("\n", "\n    ").rstrip(), flush=True)
    helper = min(rig.node("n1").processes("ebs-csi-mount-helper"))
    done = subprocess.run([program, "audit", "--tree", str(helper)], capture_output=True, text=True)
    print("    " + done.stdout.replace("\n", "\n    ").rstrip(), flush=True)
    # The rig starts the helper with --sandbox, which the auditor reports.
    deviations = [line for line in done.stdout.splitlines() if "expected" in line]
    expect(deviations and all("sandbox" in line for line in deviations),
           f"nothing but the sandbox policy deviates: {deviations}")
