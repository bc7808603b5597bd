"""IRSA from the annotation to the volume: a webhook gives the controller's pods a role and a token,
STS takes the token for a session of the role, and its permissions are all that the controller has.
Without the annotation it has none; node pods have nothing with it either."""

from pathlib import Path

from rig.cluster import CONTROLLER, NAMESPACE, NODE, condition
from rig.network import CONTROL
from rig.simulator import EC2_PORT, ROLE
from rig.workload import Space

from ..expect import expect, expect_move
from .identity_webhook import AUDIENCE, ROLE_ANNOTATION, TOKEN_FILE, TOKEN_VOLUME, serving

_CONTAINER = "ebs-plugin"
_IDENTITY = {"AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"}
_ENDPOINT = f"http://{CONTROL}:{EC2_PORT}"
# The rig's own variables without the keys.
_NO_KEYS = {"controller": {"env": [
    {"name": "AWS_EC2_ENDPOINT", "value": _ENDPOINT}, {"name": "AWS_ENDPOINT_URL", "value": _ENDPOINT},
    {"name": "AWS_EC2_METADATA_DISABLED", "value": "true"}]}}
_ANNOTATED = {"controller": {"serviceAccount": {"annotations": {ROLE_ANNOTATION: ROLE}}}}
_CHANGES = ("CreateVolume", "AttachVolume", "DetachVolume", "DeleteVolume")


def play(rig):
    space = Space(rig, "pod-identity")
    with serving(rig) as webhook:
        space.step(f"{webhook} is asked about each new pod")
        _without_annotation(rig, space)
        _with_annotation(rig, space)
        _nodes(rig, space)
        _use(rig, space)
    rig.install()
    rig.wait_installed()


def _without_annotation(rig, space):
    rig.install(_NO_KEYS)

    def said():
        for pod in rig.driver_pods(CONTROLLER):
            variables = _containers(pod)[_CONTAINER]["env"]
            # The chart names a Secret as well, which is not there.
            if not any(one["name"] == "AWS_ACCESS_KEY_ID" and "value" in one for one in variables):
                given = {one["name"] for one in variables} & _IDENTITY
                expect(not given, f"the webhook gave nothing: {given}")
                lines = [line for line in rig.log(pod["metadata"]["name"], _CONTAINER).splitlines()
                         if "no AWS credentials were found" in line]
                if lines and condition(pod, "Ready") == "False":
                    return lines[0]
        return None

    print(f"    {rig.api.wait('a controller that says it has no credentials', said, 90, pause=1)}", flush=True)
    space.step("without the annotation: a controller without credentials says so and is not ready")


def _with_annotation(rig, space):
    rig.install(_NO_KEYS, _ANNOTATED)
    # As the page says: credentials are injected when a pod is created.
    rig.restart(f"deployment/{CONTROLLER}")
    for pod in rig.driver_pods(CONTROLLER):
        for name, container in _containers(pod).items():
            mounted = any(one["name"] == TOKEN_VOLUME for one in container.get("volumeMounts", []))
            given = _variables(container) & _IDENTITY == _IDENTITY
            expect(given == mounted == (name == _CONTAINER), f"{name}: variables {given}, token {mounted}")
        pod = pod["metadata"]["name"]
        rig.api.wait("log names the session",
                     lambda pod=pod: ":assumed-role/ebs-csi/" in rig.log(pod, _CONTAINER), 30)
    space.step(f"with it: role and token in {_CONTAINER} alone, the log names the session of the role")
    pids = [pid for node in rig.nodes for pid in node.processes("ebs-csi-controller")]
    files = [Path(f"/proc/{pid}/root{TOKEN_FILE}") for pid in pids]
    tokens = [file.read_text() for file in files if file.exists()]
    expect(len(tokens) == len(rig.driver_pods(CONTROLLER)), "each controller sees its token")
    for token in tokens:
        _expect_token(rig, token)
    space.step("the token is the account's, for STS alone: the API server refuses it for itself")


def _expect_token(rig, token):
    def review(**more):
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token, **more}}
        return rig.api.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", asked)["status"]

    user = review(audiences=[AUDIENCE]).get("user", {}).get("username")
    expect(user == f"system:serviceaccount:{NAMESPACE}:ebs-csi-controller-sa", f"the token is of {user}")
    expect(not review().get("authenticated"), "the token is none for Kubernetes")


def _nodes(rig, space):
    rig.restart(f"daemonset/{NODE}")
    for pod in rig.driver_pods(NODE):
        for name, container in _containers(pod).items():
            found = {one for one in _variables(container) if one.startswith("AWS_")}
            expect(not found, f"no AWS variable in {name}: {found}")
        tokens = [one["name"] for one in pod["spec"]["volumes"]
                  if any("serviceAccountToken" in source for source in one.get("projected", {}).get("sources", []))]
        expect(not tokens, f"no token volume: {tokens}")
    for node in rig.nodes:
        for program in ("ebs-csi-node-agent", "ebs-csi-mount-helper"):
            for pid in node.processes(program):
                given = Path(f"/proc/{pid}/environ").read_bytes()
                expect(b"AWS_" not in given, f"no AWS variable in {program} of {node.name}")
                expect(not Path(f"/proc/{pid}/root{TOKEN_FILE}").exists(), f"no token in {program}")
    space.step("node pods that started behind the webhook: no AWS variable, no token")


def _use(rig, space):
    """A volume from its claim to its end, by the role's session alone."""
    before = {action: len(rig.simulator.calls(action)) for action in _CHANGES}
    expect_move(space)
    space.remove()
    keys = set()
    for action, count in before.items():
        made = rig.simulator.calls(action)[count:]
        expect(made, f"{action} was called")
        keys |= {one["access_key"] for one in made}
    # No key of the scenario's file, and none of the rig's, begins like a session's.
    expect(all(key.startswith("ASIA") for key in keys), f"sessions made each change: {keys}")
    sessions = [one for one in rig.simulator.calls("AssumeRoleWithWebIdentity") if one["status"] == 200]
    expect({one["parameters"]["RoleArn"] for one in sessions} == {ROLE}, "each session is of the role")
    space.step(f"claim, pod, other node, deletion with the keys of {len(keys)} of {len(sessions)} sessions")


def _containers(pod):
    spec = pod["spec"]
    return {one["name"]: one for one in [*spec.get("initContainers", []), *spec["containers"]]}


def _variables(container):
    return {one["name"] for one in container.get("env", [])}
