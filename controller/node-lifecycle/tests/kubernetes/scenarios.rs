//! Lists the scenarios and runs them: most concurrently, those that concern every node one after
//! the other.
//!
//! A new scenario is a line in a subject's `scenarios`, on nodes that no other scenario uses. Its
//! name begins with its number, where `deploy/docs/failure-scenarios.md` gives it one.

use std::os::unix::fs::PermissionsExt;
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use futures_util::future::join_all;

use crate::environment::control_plane::{self, ControlPlane};
use crate::environment::driver::{self, Driver};
use crate::environment::manifests;
use crate::environment::nodes::Nodes;
use crate::environment::world::{TestResult, World, ensure};

mod brake;
mod detach_faults;
mod ec2_outages;
mod fencing;
mod installation;
mod leader;
mod manual_changes;
mod modes;
mod partition;
mod pods;
mod power;
mod reboots;
mod reused_names;
mod shared_volumes;
mod unidentified_nodes;

use installation::{
    examples, helm_upgrade, manifest_pods, node_facts, onboarding, permissions, preflight, repeated,
};

/// The number of nodes in addition to those of the scenarios; with them the brake admits seven
/// nodes.
pub(crate) const EXTRA_NODES: usize = 140;
/// The time after which a scenario that has not ended fails: longer than any of its waits may take,
/// so that a wait that fails tells what is missing.
const WAIT_LIMIT: Duration = Duration::from_secs(1200);

pub(crate) type ScenarioResults = Vec<(&'static str, TestResult)>;

/// A failure scenario, run to its end.
pub(crate) struct Scenario<'a> {
    name: &'static str,
    play: Pin<Box<dyn Future<Output = TestResult> + 'a>>,
}

impl<'a> Scenario<'a> {
    pub(crate) fn new(name: &'static str, play: impl Future<Output = TestResult> + 'a) -> Self {
        Self { name, play: Box::pin(play) }
    }

    /// Plays the scenario. An error also says what Kubernetes knows of attachments that moment.
    async fn end(self, world: &World<'_>) -> (&'static str, TestResult) {
        let outcome = tokio::time::timeout(WAIT_LIMIT, self.play).await;
        let late = |_| Err(format!("not within {WAIT_LIMIT:?}").into());
        let outcome = outcome.unwrap_or_else(late);
        let Err(why) = outcome else { return (self.name, Ok(())) };
        let seen = world.attachment_report().await.unwrap_or_else(|error| error.to_string());
        (self.name, Err(format!("{why}\n{seen}").into()))
    }
}

/// Runs the scenarios whose name contains one of the filters, or all. `Err` says why they cannot
/// run here.
pub(crate) async fn all(filter: &[String]) -> TestResult<ScenarioResults> {
    control_plane::programs()?;
    driver::programs()?;
    let outcomes = begin(filter).await;
    Ok(outcomes.unwrap_or_else(|why| vec![("kubernetes_begins", Err(why))]))
}

async fn begin(filter: &[String]) -> TestResult<ScenarioResults> {
    let scratch = tempfile::tempdir()?;
    // node-lifecycle runs as another user and needs its kubeconfig and its socket in there.
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o755))?;
    let mut plane = ControlPlane::start(scratch.path()).await?;
    let admin = plane.client("admin").await?;
    // Before everything else: it leaves the cluster as it was.
    let repeated = match wanted(repeated::NAME, filter) {
        true => vec![(repeated::NAME, repeated::applied(&admin).await)],
        false => Vec::new(),
    };
    let mut driver = Driver::start(scratch.path(), plane.kubeconfig("lifecycle")).await?;
    let rbac = [
        "node-lifecycle-rbac.yaml",
        "admission/node-facts-rbac.yaml",
        "failover/failover-rbac.yaml",
        "sidecars-rbac.yaml",
    ];
    let policies = ["admission/node-lifecycle-policy.yaml", "failover/safe-detach-policy.yaml"];
    for file in ["csidriver.yaml"].into_iter().chain(policies).chain(rbac) {
        for object in manifests::read(file) {
            manifests::create(&admin, &object).await?;
        }
    }
    let nodes = Nodes::new(admin.clone());
    let renewing = nodes.keep_alive(&plane.kubeconfig("admin"));
    for number in 0..EXTRA_NODES {
        let zone = ["us-east-1a", "us-east-1b", "us-east-1c"][number % 3];
        let name = format!("beside-{number:02}");
        nodes.create(&name, &format!("i-{number:017x}"), zone).await?;
    }
    plane.start_controllers(&driver.csi)?;
    driver.start_lifecycle()?;

    let made = AtomicUsize::new(0);
    let world = World { admin, nodes, driver: &driver, plane: &plane, made };
    let mut outcomes = play(&world, filter).await;
    outcomes.extend(repeated);
    drop(renewing);
    Ok(conclude(outcomes, &mut driver, &mut plane))
}

fn wanted(name: &str, filter: &[String]) -> bool {
    filter.is_empty() || filter.iter().any(|f| name.contains(f.as_str()))
}

async fn play(world: &World<'_>, filter: &[String]) -> ScenarioResults {
    let wanted = |scenario: &Scenario<'_>| wanted(scenario.name, filter);
    let beside = [
        power::scenarios(world),
        reboots::scenarios(world),
        detach_faults::scenarios(world),
        reused_names::scenarios(world),
        partition::scenarios(world),
        unidentified_nodes::scenarios(world),
        onboarding::scenarios(world),
        node_facts::scenarios(world),
        preflight::scenarios(world),
        manual_changes::scenarios(world),
        pods::scenarios(world),
        fencing::scenarios(world),
        shared_volumes::scenarios(world),
        leader::scenarios(world),
        manifest_pods::scenarios(world),
        examples::scenarios(world),
        helm_upgrade::scenarios(world),
    ];
    let beside = beside.into_iter().flatten().filter(wanted);
    let mut outcomes = join_all(beside.map(|scenario| scenario.end(world))).await;
    // The scenarios that concern every node. The last one checks which permissions all others used.
    let after = [
        ec2_outages::scenarios(world),
        brake::scenarios(world),
        modes::scenarios(world),
        // From here on, a node without an agent's page counts as silent.
        detach_faults::evidence::scenarios(world),
        permissions::scenarios(world),
    ];
    for scenario in after.into_iter().flatten().filter(wanted) {
        if let Err(why) = brake::clear_journal(world).await {
            outcomes.push((scenario.name, Err(why)));
            continue;
        }
        outcomes.push(scenario.end(world).await);
    }
    outcomes.push(("EC2_saw_no_violation_of_its_rules", nothing_forbidden(world)));
    outcomes
}

/// Checks that EC2's own rules held throughout: no volume on two instances, no device name twice.
fn nothing_forbidden(world: &World<'_>) -> TestResult {
    let violations = world.driver.violations()?;
    ensure(violations.is_empty(), &violations.join("\n"))
}

/// Prints the logs of the processes when a scenario failed, and counts a process that has ended as
/// a failure.
fn conclude(
    mut outcomes: ScenarioResults,
    driver: &mut Driver,
    plane: &mut ControlPlane,
) -> ScenarioResults {
    let failed = outcomes.iter().any(|(_, outcome)| outcome.is_err());
    let alive = plane.check().and_then(|()| driver.check());
    if failed {
        println!("node-lifecycle:\n{}", driver.lifecycle_log());
        // Queries about suspects arrive every second and would fill the output.
        let log = driver.controller.log();
        let told = log.lines().filter(|line| !line.contains("SafeDetach/Query"));
        println!("controller:\n{}", told.collect::<Vec<_>>().join("\n"));
    }
    if let Err(end) = alive {
        outcomes.push(("every_process_keeps_running", Err(end)));
    }
    outcomes
}
