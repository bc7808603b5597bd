"""Compares the parameters that each action of the simulator knows with botocore's model of EC2. Arguments: the EC2
endpoint, the file of parameters that are refused on purpose, each EC2 action as NAME?EXAMPLE.

Prints each parameter of a newer model than the file's that is refused, too. Fails for a parameter of the file's own
model that is refused without a reason in the file, and for a reason whose parameter is not refused.
"""

import sys
import tomllib

import boto3
import botocore
from botocore.config import Config
from botocore.exceptions import ClientError

ENDPOINT, FILE, *ACTIONS = (argument.split("?")[0] for argument in sys.argv[1:])
# Sorted behind each parameter of EC2: the simulator names the first one that it does not know.
UNKNOWN = "zz"

ec2 = boto3.client(
    "ec2",
    endpoint_url=ENDPOINT,
    region_name="us-east-1",
    aws_access_key_id="AKID",
    aws_secret_access_key="secret",
    config=Config(retries={"total_max_attempts": 1}, parameter_validation=False),
)
ec2.meta.events.register("before-call.ec2", lambda params, **_: params["body"].update({UNKNOWN: "1"}))


def example(shape):
    """A value of a shape, with each member that it can have."""
    if shape.type_name == "structure":
        return {name: example(member) for name, member in shape.members.items()}
    if shape.type_name == "list":
        return [example(shape.member)]
    return {"boolean": True, "timestamp": "2030-01-01T00:00:00Z", "string": "x"}.get(shape.type_name, 1)


def is_refused(action, parameters):
    """Whether the simulator knows a parameter no more than the unknown one. None: it refuses something else."""
    try:
        ec2._make_api_call(action, parameters)
    except ClientError as e:
        error = e.response["Error"]
        if error["Code"] != "UnknownParameter":
            return None
        return error["Message"] != f"The parameter {UNKNOWN} is not recognized"
    raise AssertionError(f"{action} takes a parameter {UNKNOWN}: {parameters}")


def refused(action):
    """The names of the action's parameters that the simulator refuses."""
    shape = ec2.meta.service_model.operation_model(action).input_shape
    needed = {name: example(shape.members[name]) for name in shape.required_members}
    assert is_refused(action, needed) is False, f"{action} does not refuse {UNKNOWN}: {needed}"
    ask = lambda name: is_refused(action, {**needed, name: example(shape.members[name])})
    return {name for name in shape.members if name not in needed and ask(name)}


with open(FILE, "rb") as file:
    reasons = tomllib.load(file)
described = reasons.pop("botocore")
number = lambda version: tuple(int(part) for part in version.split("."))
found = {(action, name) for action in ACTIONS for name in refused(action)}
listed = {(action, name) for action, names in reasons.items() for name in names}
new = sorted(found - listed)
is_newer = number(botocore.__version__) > number(described)
for action, name in new:
    print(f"new in EC2: {action} {name} (botocore {botocore.__version__}) is refused and not in {FILE}")
stale = sorted(listed - found)
assert not stale, f"not refused any more: {stale}"
assert is_newer or not new, f"refused without a reason: {new}"
print(f"parameters: {len(ACTIONS)} actions compared")
