//! Runs csi-sanity, the conformance test of Kubernetes' storage group, against the driver's
//! sockets.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use ebs_csi_audit::Process;
use ebs_csi_e2e::Fixture;
use ebs_csi_e2e::junit::{self, Verdict};
use ebs_csi_policy::SANDBOX;
use ebs_csi_sandbox::binaries::for_test;

/// The cases that csi-sanity may skip: a part of its message, and the reason.
const SKIPS: &[(&str, &str)] = &[
    ("GetCapacity not supported", "EBS has no pool whose free space could be told"),
    (
        "ControllerPublishVolume.readonly field not supported",
        "EC2 attaches read-write only; read-only is a mount's matter",
    ),
    (
        "SNAPSHOT_ACCESSIBILITY_CONSTRAINTS not supported",
        "a snapshot can be restored in every zone of its Region",
    ),
    ("NodeGetVolumeHealth not supported", "health calls are alpha"),
    ("NodeGetStorageHealth not supported", "health calls are alpha"),
    (
        "GroupControllerService not supported",
        "snapshots of several volumes at once are not offered",
    ),
    ("VolumeGroupSnapshots not supported", "snapshots of several volumes at once are not offered"),
];

/// Returns the path of csi-sanity.
fn program() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| home.as_ref().map(|home| home.join(".cache")));
    let mut places: Vec<PathBuf> = std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).collect())
        .unwrap_or_default();
    places.extend(cache.map(|cache| cache.join("ebs-csi/bin")));
    places.extend(home.map(|home| home.join("go/bin")));
    let found =
        places.into_iter().map(|place| place.join("csi-sanity")).find(|program| program.is_file());
    if found.is_none() {
        println!("skipped: csi-sanity is not there; ./deploy/kubernetes/rig/prepare builds it");
    }
    found
}

/// One run of csi-sanity.
struct Run<'a> {
    program: &'a Path,
    /// `mount` or `block`.
    access: &'a str,
    controller: &'a Path,
    node: &'a Path,
    kubelet_root: &'a Path,
    /// Whether to attach a volume for every slot of the node.
    attach_limit: bool,
}

impl Run<'_> {
    /// Runs csi-sanity. Returns how many cases passed.
    async fn passes(&self, fixture: &Fixture) -> usize {
        let own = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = own.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let parameters = write("parameters.yaml", "type: gp3\niops: \"3000\"\n");
        let changes = write("changes.yaml", "iops: \"3014\"\nthroughput: \"153\"\n");
        let report = own.path().join("report.xml");
        let (mounts, staging) = (
            self.kubelet_root.join("pods/sanity-mount"),
            self.kubelet_root.join("plugins/kubernetes.io/csi/sanity-staging"),
        );
        std::fs::create_dir_all(staging.parent().unwrap()).unwrap();
        let unix = |path: &Path| format!("unix://{}", path.display());
        let mut command = tokio::process::Command::new(self.program);
        command
            .args(["--ginkgo.seed", "1", "--ginkgo.no-color"])
            .arg(format!("--ginkgo.junit-report={}", report.display()))
            .arg(format!("-csi.endpoint={}", unix(self.node)))
            .arg(format!("-csi.controllerendpoint={}", unix(self.controller)))
            .arg(format!("-csi.mountdir={}", mounts.display()))
            .arg(format!("-csi.stagingdir={}", staging.display()))
            .arg(format!("-csi.testvolumeaccesstype={}", self.access))
            .arg(format!("-csi.testvolumesize={}", 10_i64 << 30))
            .arg(format!("-csi.testvolumeexpandsize={}", 11_i64 << 30))
            .arg(format!("-csi.testvolumeparameters={}", parameters.display()))
            .arg(format!("-csi.testvolumemutableparameters={}", changes.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if self.attach_limit {
            command.arg("-csi.testnodevolumeattachlimit");
        }
        let output = tokio::time::timeout(Duration::from_secs(400), command.output())
            .await
            .expect("csi-sanity ends in 400 s")
            .unwrap();
        let words = String::from_utf8_lossy(&output.stdout).into_owned();
        let Ok(xml) = std::fs::read_to_string(&report) else {
            panic!("csi-sanity ended with {} and wrote no report:\n{words}", output.status);
        };
        let cases = junit::parse(&xml).unwrap();
        let mut passed = 0;
        let mut wrong = Vec::new();
        for case in &cases {
            match &case.verdict {
                Verdict::Passed => passed += 1,
                Verdict::Failed(why) => wrong.push(format!("FAILED {}\n{why}", case.name)),
                Verdict::Skipped(why) => match self.reason(why, &case.name) {
                    Some(reason) => println!("skipped: csi-sanity {:?}: {reason}", case.name),
                    None => {
                        wrong.push(format!("SKIPPED for no known reason: {}: {why}", case.name))
                    }
                },
            }
        }
        assert!(
            wrong.is_empty(),
            "csi-sanity ({}):\n{}\n{}",
            self.access,
            wrong.join("\n"),
            fixture.logs()
        );
        assert!(output.status.success(), "csi-sanity failed:\n{words}");
        println!("csi-sanity ({}): {passed} passed", self.access);
        passed
    }

    /// Returns the reason for which a case may be skipped.
    fn reason(&self, words: &str, case: &str) -> Option<&'static str> {
        if words.contains("testnodevolumeattachlimit not enabled") && !self.attach_limit {
            return Some("one run with the attach limit is enough");
        }
        if words == "pending" && case.contains("ListVolumes pagination") {
            return Some("csi-sanity's own authors left it out");
        }
        SKIPS.iter().find(|(part, _)| words.contains(part)).map(|(_, reason)| *reason)
    }
}

async fn against_both_sockets(access: &str, attach_limit: bool) {
    let Some(program) = program() else { return };
    let Some(fixture) = Fixture::with(|options| {
        // csi-sanity requests most volumes without a topology, and they must still be accessible
        // from the node.
        options.one_zone = true;
        options.controller_arguments.push("--enable-volume-health".to_owned());
        options.helper_arguments.extend(["--paths".to_owned(), "any".to_owned()]);
    })
    .await
    else {
        return;
    };
    let node = &fixture.world.nodes[0];
    let passed = Run {
        program: &program,
        access,
        controller: fixture.world.controller_socket(),
        node: &node.csi_socket,
        kubelet_root: &node.kubelet_root,
        attach_limit,
    }
    .passes(&fixture)
    .await;
    assert!(passed > 60, "only {passed} cases ran");
    fixture.finish().await;
}

#[tokio::test]
async fn csi_sanity_passes_with_file_systems() {
    against_both_sockets("mount", true).await;
}

#[tokio::test]
async fn csi_sanity_passes_with_raw_block_volumes() {
    against_both_sockets("block", false).await;
}

/// Returns the deviations of the launcher's processes from their profiles in the policy.
fn deviations(launcher: &ebs_csi_sandbox::Process) -> Vec<String> {
    let root = launcher.pid().and_then(|pid| u32::try_from(pid).ok()).expect("the launcher runs");
    let tree = match Process::tree(root) {
        Ok(tree) => tree,
        Err(error) => return vec![error.to_string()],
    };
    let mut found = Vec::new();
    let mut seen = Vec::new();
    for process in &tree {
        let Some(profile) = process.expected(&tree) else {
            found.push(format!("{} has no profile", process.program));
            continue;
        };
        seen.push(profile.name);
        // The helper was started with `--sandbox`.
        let deviations = process.deviations(profile, SANDBOX);
        found.extend(deviations.iter().map(|what| format!("{}: {what}", profile.name)));
    }
    let driver = ["launcher", "router", "controller", "node-agent"];
    let helper = ["supervisor", "broker", "directories", "opener"];
    let missing = driver.iter().chain(&helper).filter(|needed| !seen.contains(needed));
    found.extend(missing.map(|needed| format!("no {needed} among {seen:?}")));
    found
}

#[tokio::test]
async fn csi_sanity_passes_on_single_mode_all_socket() {
    let Some(program) = program() else { return };
    if for_test(&["aws-ebs-csi-driver"]).is_none() {
        return;
    }
    let Some(mut fixture) = Fixture::with(|options| options.one_zone = true).await else { return };
    let flags = ["--paths=any", "--enable-volume-health", "--snapshot-takeover-wait=1s"];
    let started = fixture.world.start_all(0, &flags).await;
    fixture.must("mode all", async { started }).await;
    // The node-agent and the helper may become ready later than the controller.
    let kubelet = fixture.world.kubelet(0).expect("the launcher's socket");
    fixture.must("NodeGetInfo", kubelet.info()).await;
    let launcher = fixture.world.launcher.as_ref().expect("the launcher");
    let deadline = Instant::now() + Duration::from_secs(20);
    while !deviations(launcher).is_empty() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(deviations(launcher), Vec::<String>::new());
    let passed = Run {
        program: &program,
        access: "mount",
        controller: launcher.socket(),
        node: launcher.socket(),
        kubelet_root: &fixture.world.nodes[0].kubelet_root,
        attach_limit: false,
    }
    .passes(&fixture)
    .await;
    assert!(passed > 60, "only {passed} cases ran");
    let launcher = fixture.world.launcher.as_mut().expect("the launcher");
    assert!(launcher.stop(Duration::from_secs(40)).await.unwrap(), "a process had to be killed");
    let status = launcher.ended().unwrap();
    assert!(status.is_some_and(|status| status.success()), "{status:?}\n{}", fixture.logs());
    fixture.finish().await;
}
