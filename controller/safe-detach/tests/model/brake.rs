//! Models which replica acts, and on how many nodes: two replicas, the Lease with the journal on
//! it, and the shipped brake.
//!
//! Three nodes of a cluster of forty nodes in two zones may die: two of zone `a`, which has three
//! nodes, and one of zone `b`. A holder renews the Lease, lets it expire, or loses it to the other
//! replica. A replica may stop for any time between any two instructions, also between its last
//! look at the time and the arrival of its call. Ten minutes pass only while no action is in
//! progress.

use std::collections::BTreeSet;

use ebs_csi_safe_detach::lifecycle::brake::{NodeState, admit};

use crate::explore::Steps;

/// The number of nodes that may die; the first two are in the small zone.
const MAY_DIE: usize = 3;
const NODES: usize = 40;
const SMALL_ZONE: usize = 3;

/// A planted fault, which shows that the model finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// A replica acts without first recording the action in the journal.
    NoJournal,
    /// A replica writes the Lease without a check of its resourceVersion.
    LeaseWithoutVersion,
    /// What the brake admitted stays valid although the other replica held the Lease meanwhile.
    AcrossTerms,
}

/// A set of the nodes that may die.
type Set = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Idle,
    /// The nodes that the brake admitted and that are not recorded yet.
    Admitted(Set),
    /// The recorded node, on which the replica acts next, and the nodes after it.
    Recorded(usize, Set),
    /// The replica has looked at the time, and the call is on its way.
    InFlight(usize, Set),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Replica {
    /// Whether the replica leads, by its own clock.
    leads: bool,
    /// Whether the Lease is as this replica last saw or wrote it.
    has_current_lease: bool,
    /// Whether no other replica has taken the Lease since this replica queried the brake.
    same_term: bool,
    /// The journal on the Lease as the replica last saw it.
    journal: Set,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Brake {
    holder: Option<usize>,
    journal: Set,
    dead: Set,
    /// Whether more than half of every zone is not Ready.
    outage: bool,
    /// The nodes that were acted on within ten minutes.
    acted: Set,
    replicas: [Replica; 2],
}

fn has(set: Set, node: usize) -> bool {
    set & (1 << node) != 0
}

fn nodes(set: Set) -> impl Iterator<Item = usize> {
    (0..MAY_DIE).filter(move |node| has(set, *node))
}

impl Brake {
    pub(crate) fn start() -> Self {
        let replica = Replica {
            leads: false,
            has_current_lease: false,
            same_term: false,
            journal: 0,
            stage: Stage::Idle,
        };
        Self { holder: None, journal: 0, dead: 0, outage: false, acted: 0, replicas: [replica; 2] }
    }

    pub(crate) fn next(&self, fault: Fault) -> Steps<Self> {
        let mut steps = Steps::new(*self);
        for node in 0..MAY_DIE {
            steps.add_fault_if(!has(self.dead, node), "a node dies", |w| w.dead |= 1 << node);
        }
        steps.add_fault_if(self.dead != 0, "the dead nodes recover", |w| w.dead = 0);
        steps.add_fault_if(true, "an outage begins or ends", |w| w.outage = !w.outage);
        let idle = self.replicas.iter().all(|r| r.stage == Stage::Idle);
        steps.add_if(idle && self.journal != 0, "ten minutes pass", |w| {
            (w.acted, w.journal) = (0, 0);
            w.replicas = w.replicas.map(|replica| Replica { journal: 0, ..replica });
        });
        for slot in 0..2 {
            self.add_replica_steps(slot, fault, &mut steps);
        }
        steps.finish(Self::normalize, Self::broken_property)
    }

    /// Resets `same_term` of idle replicas: an idle replica reads again, so its value cannot
    /// matter.
    fn normalize(&mut self) {
        for replica in &mut self.replicas {
            replica.same_term &= replica.stage != Stage::Idle;
        }
    }

    /// Checks S15 against the actions that were taken, not against the journal's count.
    fn broken_property(&self) -> Option<&'static str> {
        if nodes(self.acted).count() > NODES / 20 {
            return Some("S15: more nodes were acted on than the cluster's share");
        }
        let small = nodes(self.acted).filter(|node| *node < 2).count();
        (small > 1).then_some("S15: more nodes were acted on than the zone's share")
    }

    fn add_replica_steps(&self, slot: usize, fault: Fault, steps: &mut Steps<Self>) {
        let replica = self.replicas[slot];
        steps.add_if(replica.leads, "a leadership ends", |w| w.replicas[slot].leads = false);
        // The Lease of a silent holder is taken only after the holder's time has ended by the
        // holder's own clock, whose duration is shorter.
        let silent =
            self.holder.is_none_or(|holder| holder == slot || !self.replicas[holder].leads);
        steps.add_if(!replica.leads && silent, "a replica takes the Lease", |w| {
            w.write_lease(slot, w.journal);
            if w.holder != Some(slot) {
                w.replicas = w.replicas.map(|replica| Replica { same_term: false, ..replica });
            }
            w.holder = Some(slot);
            w.replicas[slot].leads = true;
        });
        match replica.stage {
            Stage::Idle => {
                let is_wanted = replica.leads && self.dead != 0;
                steps.add_if(is_wanted, "the brake is queried", |w| {
                    let stage = stage_for(self.admitted(replica.journal));
                    w.replicas[slot] = Replica { same_term: true, stage, ..replica };
                });
            }
            Stage::Admitted(set) => {
                let Some(node) = nodes(set).next() else {
                    return;
                };
                let left = set & !(1 << node);
                let version = replica.has_current_lease || fault == Fault::LeaseWithoutVersion;
                let term = replica.same_term || fault != Fault::None;
                let may_write = replica.leads && version && term;
                steps.add_if(!may_write, "the journal is not written", |w| {
                    w.replicas[slot] = Replica { leads: false, stage: stage_for(left), ..replica };
                });
                steps.add_if(may_write, "the journal is written", |w| {
                    let journal = match fault {
                        Fault::NoJournal => replica.journal,
                        _ => replica.journal | 1 << node,
                    };
                    w.write_lease(slot, journal);
                    w.replicas[slot].stage = Stage::Recorded(node, left);
                });
            }
            Stage::Recorded(node, left) => {
                steps.add_if(replica.leads, "the call is sent", |w| {
                    w.replicas[slot].stage = Stage::InFlight(node, left);
                });
                steps.add_if(!replica.leads, "the call is not sent", |w| {
                    w.replicas[slot].stage = stage_for(left);
                });
            }
            Stage::InFlight(node, left) => steps.add_if(true, "the call arrives", |w| {
                w.acted |= 1 << node;
                w.replicas[slot].stage = stage_for(left);
            }),
        }
    }

    /// Writes the Lease as this replica: for all other replicas its version has changed.
    fn write_lease(&mut self, slot: usize, journal: Set) {
        self.journal = journal;
        for (other, replica) in self.replicas.iter_mut().enumerate() {
            replica.has_current_lease = other == slot;
        }
        self.replicas[slot].journal = journal;
    }

    /// Returns the dead nodes that the brake admits, given what this replica knows.
    fn admitted(&self, journal: Set) -> Set {
        let all: Vec<NodeState> = (0..NODES)
            .map(|number| {
                let small = number < 2 || number + SMALL_ZONE - 2 >= NODES;
                let dead = number < MAY_DIE && has(self.dead, number);
                NodeState {
                    name: format!("node-{number:02}"),
                    zone: if small { "a" } else { "b" }.to_owned(),
                    suspect: dead || self.outage,
                    acted: number < MAY_DIE && has(journal, number),
                    wanted: dead,
                }
            })
            .collect();
        let admitted: BTreeSet<String> = admit(&all).nodes;
        let is_admitted = |node: &usize| admitted.contains(&format!("node-{node:02}"));
        nodes(self.dead).filter(is_admitted).fold(0, |set, node| set | 1 << node)
    }
}

fn stage_for(left: Set) -> Stage {
    match left {
        0 => Stage::Idle,
        left => Stage::Admitted(left),
    }
}
