"""Clients whose replies are held against botocore's model: an element that the model does not know is an error.

boto3 alone ignores unknown elements, so that a misspelt one would pass unseen.
"""

import xml.etree.ElementTree as ElementTree

import boto3
from botocore.config import Config

CALLED = set()


def local(tag):
    return tag.rsplit("}", 1)[-1]


def walk(element, shape, path):
    """Raises when `element` has a child that `shape` does not."""
    if shape.type_name == "structure":
        names = {}
        for member, target in shape.members.items():
            name = target.serialization.get("name", member)
            names[name] = target
        for child in element:
            name = local(child.tag)
            if name not in names:
                raise AssertionError(f"{path}: the model has no element {name}; it has {sorted(names)}")
            walk(child, names[name], f"{path}/{name}")
    elif shape.type_name == "list":
        item = shape.member.serialization.get("name", "member")
        for child in element:
            if local(child.tag) != item:
                raise AssertionError(f"{path}: a list of {item} has {local(child.tag)}")
            walk(child, shape.member, f"{path}/{item}")
    elif len(element):
        raise AssertionError(f"{path}: a {shape.type_name} has children")


def check(operation_model, response_dict, **_):
    CALLED.add(operation_model.name)
    if response_dict["status_code"] >= 300:
        return
    root = ElementTree.fromstring(response_dict["body"])
    expected = operation_model.name + "Response"
    if local(root.tag) != expected:
        raise AssertionError(f"root is {root.tag}, not {expected}")
    children = list(root)
    if operation_model.service_model.service_name == "sts":
        children = list(root[0])
    else:
        if local(children[0].tag) != "requestId":
            raise AssertionError(f"{expected} does not begin with requestId")
        children = children[1:]
    shape = operation_model.output_shape
    known = {}
    if shape is not None:
        for member, target in shape.members.items():
            known[target.serialization.get("name", member)] = target
    for child in children:
        name = local(child.tag)
        # Replies without members say <return>true</return>, which most models leave out.
        if name == "return":
            continue
        if name not in known:
            raise AssertionError(f"{expected}: the model has no element {name}")
        walk(child, known[name], f"{expected}/{name}")


def client(service, endpoint, region="us-east-1", key="AKID"):
    made = boto3.client(
        service,
        endpoint_url=endpoint,
        region_name=region,
        aws_access_key_id=key,
        aws_secret_access_key="secret",
        config=Config(retries={"total_max_attempts": 1}, read_timeout=20),
    )
    made.meta.events.register("before-parse." + service, check)
    return made
