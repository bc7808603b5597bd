"""Keys, certificates and kubeconfigs, made with openssl."""

import json
import subprocess

from .network import API_SERVICE, CONTROL


class Certificates:
    """A certificate authority and what it signed, in one directory."""

    def __init__(self, directory):
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.authority = directory / "ca.crt"
        self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "ca.key")
        self._openssl("req", "-x509", "-new", "-key", "ca.key", "-subj", "/CN=rig-ca",
                      "-days", "30", "-out", "ca.crt")
        names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
        addresses = ["127.0.0.1", CONTROL, API_SERVICE]
        self.sign("apiserver", "/CN=kube-apiserver",
                  ",".join([f"DNS:{name}" for name in names] + [f"IP:{one}" for one in addresses]))
        self.sign("apiserver-kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client")
        self._openssl("genrsa", "-out", "sa.key", "2048")
        self._openssl("rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub")
        self.kubeconfig("admin", "/O=system:masters/CN=admin")
        self.kubeconfig("controller-manager", "/CN=system:kube-controller-manager")
        self.kubeconfig("scheduler", "/CN=system:kube-scheduler")

    def _openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], cwd=self.directory, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def path(self, name):
        return self.directory / name

    def sign(self, name, subject, alternatives=None):
        self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key")
        self._openssl("req", "-new", "-key", f"{name}.key", "-subj", subject, "-out", f"{name}.csr")
        usage = ["keyUsage=digitalSignature,keyEncipherment",
                 "extendedKeyUsage=serverAuth,clientAuth"]
        if alternatives:
            usage.append(f"subjectAltName={alternatives}")
        self.path(f"{name}.ext").write_text("\n".join(usage))
        self._openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key",
                      "-CAcreateserial", "-days", "30", "-out", f"{name}.crt",
                      "-extfile", f"{name}.ext")

    def kubeconfig(self, name, subject):
        """A kubeconfig with a client certificate of this subject."""
        self.sign(name, subject)
        cluster = {"server": f"https://{CONTROL}:443", "certificate-authority": str(self.authority)}
        user = {"client-certificate": str(self.path(f"{name}.crt")),
                "client-key": str(self.path(f"{name}.key"))}
        path = self.path(f"{name}.kubeconfig")
        path.write_text(json.dumps({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "rig", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": name}}],
            "current-context": "rig",
        }))
        return path
