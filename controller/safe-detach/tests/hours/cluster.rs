//! A small cluster, second by second: six nodes, of which one has the pod, EC2, Kubernetes'
//! controllers with their own periods, the controller and node-lifecycle.

mod controller;
mod kubernetes;
mod lifecycle;

use ebs_csi_safe_detach::Power;
use ebs_csi_safe_detach::lifecycle::OutOfService;

const INSTANCE: &str = "i-0aaaaaaaaaaaaaaa1";
const VOLUME: &str = "vol-0aaaaaaaaaaaaaaa1";
const NODES: usize = 6;
/// A node that was not heard of for longer is not Ready (kube-controller-manager).
const GRACE: u64 = 50;
/// A pod of a node that is not Ready is asked to end after that (its default tolerations).
const EVICTION: u64 = 300;
/// What external-attacher gives a call, and its longest pause between two.
const CALL: u64 = 60;
const LONGEST_PAUSE: u64 = 300;

/// How EC2 answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    Clear,
    /// Four of five calls are throttled.
    Throttled,
    /// Every second call does not know the instance.
    Flapping,
}

#[derive(Debug)]
pub(crate) struct Cluster {
    now: u64,
    dice: u64,
    /// By how much the periods of who looks now and then are shifted against each other.
    phase: u64,
    pub(crate) weather: Weather,
    /// How long a detach takes.
    pub(crate) busy_for: u64,
    /// DetachVolume requests.
    pub(crate) sent: u32,
    /// Calls that ended without an outcome.
    pub(crate) deadlines: u32,
    /// Pods that node-lifecycle deleted.
    pub(crate) pods_deleted: u32,
    power: Power,
    /// The volume is at the node that had it first.
    held: bool,
    leaving_until: Option<u64>,
    api_up: bool,
    /// The first node reaches the API server, and its guest lives.
    reaches: bool,
    mounted: bool,
    /// When each node was last heard of, and since when it is not Ready.
    heard: [u64; NODES],
    lost: [Option<u64>; NODES],
    taint: OutOfService,
    in_use: bool,
    attached: bool,
    /// The pod is on the first node; whether it is to end.
    pod: Option<bool>,
    /// The VolumeAttachment of the first node: whether it is to go, and is nudged.
    attachment: Option<(bool, bool)>,
    /// Since when the current call runs, and whether it has sent.
    call: Option<(u64, bool)>,
    next_call: u64,
    pause: u64,
    /// The pod runs elsewhere with its volume.
    moved: bool,
}

impl Cluster {
    /// All is well, and the pod runs.
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

    /// Somebody deletes the pod, and its kubelet ends it.
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

    /// Until the pod runs elsewhere with its volume, or it took too long.
    pub(crate) fn until_moved(&mut self, within: u64) {
        let begun = self.now;
        while !self.moved {
            assert!(
                self.now - begun <= within,
                "not within {within} s: {self:?}"
            );
            self.second();
        }
    }

    /// Up to, and without, this number.
    fn roll(&mut self, below: u64) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice % below
    }

    /// Whether it is the turn of who looks every so many seconds.
    fn is_time_for(&self, period: u64) -> bool {
        (self.now + self.phase).is_multiple_of(period)
    }

    fn second(&mut self) {
        self.now += 1;
        if self.leaving_until.is_some_and(|until| self.now >= until) {
            self.leaving_until = None;
            self.held = false;
            assert!(
                !self.mounted,
                "S2: taken from a node that has it mounted: {self:?}"
            );
        }
        if !self.api_up {
            // Nobody's call comes through, and nobody calls the controller; what runs there goes
            // on.
            self.of_call();
            return;
        }
        self.of_kubelets();
        self.of_kubernetes();
        self.of_attacher();
        self.of_call();
        // A round every three seconds.
        if self.is_time_for(3) {
            self.of_lifecycle();
        }
    }
}
