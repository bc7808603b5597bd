//! A small cluster, second by second: six nodes, of which one has the pod, EC2, Kubernetes' controllers with their own periods, the controller and
//! node-lifecycle.

use std::time::Duration;

use ebs_csi_safe_detach::lifecycle::brake::{Seen, admit};
use ebs_csi_safe_detach::lifecycle::{
    Attachment, Claim, FailoverMode, InstanceEvidence, Intent, Node, NodeFacts, OutOfService, Pod,
    Readiness, step,
};
use ebs_csi_safe_detach::{
    AttachmentFact, Fact, Facts, InstanceFact, Mode, NodeReport, NodeWord, Phase, Power, Refusal,
    Verdict, Waiting, decide, decide_instance, word,
};
use ebs_csi_wire::{InstanceId, VolumeId};

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
            // Nobody's call comes through, and nobody calls the controller; what runs there goes on.
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

    fn of_kubelets(&mut self) {
        for node in 0..NODES {
            let speaks = node != 0 || self.reaches;
            if speaks && (self.now + self.phase * node as u64).is_multiple_of(10) {
                self.heard[node] = self.now;
                self.lost[node] = None;
            }
        }
        if self.reaches {
            self.mounted &= self.pod == Some(false);
            self.in_use = self.mounted;
            if self.pod == Some(true) && !self.mounted {
                self.pod = None;
            }
        }
    }

    fn of_kubernetes(&mut self) {
        for node in 0..NODES {
            let silent = self.now - self.heard[node] > GRACE;
            // It looks every five seconds.
            if silent && self.lost[node].is_none() && self.is_time_for(5) {
                self.lost[node] = Some(self.now);
            }
        }
        let lost_for = self.lost[0].map(|since| self.now - since);
        let evicted = lost_for.is_some_and(|lost| lost > EVICTION) || self.is_tainted();
        if evicted && self.pod == Some(false) {
            self.pod = Some(true);
        }
        let collected = self.pod == Some(true) && self.is_tainted() && lost_for.is_some();
        if collected && self.is_time_for(20) {
            self.pod = None;
        }
        let forced = self.is_tainted() || lost_for.is_some_and(|lost| lost > 360);
        if self.pod.is_none() && self.attachment == Some((false, false)) && (!self.in_use || forced)
        {
            self.attached = false;
            self.attachment = Some((true, false));
        }
        let free = self.pod.is_none() && self.attachment.is_none() && !self.held;
        self.moved |= free && self.is_time_for(4);
    }

    fn of_attacher(&mut self) {
        let going = self.attachment.is_some_and(|(deleting, _)| deleting);
        if going && self.call.is_none() && self.now >= self.next_call {
            self.call = Some((self.now, false));
        }
    }

    /// One look at EC2.
    fn ec2(&mut self) -> (Fact<AttachmentFact>, Fact<InstanceFact>) {
        let attachment = AttachmentFact {
            phase: match self.leaving_until {
                Some(_) => Phase::Leaving,
                None => Phase::Held,
            },
            since: None,
        };
        let shown = match self.held {
            true => Fact::Present(attachment),
            false => Fact::Absent,
        };
        let instance = Fact::Present(InstanceFact {
            power: self.power,
            hibernation: Fact::Absent,
        });
        let (throttled, unknown) = (self.roll(5) != 0, self.roll(2) == 0);
        match self.weather {
            Weather::Throttled if throttled => (Fact::Unknown, Fact::Unknown),
            Weather::Flapping if unknown => (shown, Fact::Absent),
            Weather::Clear | Weather::Throttled | Weather::Flapping => (shown, instance),
        }
    }

    fn word(&self) -> Fact<NodeWord> {
        let names = |listed: bool| match listed {
            true => vec![format!("kubernetes.io/csi/ebs.csi.aws.com^{VOLUME}")],
            false => Vec::new(),
        };
        let report = NodeReport {
            provider_id: format!("aws:///us-east-1a/{INSTANCE}"),
            ready: self.lost[0].is_none(),
            lease_age: Some(Duration::from_secs(self.now - self.heard[0])),
            in_use: names(self.in_use),
            attached: names(self.attached),
        };
        let instance = InstanceId::parse(INSTANCE).expect("an id");
        let volume = VolumeId::parse(VOLUME).expect("an id");
        word(&[report], &instance, &volume, Duration::ZERO)
    }

    fn facts(&mut self) -> Facts {
        let (attachment, instance) = self.ec2();
        Facts {
            mode: Mode::Enforce,
            attachment,
            instance,
            word: Fact::Unknown,
            fence: Fact::Absent,
            broken_glass: Fact::Absent,
        }
    }

    fn of_call(&mut self) {
        let Some((begun, sent)) = self.call else {
            return;
        };
        let mut facts = self.facts();
        let mut verdict = decide(&facts);
        if verdict == Verdict::Refuse(Refusal::NoWord) && self.api_up {
            facts.word = self.word();
            verdict = decide(&facts);
        }
        match verdict {
            // Nobody could write down that the attachment is gone.
            Verdict::Done if !self.api_up => {}
            Verdict::Done => {
                assert!(
                    !self.held,
                    "S11: OK though the volume is attached: {self:?}"
                );
                self.attachment = None;
                self.call = None;
                self.pause = 1;
            }
            Verdict::Safe(_) if !sent => {
                assert!(!self.mounted, "S1: a volume in use: {self:?}");
                self.sent += 1;
                self.leaving_until = Some(self.now + self.busy_for);
                self.call = Some((begun, true));
            }
            Verdict::Refuse(_) => self.call_failed(),
            Verdict::Safe(_) | Verdict::Wait(Waiting::Leaving | Waiting::Transition) => {}
        }
        if self.call.is_some() && self.now - begun >= CALL {
            self.deadlines += 1;
            self.call_failed();
        }
    }

    fn call_failed(&mut self) {
        self.call = None;
        self.next_call = self.now + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    fn of_lifecycle(&mut self) {
        let suspect = self.lost[0].is_some() || self.is_tainted();
        if !suspect || self.moved {
            return;
        }
        let facts = self.facts();
        let instance = decide_instance(&facts.instance, facts.fence);
        let key = (INSTANCE.to_owned(), VOLUME.to_owned());
        let seen = NodeFacts {
            object: Fact::Present(Node {
                ready: match self.lost[0] {
                    Some(_) => Readiness::NotReady,
                    None => Readiness::Ready,
                },
                instance: Some(INSTANCE.to_owned()),
                boot: "boot-1".to_owned(),
                out_of_service: self.taint.clone(),
                opted_out: false,
                may_fence: false,
                lost_for_long: false,
            }),
            attachments: self.attachment.map(seen_attachment).into_iter().collect(),
            pods: self.pod.map(seen_pod).into_iter().collect(),
            volumes: [(key, decide(&facts).into())].into(),
            instances: [(
                INSTANCE.to_owned(),
                InstanceEvidence::new(instance, String::new(), Fact::Unknown),
            )]
            .into(),
        };
        let step = step(&seen, FailoverMode::ProveFirst);
        let all: Vec<Seen> = (0..NODES)
            .map(|node| Seen {
                node: format!("node-{node}"),
                zone: String::new(),
                suspect: self.lost[node].is_some(),
                acted: node == 0 && self.is_tainted(),
                wanted: node == 0 && step.intents.iter().any(Intent::is_braked),
            })
            .collect();
        let admitted = !admit(&all).nodes.is_empty();
        for intent in step.intents {
            if admitted || !intent.is_braked() {
                self.act(intent);
            }
        }
    }

    fn act(&mut self, intent: Intent) {
        match intent {
            Intent::AddTaint(about) => {
                assert_eq!(self.power, Power::Stopped, "S9: {self:?}");
                self.taint = OutOfService::Ours(about);
            }
            Intent::RemoveTaint => self.taint = OutOfService::None,
            Intent::DeletePod { .. } => {
                assert!(!self.mounted, "S8: {self:?}");
                self.pods_deleted += 1;
                self.pod = None;
            }
            Intent::DeleteAttachment { .. } => self.attachment = Some((true, false)),
            Intent::Nudge { .. } => {
                self.attachment = self.attachment.map(|(deleting, _)| (deleting, true));
                self.next_call = self.now;
            }
        }
    }
}

fn seen_attachment((deleting, nudged): (bool, bool)) -> Attachment {
    Attachment {
        name: "csi-1".to_owned(),
        uid: "uid-1".to_owned(),
        version: "1".to_owned(),
        volume: VOLUME.to_owned(),
        instance: Some(INSTANCE.to_owned()),
        deleting,
        nudged,
    }
}

fn seen_pod(deleting: bool) -> Pod {
    Pod {
        namespace: "default".to_owned(),
        name: "db-0".to_owned(),
        uid: "uid-db-0".to_owned(),
        version: "1".to_owned(),
        deleting,
        ended: false,
        claims: vec![Claim::Ours {
            volume: VOLUME.to_owned(),
            shared: false,
        }],
        tolerations: Vec::new(),
        of_daemon_set: false,
        mirror: false,
        opted_out: false,
    }
}
