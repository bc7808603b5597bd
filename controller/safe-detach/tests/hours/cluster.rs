//! Simulates a small cluster second by second: six nodes, one of which has the pod; EC2;
//! Kubernetes' controllers, each with its own period; the controller; and node-lifecycle.

mod controller;
mod kubernetes;
mod lifecycle;

use ebs_csi_safe_detach::Power;
use ebs_csi_safe_detach::lifecycle::OutOfService;

const INSTANCE: &str = "i-0aaaaaaaaaaaaaaa1";
const VOLUME: &str = "vol-0aaaaaaaaaaaaaaa1";
const NODES: usize = 6;
/// The seconds without a heartbeat after which kube-controller-manager marks a node not Ready.
const GRACE: u64 = 50;
/// The seconds after which a pod on a node that is not Ready is evicted (its default tolerations).
const EVICTION: u64 = 300;
/// The seconds that external-attacher gives a call, and its longest pause between two calls.
const CALL: u64 = 60;
const LONGEST_PAUSE: u64 = 300;

/// The way EC2 answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    Clear,
    /// Four of five calls are throttled.
    Throttled,
    /// Every second call reports that the instance does not exist.
    Flapping,
}

#[derive(Debug)]
pub(crate) struct Cluster {
    now: u64,
    dice: u64,
    /// The offset, in seconds, of the periodic observers.
    phase: u64,
    pub(crate) weather: Weather,
    /// The duration of a detach, in seconds.
    pub(crate) busy_for: u64,
    /// The number of DetachVolume requests.
    pub(crate) sent: u32,
    /// The number of calls that ended without an outcome.
    pub(crate) deadlines: u32,
    /// The number of pods that node-lifecycle deleted.
    pub(crate) pods_deleted: u32,
    power: Power,
    /// Whether the volume is attached to the first node.
    held: bool,
    leaving_until: Option<u64>,
    api_up: bool,
    /// Whether the first node reaches the API server and its guest runs.
    reaches: bool,
    mounted: bool,
    /// The time of each node's last heartbeat, and the time since which the node is not Ready.
    heard: [u64; NODES],
    lost: [Option<u64>; NODES],
    taint: OutOfService,
    in_use: bool,
    attached: bool,
    /// The pod while it is on the first node; the value is whether the pod is terminating.
    pod: Option<bool>,
    /// The VolumeAttachment of the first node: whether it is being deleted, and whether it was
    /// nudged.
    attachment: Option<(bool, bool)>,
    /// The start of the current call, and whether the call has sent DetachVolume.
    call: Option<(u64, bool)>,
    next_call: u64,
    pause: u64,
    /// Whether the pod runs on another node with its volume.
    moved: bool,
}

impl Cluster {
    /// Returns a healthy cluster in which the pod runs.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            now: 1000,
            dice: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            phase: seed,
            weather: Weather::Clear,
            busy_for: 3,
            sent: 0,
            deadlines: 0,
            pods_deleted: 0,
            power: Power::Running,
            held: true,
            leaving_until: None,
            api_up: true,
            reaches: true,
            mounted: true,
            heard: [1000; NODES],
            lost: [None; NODES],
            taint: OutOfService::None,
            in_use: true,
            attached: true,
            pod: Some(false),
            attachment: Some((false, false)),
            call: None,
            next_call: 0,
            pause: 1,
            moved: false,
        }
    }

    pub(crate) fn power(&mut self, power: Power) {
        self.power = power;
        if matches!(power, Power::Stopped | Power::Terminated) {
            self.reaches = false;
            self.mounted = false;
        }
    }

    pub(crate) fn cut_off(&mut self) {
        self.reaches = false;
    }

    pub(crate) fn api(&mut self, up: bool) {
        self.api_up = up;
    }

    /// Deletes the pod as a user would; kubelet then terminates it.
    pub(crate) fn delete_pod(&mut self) {
        self.pod = Some(true);
    }

    pub(crate) fn is_tainted(&self) -> bool {
        self.taint != OutOfService::None
    }

    pub(crate) fn run(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.second();
        }
    }

    /// Runs until the pod runs on another node with its volume. Panics after `within` seconds.
    pub(crate) fn until_moved(&mut self, within: u64) {
        let begun = self.now;
        while !self.moved {
            assert!(self.now - begun <= within, "not within {within} s: {self:?}");
            self.second();
        }
    }

    /// Returns a pseudo-random number less than `below`.
    fn roll(&mut self, below: u64) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice % below
    }

    /// Returns whether an observer with this period, in seconds, is due.
    fn is_time_for(&self, period: u64) -> bool {
        (self.now + self.phase).is_multiple_of(period)
    }

    fn second(&mut self) {
        self.now += 1;
        if self.leaving_until.is_some_and(|until| self.now >= until) {
            self.leaving_until = None;
            self.held = false;
            assert!(!self.mounted, "S2: taken from a node that has it mounted: {self:?}");
        }
        if !self.api_up {
            // No call reaches the API server and nobody calls the controller; a call that already
            // runs in the controller continues.
            self.of_call();
            return;
        }
        self.of_kubelets();
        self.of_kubernetes();
        self.of_attacher();
        self.of_call();
        // node-lifecycle starts a round every three seconds.
        if self.is_time_for(3) {
            self.of_lifecycle();
        }
    }
}
