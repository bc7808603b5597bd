"""What the API server was asked, from its audit log."""

import collections
import datetime
import json

_ACCOUNT = "system:serviceaccount:"


def now():
    """This moment as the audit log writes it."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def events(rig, since=""):
    """The requests that arrived since then and have been answered."""
    with open(rig.state.directory / "apiserver-audit.log", encoding="utf-8") as log:
        for line in log:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # The API server is in the middle of this line.
            if event.get("requestReceivedTimestamp", "") >= since:
                yield event


def account(event):
    """NAMESPACE:NAME of the service account that asked, another user's whole name."""
    return event.get("user", {}).get("username", "").removeprefix(_ACCOUNT)


def forbidden(rig, accounts):
    """The requests of these service accounts that the API server refused."""
    # node-lifecycle's client ends a path without parameters with a question mark.
    return [f"{account(event)}: {event['verb']} {event['requestURI'].removesuffix('?')}"
            for event in events(rig, rig.audited_from)
            if event.get("responseStatus", {}).get("code") == 403 and account(event) in accounts]


def program(event):
    """The program that asked. node-lifecycle and the controller's sidecars share an account;
    node-lifecycle is the one that does not say its name."""
    return event.get("userAgent", "").partition("/")[0] or "ebs-csi-node-lifecycle"


def counts(rig, since, accounts):
    """How many requests these accounts made: by program, verb and resource. Leases are left out:
    leaders renew them whatever else happens."""
    found = collections.Counter()
    for event in events(rig, since):
        about = event.get("objectRef", {})
        resource = "/".join(filter(None, (about.get("resource"), about.get("subresource"))))
        if account(event) in accounts and resource != "leases":
            found[program(event), event["verb"], resource] += 1
    return found
