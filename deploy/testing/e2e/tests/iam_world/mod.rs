//! The controller's process under policies, and the requests that a test can send to it.

mod feature;
mod managed;

pub(crate) use feature::Feature;
pub(crate) use managed::managed_policies;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ebs_csi_e2e::repository;
use ebs_csi_proto::csi;
use ebs_csi_proto::csi::identity_client::IdentityClient;
use ebs_csi_proto::safe_detach::FenceRequest;
use ebs_csi_proto::safe_detach::fence_request::Mode as Fence;
use ebs_csi_proto::safe_detach::safe_detach_client::SafeDetachClient;
use ebs_csi_sandbox::binaries::built;
use ebs_csi_sandbox::co::{Claim, Source, Volume};
use ebs_csi_sandbox::{Co, CoError};
use ec2_sim::{Document, OneOrMany, Scenario, Server, ServerOptions};
use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};

/// The node that most features use, so that its instance type is needed again and again.
pub(crate) const NODE: &str = "i-0aaaaaaaaaaaaaaa1";
/// A node of another type, which only one feature uses.
pub(crate) const OTHER_TYPE: &str = "i-0aaaaaaaaaaaaaaa2";
/// A node with the tag that allows fencing it, and without a cluster's tag.
pub(crate) const FENCEABLE: &str = "i-0aaaaaaaaaaaaaaa3";
/// An instance that another cluster may fence.
pub(crate) const ELSEWHERE: &str = "i-0aaaaaaaaaaaaaaa4";
pub(crate) const CLUSTER: &str = "test";

/// Files of `policy/iam`.
#[derive(Clone, Debug)]
pub(crate) struct Policies(BTreeMap<String, Document>);

/// Reads files of `policy/iam`, with the cluster's name where an operator writes it.
pub(crate) fn read_policies(names: &[&str]) -> Policies {
    let read = |name: &&str| {
        let text = repository::read(&format!("policy/iam/{name}.json"));
        let text = text.replace("/NAME", &format!("/{CLUSTER}"));
        let document: Document = serde_json::from_str(&text).expect("a policy document");
        ((*name).to_owned(), document)
    };
    Policies(names.iter().map(read).collect())
}

impl Policies {
    fn without(&self, policy: &str, statement: &str, action: &str) -> Self {
        let mut out = self.clone();
        let document = out.0.get_mut(policy).expect("the policy");
        let mut statements = document.statement.all().to_vec();
        for s in &mut statements {
            if s.sid.as_deref() == Some(statement) {
                let mut left = s.action.all().to_vec();
                left.retain(|a| a != action);
                s.action = OneOrMany::Many(left);
            }
        }
        statements.retain(|s| !s.action.all().is_empty());
        document.statement = OneOrMany::Many(statements);
        out
    }
}

/// A controller whose EC2 calls are subject to policies.
pub(crate) struct IamWorld {
    server: Server,
    program: PathBuf,
    child: Mutex<Child>,
    identity: IdentityClient<Channel>,
    pub(crate) co: Co,
    fences: SafeDetachClient<Channel>,
    policies: Policies,
    planned: Mutex<Option<Policies>>,
    names: AtomicU32,
    dir: tempfile::TempDir,
}

impl Drop for IamWorld {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn setting(policies: &Policies) -> Value {
    json!({"principals": [{
        "arn": "arn:aws:iam::111122223333:role/ebs-csi", "access_keys": ["AKIADRIVER"],
        "tags": {"eks-cluster-name": CLUSTER}, "policies": policies.0,
    }]})
}

/// Starts the controller's process, with its sockets and its log in `dir`; appends to the log.
fn controller(program: &Path, dir: &Path, aws: &str) -> Child {
    // The owner of a new directory is the user of this process.
    let uid = std::fs::metadata(dir).expect("its owner").uid();
    let log =
        std::fs::File::options().create(true).append(true).open(dir.join("log")).expect("a log");
    let socket = |name: &str| format!("unix://{}", dir.join(name).display());
    Command::new(program)
        .arg(format!("--endpoint={}", socket("csi.sock")))
        .arg(format!("--k8s-tag-cluster-id={CLUSTER}"))
        .args(["--snapshot-takeover-wait=0s", "--enable-group-snapshots"])
        .args(["--feature-gates=NonGracefulFailover=true", "--safe-detach=ec2-only"])
        .args(["--safe-detach-fence=terminate", "--safe-detach-fence-limit=9"])
        .arg(format!("--safe-detach-endpoint={}", socket("safe-detach.sock")))
        .arg(format!("--safe-detach-peers={uid}"))
        .env_clear()
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ENDPOINT_URL", aws)
        .env("AWS_ACCESS_KEY_ID", "AKIADRIVER")
        .env("AWS_SECRET_ACCESS_KEY", "example")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("the controller starts")
}

fn connect(directory: &Path, socket: &str) -> Channel {
    let socket = format!("unix://{}", directory.join(socket).display());
    Endpoint::try_from(socket).expect("a socket").connect_lazy()
}

pub(crate) fn fence_of(id: &str, how: Fence) -> FenceRequest {
    FenceRequest {
        instance_id: id.to_owned(),
        mode: how.into(),
        reason: "a test".to_owned(),
        ..FenceRequest::default()
    }
}

impl IamWorld {
    /// Starts simulator and controller. Prints the reason and returns `None` where the controller
    /// is not built.
    pub(crate) async fn start(policies: Policies) -> Option<Self> {
        let program = built(&["ebs-csi-controller"])?.path("ebs-csi-controller").ok()?;
        let dir = tempfile::tempdir().expect("a directory");
        let scenario: Scenario = serde_json::from_value(json!({
            "profile": "instant", "limits": {"enabled": false}, "iam": setting(&policies),
            "quotas": {"modifications_per_day": 100},
            "instances": [
                {"id": NODE, "type": "m5.large", "zone": "us-east-1a", "tags": {"eks:cluster-name": CLUSTER}},
                {"id": OTHER_TYPE, "type": "c5.large", "zone": "us-east-1a", "tags": {"ebs.csi.aws.com/cluster-name": CLUSTER}},
                {"id": FENCEABLE, "type": "m5.large", "zone": "us-east-1a", "tags": {"ebs.csi.aws.com/fence": CLUSTER}},
                {"id": ELSEWHERE, "type": "m5.large", "zone": "us-east-1a", "tags": {"ebs.csi.aws.com/fence": "another"}},
            ],
            "zones": [{"name": "us-east-1a", "id": "use1-az6"}],
        }))
        .expect("a scenario");
        let server = Server::start(ServerOptions {
            state_dir: dir.path().join("ec2"),
            scenario,
            devices: ec2_sim::DeviceMode::None,
            listen: "127.0.0.1:0".parse().expect("an address"),
        })
        .await
        .expect("the simulator starts");
        let child = controller(&program, dir.path(), &server.ec2());
        let mut co = Co::new(&dir.path().join("csi.sock"), "").expect("a socket");
        co.provisioner = co.provisioner.once();
        co.attacher = co.attacher.once();
        let world = Self {
            server,
            program,
            child: Mutex::new(child),
            identity: IdentityClient::new(connect(dir.path(), "csi.sock")),
            co,
            fences: SafeDetachClient::new(connect(dir.path(), "safe-detach.sock")),
            policies,
            planned: Mutex::new(None),
            names: AtomicU32::new(0),
            dir,
        };
        world.ready().await;
        Some(world)
    }

    async fn ready(&self) {
        let mut identity = self.identity.clone();
        for _ in 0..2_000 {
            if identity.probe(csi::ProbeRequest {}).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the controller does not get ready\n{}", self.log());
    }

    /// Kills the controller and starts another one, which has no memory of the first.
    pub(crate) async fn restart(&self) {
        {
            let mut child = self.child.lock().expect("a lock");
            child.kill().expect("kill");
            child.wait().expect("its end");
            *child = controller(&self.program, self.dir.path(), &self.server.ec2());
        }
        self.ready().await;
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn report(&self) -> Value {
        self.server.with_sim(|sim, _| sim.iam.report())
    }

    fn enforce(&self, policies: &Policies) {
        let setting = serde_json::from_value(setting(policies)).expect("a setting");
        self.server.with_sim(|sim, _| sim.iam.change(setting)).expect("policies");
    }

    /// Plans to run the last step of the next feature without this action.
    pub(crate) fn plan_without(&self, policy: &str, statement: &str, action: &str) {
        self.plan(self.policies.without(policy, statement, action));
    }

    /// Plans to run the last step of the next feature under these policies.
    pub(crate) fn plan(&self, policies: Policies) {
        *self.planned.lock().expect("a lock") = Some(policies);
    }

    /// Puts all policies in force again.
    pub(crate) fn restore(&self) {
        self.planned.lock().expect("a lock").take();
        self.enforce(&self.policies);
    }

    /// Puts the planned policies in force.
    fn last_step(&self) {
        if let Some(planned) = self.planned.lock().expect("a lock").take() {
            self.enforce(&planned);
        }
    }

    fn name(&self, kind: &str) -> String {
        format!("{kind}-{}", self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns whether somebody with the driver's role may make this call.
    pub(crate) fn may(&self, action: &str, parameters: &[(&str, &str)]) -> bool {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("Action", action)
            .append_pair("Version", "2016-11-15")
            .append_pair("DryRun", "true")
            .extend_pairs(parameters);
        let request = ec2_sim::Request {
            form: form.finish().into_bytes(),
            authorization: Some(
                "AWS4-HMAC-SHA256 Credential=AKIADRIVER/20260101/us-east-1/ec2/aws4_request, SignedHeaders=host, Signature=0"
                    .to_owned(),
            ),
            ..ec2_sim::Request::default()
        };
        let reply = self.server.with_sim(|sim, now| sim.handle(now, &request));
        let body = String::from_utf8_lossy(&reply.body);
        let is_allowed = body.contains("DryRunOperation");
        assert_ne!(is_allowed, body.contains("UnauthorizedOperation"), "{action}: {body}");
        is_allowed
    }

    pub(crate) fn foreign_volume(&self, tags: &[(&str, &str)]) -> String {
        let mut parameters = BTreeMap::from([
            ("AvailabilityZone".to_owned(), "us-east-1a".to_owned()),
            ("Size".to_owned(), "1".to_owned()),
            ("VolumeType".to_owned(), "gp3".to_owned()),
            ("TagSpecification.1.ResourceType".to_owned(), "volume".to_owned()),
        ]);
        let name = self.name("static");
        for (i, (key, value)) in tags.iter().chain(&[("CSIVolumeName", name.as_str())]).enumerate()
        {
            let tag = format!("TagSpecification.1.Tag.{}", i + 1);
            parameters.insert(format!("{tag}.Key"), (*key).to_owned());
            parameters.insert(format!("{tag}.Value"), (*value).to_owned());
        }
        let reply =
            self.server.with_sim(|sim, now| sim.as_foreign(now, "CreateVolume", &parameters));
        let body = String::from_utf8(reply.body).expect("text");
        let id = body.split("<volumeId>").nth(1).and_then(|t| t.split('<').next());
        id.unwrap_or_else(|| panic!("no volume: {body}")).to_owned()
    }

    fn migrated(&self) -> Volume {
        let cluster = format!("kubernetes.io/cluster/{CLUSTER}");
        let claim = ("kubernetes.io/created-for/pvc/name", "claim");
        volume(self.foreign_volume(&[(&cluster, "owned"), claim]))
    }

    fn claim(&self, parameters: &[(&str, &str)], source: Source) -> Claim {
        let claim = Claim::filesystem(&self.name("pvc"), "", 1).from_source(source);
        parameters.iter().fold(claim, |claim, (key, value)| claim.parameter(key, value))
    }

    async fn create(&self, parameters: &[(&str, &str)], source: Source) -> Result<Volume, CoError> {
        self.co.create(&self.claim(parameters, source)).await
    }

    pub(crate) async fn publish(&self, id: &str, node: &str) -> Result<(), CoError> {
        self.co.attach(&volume(id.to_owned()), node).await.map(drop)
    }

    pub(crate) async fn fence(&self, request: FenceRequest) -> Result<(), CoError> {
        let fenced = self.fences.clone().fence(request).await.map(drop);
        fenced.map_err(|status| CoError::Refused {
            rpc: "Fence",
            code: status.code(),
            message: status.message().to_owned(),
            attempts: 1,
            elapsed: Duration::ZERO,
        })
    }

    /// Makes EC2's status checks of the instance fail from now on.
    fn impair(&self, id: &str) {
        let change = serde_json::from_value(json!({"instance": "impaired"})).expect("a change");
        let checks = self.server.with_sim(|sim, now| sim.set_checks(now, id, change));
        assert!(checks.is_some(), "{id} is there");
    }

    async fn modify(&self, volume: &Volume, key: &str, value: &str) -> Result<(), CoError> {
        self.co.modify(&volume.id, &[(key, value)]).await
    }

    async fn snapshot(&self, of: &Volume, parameters: &[(&str, &str)]) -> Result<String, CoError> {
        self.snapshot_named(&self.name("snapshot"), of, parameters).await
    }

    async fn snapshot_named(
        &self,
        name: &str,
        of: &Volume,
        parameters: &[(&str, &str)],
    ) -> Result<String, CoError> {
        Ok(self.co.snapshot(name, &of.id, parameters).await?.id)
    }

    async fn snapshot_of(&self, parameters: &[(&str, &str)]) -> Result<String, CoError> {
        self.snapshot(&self.create(parameters, Source::Blank).await?, &[]).await
    }
}

/// Returns a volume of one GiB that was not made by a claim.
fn volume(id: String) -> Volume {
    Claim::filesystem("", "", 1).volume(id)
}
