//! Simulates a small cluster second by second: six nodes, one of which has the pod; EC2;
//! Kubernetes' controllers, each with its own period; the controller; and node-lifecycle.

mod controller;
mod kubernetes;
mod lifecycle;

use ebs_csi_safe_detach::Power;
use ebs_csi_safe_detach::lifecycle::OutOfService;

const NODES: usize = 6;
/// The seconds without a heartbeat after which kube-controller-manager marks a node not Ready.
const GRACE: u64 = 50;
/// The seconds after which a pod on a node that is not Ready is evicted (its default tolerations).
const EVICTION: u64 = 300;
/// The seconds that external-attacher gives a call, and its longest pause between two calls.
const CALL_TIMEOUT: u64 = 60;
const LONGEST_PAUSE: u64 = 300;

/// The seconds that EC2 takes for a detach.
const DETACH: u64 = 3;

#[derive(Debug)]
pub(crate) struct Cluster {
    now: u64,
    /// The offset, in seconds, of the periodic observers.
    observer_phase: u64,
    pub(crate) detaches_sent: u32,
    pods_deleted: u32,
    power: Power,
    is_attached: bool,
    detach_ends_at: Option<u64>,
    pub(crate) api_server_up: bool,
    /// Whether the first node reaches the API server and its guest runs.
    reaches_api_server: bool,
    mounted: bool,
    /// The time of each node's last heartbeat, and the time since which the node is not Ready.
    last_heartbeat: [u64; NODES],
    not_ready_since: [Option<u64>; NODES],
    taint: OutOfService,
    in_use: bool,
    attached: bool,
    /// The pod while it is on the first node; the value is whether the pod is terminating.
    pod: Option<bool>,
    /// The VolumeAttachment of the first node: whether it is being deleted, and whether its
    /// detach is to be retried.
    attachment: Option<(bool, bool)>,
    /// The start of the current call, and whether the call has sent DetachVolume.
    call: Option<(u64, bool)>,
    next_call: u64,
    retry_pause: u64,
    pod_moved: bool,
}

impl Cluster {
    /// Returns a healthy cluster in which the pod runs.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            now: 1000,
            observer_phase: seed,
            detaches_sent: 0,
            pods_deleted: 0,
            power: Power::Running,
            is_attached: true,
            detach_ends_at: None,
            api_server_up: true,
            reaches_api_server: true,
            mounted: true,
            last_heartbeat: [1000; NODES],
            not_ready_since: [None; NODES],
            taint: OutOfService::None,
            in_use: true,
            attached: true,
            pod: Some(false),
            attachment: Some((false, false)),
            call: None,
            next_call: 0,
            retry_pause: 1,
            pod_moved: false,
        }
    }

    pub(crate) fn set_power(&mut self, power: Power) {
        self.power = power;
        if matches!(power, Power::Stopped | Power::Terminated) {
            self.reaches_api_server = false;
            self.mounted = false;
        }
    }

    fn is_tainted(&self) -> bool {
        self.taint != OutOfService::None
    }

    /// Asserts that nothing was done to the node: no taint, no detach, no deletion of its pod.
    pub(crate) fn assert_left_alone(&self) {
        assert!(!self.is_tainted(), "{self:?}");
        assert_eq!((self.detaches_sent, self.pods_deleted), (0, 0), "{self:?}");
    }

    pub(crate) fn run(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.tick();
        }
    }

    /// Runs until the pod runs on another node with its volume. Panics after `within` seconds.
    pub(crate) fn run_until_pod_moves(&mut self, within: u64) {
        let began_at = self.now;
        while !self.pod_moved {
            assert!(self.now - began_at <= within, "not within {within} s: {self:?}");
            self.tick();
        }
    }

    /// Returns whether an observer with this period, in seconds, is due.
    fn is_due_every(&self, period: u64) -> bool {
        (self.now + self.observer_phase).is_multiple_of(period)
    }

    fn tick(&mut self) {
        self.now += 1;
        if self.detach_ends_at.is_some_and(|until| self.now >= until) {
            self.detach_ends_at = None;
            self.is_attached = false;
            assert!(!self.mounted, "S2: taken from a node that has it mounted: {self:?}");
        }
        if !self.api_server_up {
            // No call reaches the API server and nobody calls the controller; a call that already
            // runs in the controller continues.
            self.run_call();
            return;
        }
        self.run_kubelets();
        self.run_kube_controller_manager();
        self.run_external_attacher();
        self.run_call();
        // node-lifecycle starts a round every three seconds.
        if self.is_due_every(3) {
            self.run_node_lifecycle();
        }
    }
}
