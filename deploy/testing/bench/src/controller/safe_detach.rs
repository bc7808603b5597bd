//! The cost of evidence: EC2 calls of a healthy unpublish in each mode, and of one question about
//! many suspect instances.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ebs_csi_proto::DRIVER_NAME;
use ebs_csi_proto::safe_detach::safe_detach_client::SafeDetachClient;
use ebs_csi_proto::safe_detach::{Node, QueryInstancesRequest};
use ebs_csi_sandbox::co::{Claim, Observer, safe_detach};
use ebs_csi_sandbox::{World, ZONE};
use tonic::transport::Endpoint;

use crate::contestant::Contestant;
use crate::error::{Result, failed_call};
use crate::extent::Extent;
use crate::report::figure::{Figure, Role, Statistic};
use crate::world::{calls_of, float, instance};

const MODES: [(&str, Role); 3] =
    [("ec2-only", Role::Ours), ("off", Role::Bound), ("enforce", Role::Part)];

/// The actions that an unpublish may call.
const OF_A_DETACH: [&str; 3] = ["DescribeInstances", "DescribeVolumes", "DetachVolume"];

/// The time after an attach from which the driver no longer attributes a read without the
/// attachment to eventual consistency.
const SETTLED: Duration = Duration::from_secs(3);

/// EC2's limit of values in one filter.
const IN_ONE_CALL: usize = 200;

pub(super) async fn measure(driver: &Contestant, extent: Extent) -> Result<Vec<Figure>> {
    Ok(vec![unpublish(driver, extent.of(1, 5, 5)).await?, suspects(driver, extent).await?])
}

/// Starts the controller in this mode. Returns also its SafeDetach socket, which it serves to this
/// process.
async fn world(driver: &Contestant, instances: usize, mode: &str) -> Result<(World, PathBuf)> {
    let mut world = driver.unlimited_world(instances).await?;
    let uid = rustix::process::geteuid().as_raw();
    let (socket, flags) = safe_detach(world.controller_socket(), mode, uid);
    world.restart_controller(&flags).await?;
    Ok((world, socket))
}

async fn unpublish(driver: &Contestant, rounds: usize) -> Result<Figure> {
    let mut figure = Figure::new(
        "safe-detach-calls",
        "EC2 calls for the unpublish of a volume that is released, EC2 at 0 ms",
        "calls",
    )
    .at_most_times_bound(Statistic::Median, 1.0)
    .note("The bound is mode off, which asks for no evidence. In enforce the driver also asks for kubelet's report, and for EC2's view of the volume. The volume was attached three seconds before, so no read can be older than the attach.");
    for (mode, role) in MODES {
        let (world, socket) = world(driver, 1, mode).await?;
        let (co, node) = (world.co()?, instance(0));
        let observer = match mode {
            "off" => None,
            _ => Some(Observer::start(&socket).await?),
        };
        if let Some(observer) = &observer {
            let released = Node {
                provider_id: format!("aws:///{ZONE}/{node}"),
                ready: true,
                lease_age_ms: Some(0),
                volumes_in_use: vec![format!("kubernetes.io/csi/{DRIVER_NAME}^vol-of-another")],
                ..Node::default()
            };
            observer.set_node(&node, released);
        }
        let volume = co.create(&Claim::filesystem("pvc", "ext4", 1)).await?;
        let mut samples = Vec::new();
        for _ in 0..rounds {
            co.attach(&volume, &node).await?;
            tokio::time::sleep(SETTLED).await;
            let before = calls_of(&world, &OF_A_DETACH).await?;
            co.detach(&volume.id, &node).await?;
            samples.push(calls_of(&world, &OF_A_DETACH).await? - before);
        }
        figure = figure.row(role, mode, samples);
        drop(observer);
        world.shutdown().await?;
    }
    Ok(figure)
}

async fn suspects(driver: &Contestant, extent: Extent) -> Result<Figure> {
    let most = extent.of(400, 5_000, 5_000);
    let (world, socket) = world(driver, most, "enforce").await?;
    let address = format!("unix://{}", socket.display());
    let endpoint = Endpoint::from_shared(address).map_err(std::io::Error::other)?;
    let mut client = SafeDetachClient::new(endpoint.connect_lazy());
    let mut figure = Figure::new(
        "safe-detach-suspects",
        "EC2 calls for one question about suspect instances",
        "calls",
    )
    .at_most_times_bound(Statistic::Greatest, 1.0)
    .note("EC2 takes 200 instances in one call; the bound is one call for each 200.");
    for (number, role, bound) in
        [(IN_ONE_CALL, Role::Ours, Role::Bound), (most, Role::Part, Role::Part)]
    {
        let (mut samples, mut slowest) = (Vec::new(), 0.0_f64);
        for _ in 0..extent.of(2, 10, 10) {
            let request = QueryInstancesRequest {
                instance_ids: (0..number).map(instance).collect(),
                ..QueryInstancesRequest::default()
            };
            let (before, asked) = (calls_of(&world, &["DescribeInstances"]).await?, Instant::now());
            let answer = client.query_instances(request).await;
            let answer = answer.map_err(|status| failed_call("QueryInstances", &status))?;
            slowest = slowest.max(asked.elapsed().as_secs_f64());
            samples.push(calls_of(&world, &["DescribeInstances"]).await? - before);
            let verdicts = answer.into_inner().answers.into_iter().filter_map(|one| one.verdict);
            let seen = verdicts.filter(|verdict| verdict.token == "running").count();
            if seen != number {
                return Err(format!("{seen} of {number} instances were seen running").into());
            }
        }
        let least = float(number.div_ceil(IN_ONE_CALL));
        figure = figure
            .row(role, &format!("{number} instances"), samples)
            .row(bound, &format!("{number} instances, least"), vec![least])
            .note(format!("{number} instances: the slowest answer took {:.0} ms.", slowest * 1e3));
    }
    world.shutdown().await?;
    Ok(figure)
}
