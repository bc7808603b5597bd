//! F48: a cluster whose volumes move, whose leases are renewed, and whose nodes die and return.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ebs_csi_sandbox::binaries::Binaries;

use super::steady::memory;
use super::testbed::{Size, Testbed, is_tainted, names, node_name, place};
use crate::api_server::{self, kind};
use crate::error::Result;
use crate::extent::Extent;
use crate::process_usage::cpu_seconds;
use crate::report::figure::{Figure, Role, Statistic};

const TICK: Duration = Duration::from_millis(100);
const TICKS_PER_SECOND: usize = 10;
/// The interval of a kubelet's lease renewals, and the interval of its writes of the node's status,
/// both in seconds.
const LEASE: usize = 10;
const STATUS: usize = 300;
/// The longest wait at the end of the run.
const TIMEOUT: Duration = Duration::from_secs(120);

struct Rates {
    seconds: usize,
    moves_per_second: usize,
    death_every_seconds: usize,
}

pub(super) async fn measure(binaries: &Binaries, extent: Extent) -> Result<Vec<Figure>> {
    let size = Size {
        nodes: extent.of(60, 5_000, 5_000),
        volumes_per_node: extent.of(5, 25, 25),
        pods_without_volumes: 0,
        query_seconds: extent.of(1, 3, 3),
    };
    let rates = Rates {
        seconds: extent.of(8, 120, 600),
        moves_per_second: extent.of(5, 20, 20),
        death_every_seconds: extent.of(3, 5, 5),
    };
    let mut testbed = Testbed::start(binaries, size).await?;
    let title = format!("F48: memory of node-lifecycle, {} volumes a node", size.volumes_per_node);
    let memory = memory(&mut testbed, "failover-churn-memory", &title).await?;
    let result = Churn::new(&testbed).run(&rates).await?;
    let note = format!(
        "F48: {} nodes with {} volumes each; for {} s {} volumes a second move to another node with their pods, every lease is renewed each {LEASE} s, every Node object is written each {STATUS} s, and each {} s a node dies: EC2 shows its instance stopped, then it is not Ready. {} died, all were tainted, emptied as Kubernetes would, booted again and were let back in; no other node was touched.",
        size.nodes,
        size.volumes_per_node,
        rates.seconds,
        rates.moves_per_second,
        rates.death_every_seconds,
        result.decisions.len(),
    );
    testbed.end().await?;
    let figure = |key: &str, title: &str, unit: &str| Figure::new(key, title, unit).note(&note);
    Ok(vec![
        memory,
        figure(
            "failover-churn-decision",
            "F48: time from the last evidence of a node's death to its taint",
            "s",
        )
        .at_most(Statistic::Greatest, 5.0)
        .row(Role::Ours, "driver", result.decisions),
        figure("failover-churn-calls", "F48: EC2 requests for evidence per second", "1/s")
            .at_most(Statistic::Greatest, 1.0)
            .row(Role::Ours, "driver", vec![result.calls]),
        figure("failover-churn-cpu", "F48: processor time of node-lifecycle per second", "s").row(
            Role::Ours,
            "driver",
            vec![result.processor],
        ),
    ])
}

struct ChurnResult {
    decisions: Vec<f64>,
    calls: f64,
    processor: f64,
}

enum Dead {
    /// Without the taint yet; holds the time of the last evidence.
    Untainted(Instant),
    /// Booted again; the taint is still to be removed.
    Back,
}

struct Churn<'a> {
    testbed: &'a Testbed,
    /// The node where each volume is now, by the node and number that the volume began with.
    places: BTreeMap<(usize, usize), usize>,
    dead: BTreeMap<usize, Dead>,
    died: BTreeSet<usize>,
    decisions: Vec<f64>,
    moves: usize,
}

impl<'a> Churn<'a> {
    fn new(testbed: &'a Testbed) -> Self {
        let size = testbed.size;
        let all = (0..size.nodes)
            .flat_map(|node| (0..size.volumes_per_node).map(move |volume| (node, volume)));
        Self {
            testbed,
            places: all.map(|place| (place, place.0)).collect(),
            dead: BTreeMap::new(),
            died: BTreeSet::new(),
            decisions: Vec::new(),
            moves: 0,
        }
    }

    async fn run(mut self, rates: &Rates) -> Result<ChurnResult> {
        let nodes = self.testbed.size.nodes;
        let (calls, pid) = (self.testbed.describes().await?, self.testbed.pid());
        let (processor, begun) = (cpu_seconds(pid)?, Instant::now());
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for tick in 0..rates.seconds * TICKS_PER_SECOND {
            ticks.tick().await;
            let second = tick / TICKS_PER_SECOND;
            self.renew(tick, nodes);
            if tick % TICKS_PER_SECOND < rates.moves_per_second % TICKS_PER_SECOND {
                self.move_one();
            }
            for _ in 0..rates.moves_per_second / TICKS_PER_SECOND {
                self.move_one();
            }
            let rest = rates.seconds - second;
            if tick % (rates.death_every_seconds * TICKS_PER_SECOND) == 0
                && rest > rates.death_every_seconds
            {
                // The multiplier spreads the dying nodes over the cluster.
                self.stop_node((tick * 7919 + 13) % nodes).await?;
            }
            self.check_dead_nodes().await?;
        }
        let seconds = begun.elapsed().as_secs_f64();
        let processor = (cpu_seconds(pid)? - processor) / seconds;
        let calls = (self.testbed.describes().await? - calls) / seconds;
        let ending = Instant::now();
        while !self.dead.is_empty() {
            if ending.elapsed() > TIMEOUT {
                let left: Vec<_> = self.dead.keys().collect();
                return Err(self.testbed.failure(&format!(
                    "nodes {left:?} were not tainted, or kept the taint, for {TIMEOUT:?}"
                )));
            }
            tokio::time::sleep(TICK).await;
            self.check_dead_nodes().await?;
        }
        // To add the taint and to remove it; no other node was patched.
        self.testbed.expect_patches(self.died.iter().flat_map(|node| [*node, *node]))?;
        Ok(ChurnResult { decisions: self.decisions, calls, processor })
    }

    fn renew(&self, tick: usize, nodes: usize) {
        let now = jiff::Timestamp::now();
        let store = &self.testbed.store;
        let period = LEASE * TICKS_PER_SECOND;
        for node in (tick % period..nodes).step_by(period) {
            if !self.dead.contains_key(&node) {
                store.put(kind::LEASES, api_server::lease(&node_name(node), now));
            }
        }
        let period = STATUS * TICKS_PER_SECOND;
        for node in (tick % period..nodes).step_by(period) {
            store.edit(kind::NODES, &node_name(node), |object| {
                object["status"]["conditions"][0]["lastHeartbeatTime"] =
                    serde_json::json!(now.to_string());
            });
        }
    }

    /// Moves a volume and its pod to another living node.
    fn move_one(&mut self) {
        let size = self.testbed.size;
        self.moves += 1;
        let begun = ((self.moves * 104_729) % size.nodes, self.moves % size.volumes_per_node);
        let to = (self.moves * 15_485_863) % size.nodes;
        let here = self.places.get(&begun).copied();
        if here.is_none_or(|here| self.dead.contains_key(&here) || here == to)
            || self.dead.contains_key(&to)
        {
            return;
        }
        self.place(begun, to);
    }

    fn place(&mut self, begun: (usize, usize), to: usize) {
        let names = names(begun.0, begun.1);
        let store = &self.testbed.store;
        store.delete(kind::PODS, &format!("{}/{}", super::testbed::NAMESPACE, names.pod));
        store.delete(kind::VOLUME_ATTACHMENTS, &names.attachment);
        place(store, to, &names);
        self.places.insert(begun, to);
    }

    /// Stops the node's instance in EC2, then sets the node to not Ready, as Kubernetes does.
    async fn stop_node(&mut self, node: usize) -> Result<()> {
        if !self.died.insert(node) {
            return Ok(());
        }
        self.testbed.power(node, "stop").await?;
        self.testbed.ready(node, false, None);
        self.dead.insert(node, Dead::Untainted(Instant::now()));
        Ok(())
    }

    /// Checks which dead nodes were tainted or lost the taint, and plays the next step of each.
    async fn check_dead_nodes(&mut self) -> Result<()> {
        let now = Instant::now();
        let mut tainted = Vec::new();
        let mut back = Vec::new();
        for (node, dead) in &self.dead {
            let object = self.testbed.store.get(kind::NODES, &node_name(*node));
            let has_taint = object.is_some_and(|object| is_tainted(&object));
            match dead {
                Dead::Untainted(since) if has_taint => {
                    self.decisions.push(now.duration_since(*since).as_secs_f64());
                    tainted.push(*node);
                }
                Dead::Back if !has_taint => back.push(*node),
                Dead::Untainted(_) | Dead::Back => {}
            }
        }
        for node in tainted {
            // Kubernetes deletes a tainted node's pods, and the scheduler places them elsewhere.
            let here = self.places.iter().filter(|(_, place)| **place == node);
            let here: Vec<_> = here.map(|(begun, _)| *begun).collect();
            let nodes = self.testbed.size.nodes;
            let to = (1..nodes)
                .map(|step| (node + step) % nodes)
                .find(|other| !self.dead.contains_key(other))
                .unwrap_or(node);
            for begun in here {
                self.place(begun, to);
            }
            self.testbed.power(node, "start").await?;
            self.testbed.ready(node, true, Some("boot-2"));
            self.dead.insert(node, Dead::Back);
        }
        for node in back {
            self.dead.remove(&node);
        }
        Ok(())
    }
}
