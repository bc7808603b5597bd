//! Starts etcd, kube-apiserver, kube-controller-manager and external-attacher on loopback ports of
//! their own.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::environment::manifests;
use crate::environment::process::{Process, port};
use crate::environment::world::{TestResult, ensure};

/// The user of node-lifecycle, as the manifests bind it.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:kube-system:ebs-csi-controller-sa";

pub(crate) struct ControlPlane {
    directory: PathBuf,
    server: String,
    programs: PathBuf,
    processes: Vec<Process>,
}

impl ControlPlane {
    /// Starts etcd and the API server; `Err` says why they cannot be started.
    pub(crate) async fn start(directory: &Path) -> TestResult<Self> {
        let programs = programs()?;
        let (client, peer, secure) = (port(), port(), port());
        let mut plane = Self {
            directory: directory.to_owned(),
            server: format!("https://127.0.0.1:{secure}"),
            programs,
            processes: Vec::new(),
        };
        plane.keys()?;
        let etcd = format!("http://127.0.0.1:{client}");
        let peers = format!("http://127.0.0.1:{peer}");
        plane.run(
            "etcd",
            &[
                format!("--data-dir={}", directory.join("etcd").display()),
                format!("--listen-client-urls={etcd}"),
                format!("--advertise-client-urls={etcd}"),
                format!("--listen-peer-urls={peers}"),
                format!("--initial-advertise-peer-urls={peers}"),
                format!("--initial-cluster=default={peers}"),
                "--unsafe-no-fsync".to_owned(),
            ],
        )?;
        let file = |name: &str| directory.join(name).display().to_string();
        plane.run(
            "kube-apiserver",
            &[
                format!("--etcd-servers={etcd}"),
                "--bind-address=127.0.0.1".to_owned(),
                format!("--secure-port={secure}"),
                format!("--cert-dir={}", file("certificates")),
                format!("--token-auth-file={}", file("tokens.csv")),
                "--authorization-mode=RBAC".to_owned(),
                // The manifests describe the mount-helper's container as privileged.
                "--allow-privileged=true".to_owned(),
                format!("--audit-policy-file={}", file("audit.yaml")),
                format!("--audit-log-path={}", file("audit.log")),
                "--endpoint-reconciler-type=none".to_owned(),
                "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
                "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
                format!("--service-account-key-file={}", file("sa.pub")),
                format!("--service-account-signing-key-file={}", file("sa.key")),
                // The pods here have no service account and no kubelet.
                "--disable-admission-plugins=ServiceAccount".to_owned(),
                "--default-not-ready-toleration-seconds=2".to_owned(),
                "--default-unreachable-toleration-seconds=2".to_owned(),
            ],
        )?;
        let admin = plane.client("admin").await?;
        let begun = Instant::now();
        let ready = || http::Request::get("/readyz").body(Vec::new()).expect("a request");
        while admin.request_text(ready()).await.is_err() {
            plane.check()?;
            if begun.elapsed() > Duration::from_secs(90) {
                return Err(format!("no API server: {}", plane.processes[1].tail()).into());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(plane)
    }

    /// Starts the controllers that matter here. Nodes count as silent after ten seconds: leases are
    /// renewed every two, by a machine that may be busy.
    pub(crate) fn start_controllers(&mut self, csi: &Path) -> TestResult {
        let controllers = [
            "node-lifecycle-controller",
            "taint-eviction-controller",
            "pod-garbage-collector-controller",
            "persistentvolume-binder-controller",
            "persistentvolume-attach-detach-controller",
        ];
        self.run(
            "kube-controller-manager",
            &[
                format!("--kubeconfig={}", self.kubeconfig("admin").display()),
                format!("--controllers={}", controllers.join(",")),
                "--secure-port=0".to_owned(),
                "--leader-elect=false".to_owned(),
                "--node-monitor-period=1s".to_owned(),
                "--node-monitor-grace-period=10s".to_owned(),
                "--kube-api-qps=200".to_owned(),
                "--kube-api-burst=400".to_owned(),
            ],
        )?;
        let mut arguments = vec![
            format!("--csi-address={}", csi.display()),
            // The containers of the controller's pod share one account.
            format!("--kubeconfig={}", self.kubeconfig("lifecycle").display()),
            // After a refused detach external-attacher waits long: the nudge is what ends the wait
            // early.
            "--retry-interval-start=60s".to_owned(),
            "--timeout=60s".to_owned(),
        ];
        let is_of_capacity = |argument: &String| {
            argument.starts_with("--kube-api-") || argument.starts_with("--worker-threads")
        };
        let shipped = manifests::arguments("controller.yaml", "csi-attacher");
        arguments.extend(shipped.into_iter().filter(is_of_capacity));
        self.run("csi-attacher", &arguments)
    }

    /// Writes the kubeconfig file of `admin` or `lifecycle`, and returns its path.
    pub(crate) fn kubeconfig(&self, user: &str) -> PathBuf {
        let path = self.directory.join(user).join("kubeconfig");
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: rig, clusters: [{{name: rig, cluster: {{server: \"{}\", insecure-skip-tls-verify: true}}}}], users: [{{name: rig, user: {{token: {user}-token}}}}], contexts: [{{name: rig, context: {{cluster: rig, user: rig}}}}]}}",
            self.server
        );
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        replace(&path, &text);
        path
    }

    /// Writes a kubeconfig file with which the administrator impersonates `user`, and returns its
    /// path.
    pub(crate) fn kubeconfig_as(&self, user: &str) -> PathBuf {
        let text = std::fs::read_to_string(self.kubeconfig("admin")).expect("written");
        let text = text.replace("token: admin-token", &format!("token: admin-token, as: {user}"));
        let path = self.directory.join(format!("{user}.kubeconfig"));
        replace(&path, &text);
        path
    }

    pub(crate) async fn client(&self, user: &str) -> TestResult<Client> {
        client(&self.kubeconfig(user)).await
    }

    /// Returns an error when a process has ended.
    pub(crate) fn check(&mut self) -> TestResult {
        let ended = self.processes.iter_mut().find_map(Process::exit_report);
        ended.map_or(Ok(()), |end| Err(end.into()))
    }

    fn run(&mut self, name: &str, arguments: &[String]) -> TestResult {
        let program = self.programs.join(name);
        let home = self.directory.display().to_string();
        let environment = [("HOME", home.as_str()), ("GOMAXPROCS", "2")];
        let process = Process::start(&self.directory, name, &program, arguments, &environment)?;
        self.processes.push(process);
        Ok(())
    }

    /// Returns the audit log's records of node-lifecycle's requests, without those of
    /// external-attacher, which has the same account.
    fn records(&self) -> TestResult<Vec<Value>> {
        let log = std::fs::read_to_string(self.directory.join("audit.log"))?;
        let records = log.lines().filter_map(|line| serde_json::from_str(line).ok());
        let is_of_attacher = |record: &Value| {
            record["userAgent"].as_str().is_some_and(|agent| agent.starts_with("csi-attacher"))
        };
        Ok(records.filter(|record| !is_of_attacher(record)).collect())
    }

    pub(crate) fn patches(&self, resource: &str, name: &str) -> TestResult<usize> {
        let records = self.records()?;
        let of = records.iter().filter(|record| {
            let object = &record["objectRef"];
            let is_patch = record["verb"] == "patch" && record["responseStatus"]["code"] == 200;
            is_patch && object["resource"] == resource && object["name"] == name
        });
        Ok(of.count())
    }

    /// Returns the verbs and resources that node-lifecycle has been granted so far.
    pub(crate) fn used(&self) -> TestResult<BTreeSet<(String, String)>> {
        let records = self.records()?.into_iter();
        let allowed = records
            .filter(|record| record["annotations"]["authorization.k8s.io/decision"] == "allow");
        let used = allowed.filter_map(|record| {
            let object = &record["objectRef"];
            let resource = object["resource"].as_str()?;
            let resource = match object["subresource"].as_str() {
                Some(subresource) => format!("{resource}/{subresource}"),
                None => resource.to_owned(),
            };
            Some((record["verb"].as_str()?.to_owned(), resource))
        });
        Ok(used.collect())
    }

    fn keys(&self) -> TestResult {
        let audit = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata", "users": [SERVICE_ACCOUNT]}, {"level": "None"}]});
        std::fs::write(self.directory.join("audit.yaml"), audit.to_string())?;
        let tokens = format!(
            "admin-token,admin,1,system:masters\nlifecycle-token,{SERVICE_ACCOUNT},2,system:serviceaccounts\n"
        );
        std::fs::write(self.directory.join("tokens.csv"), tokens)?;
        let (key, public) = (self.directory.join("sa.key"), self.directory.join("sa.pub"));
        for arguments in [
            format!("genrsa -out {} 2048", key.display()),
            format!("rsa -in {} -pubout -out {}", key.display(), public.display()),
        ] {
            let output = Command::new("openssl").args(arguments.split(' ')).output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure(output.status.success(), &format!("openssl {arguments}: {said}"))?;
        }
        Ok(())
    }
}

pub(crate) async fn client(kubeconfig: &Path) -> TestResult<Client> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let options = KubeConfigOptions::default();
    Ok(Client::try_from(kube::Config::from_custom_kubeconfig(file, &options).await?)?)
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // The processes end in the reverse of the order in which they started.
        while self.processes.pop().is_some() {}
    }
}

/// Returns the directory of what the repository's scripts build.
pub(crate) fn cache() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("ebs-csi")
}

/// Returns the directory of the programs; `Err` says which is missing.
pub(crate) fn programs() -> TestResult<PathBuf> {
    let directory = cache().join("kubernetes");
    for name in ["etcd", "kube-apiserver", "kube-controller-manager", "csi-attacher"] {
        let path = directory.join(name);
        if !path.exists() {
            let path = path.display();
            return Err(format!(
                "{path} is not there; ./deploy/testing/clusters/programs/prepare builds it"
            )
            .into());
        }
    }
    let openssl = Command::new("openssl").arg("version").output();
    openssl.map_err(|error| format!("openssl, which makes the keys: {error}"))?;
    Ok(directory)
}

/// Replaces a file that a program of another scenario may be reading.
fn replace(path: &Path, text: &str) {
    let readable = std::fs::Permissions::from_mode(0o644);
    let directory = path.parent().expect("a directory");
    let new = tempfile::Builder::new().permissions(readable).tempfile_in(directory);
    let mut new = new.expect("a file");
    new.write_all(text.as_bytes()).expect("written");
    new.persist(path).expect("replaced");
}
