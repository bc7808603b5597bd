"""Network namespaces: the control plane with a bridge, and one for each node. Nothing is routed out.

The control plane is 10.77.0.1, node N is 10.77.0.1N; pods of node N are in 10.78.N.0/24. The service
address of the API server is on the control plane's loopback, so that pods reach it without
kube-proxy. Each node has the address of the instance metadata service.
"""

import ctypes
import os
import subprocess

from .state import NAMESPACES, NODES

CONTROL = "10.77.0.1"
API_SERVICE = "10.96.0.1"
METADATA = "169.254.169.254"
# The issuer of service account tokens, without its scheme.
ISSUER = "kubernetes.default.svc"
_CLONE_NEWNET = 0x40000000


def node_address(number):
    return f"10.77.0.1{number}"


def _run(*command):
    subprocess.run(command, check=True)


def _inside(namespace, *command):
    _run("nsenter", f"--net=/run/netns/{NAMESPACES[namespace]}", *command)


def make():
    _run("ip", "netns", "add", NAMESPACES["control"])
    for command in (
        ("ip", "link", "set", "lo", "up"),
        ("ip", "address", "add", f"{API_SERVICE}/32", "dev", "lo"),
        ("ip", "link", "add", "br0", "type", "bridge"),
        ("ip", "address", "add", f"{CONTROL}/24", "dev", "br0"),
        ("ip", "link", "set", "br0", "up"),
        ("sysctl", "-qw", "net.ipv4.ip_forward=1"),
    ):
        _inside("control", *command)
    for number in NODES:
        node = f"n{number}"
        _run("ip", "netns", "add", NAMESPACES[node])
        _run("ip", "link", "add", f"v{number}", "netns", NAMESPACES["control"], "type", "veth",
             "peer", "name", "eth0", "netns", NAMESPACES[node])
        _inside("control", "ip", "link", "set", f"v{number}", "master", "br0", "up")
        _inside("control", "ip", "route", "add", f"10.78.{number}.0/24", "via", node_address(number))
        for command in (
            ("ip", "link", "set", "lo", "up"),
            ("ip", "address", "add", f"{METADATA}/32", "dev", "lo"),
            ("ip", "address", "add", f"{node_address(number)}/24", "dev", "eth0"),
            ("ip", "link", "set", "eth0", "up"),
            ("ip", "route", "add", "default", "via", CONTROL),
            *(("ip", "route", "add", f"10.78.{other}.0/24", "via", node_address(other))
              for other in NODES if other != number),
            ("sysctl", "-qw", "net.ipv4.ip_forward=1"),
        ):
            _inside(node, *command)


def cut(number):
    """Parts a node from everything else."""
    _inside("control", "ip", "link", "set", f"v{number}", "down")


def join(number):
    """Ends `cut`."""
    _inside("control", "ip", "link", "set", f"v{number}", "up")
    _inside("control", "ip", "route", "replace", f"10.78.{number}.0/24", "via", node_address(number))


def enter_control():
    """Moves this process into the control plane's namespace."""
    descriptor = os.open(f"/run/netns/{NAMESPACES['control']}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
    finally:
        os.close(descriptor)
