//! One volume, a node A that may fail in every way, a node B that may get the volume, EC2 with a view that lags behind, an orchestrator and
//! the controller.
//!
//! What is assumed, because nothing here could enforce it:
//!
//! * **A view catches up before a boot ends.** The kubelet of a new boot is up only when EC2 shows the instance running, and not between the
//!   controller's reads and the arrival of its DetachVolume. Minutes against milliseconds; a record of the node's would make it a proof.
//! * **A request arrives or is lost** before the next attach of the volume completes.
//! * **Kubelet's books**: it lists a volume in `volumesInUse` before it looks at `volumesAttached` and mounts, and unlists it after it unmounted.

use ebs_csi_safe_detach::{AttachmentFact, Fact, InstanceFact, Mode, NodeWord, Power, Rung};

use crate::explore::Steps;

/// A fault that is planted, so that the model shows that it would find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// `InvalidInstanceID.NotFound` is taken for the end of the instance.
    DetachOnNotFound,
    /// Facts of the call before are used again.
    ReadBeforeTheCall,
    /// A word looks at `volumesInUse` alone.
    WordWithoutVolumesAttached,
    /// Kubelet takes a volume off its list while it is mounted.
    KubeletForgets,
}

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) mode: Mode,
    pub(crate) fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    A,
    B,
}

/// What EC2 has, or shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ec2 {
    /// The node and the number of the attach.
    pub(crate) held: Option<(Node, u8)>,
    pub(crate) power: Power,
    pub(crate) hibernated: bool,
}

/// Kubelet of node A, and what the API server has of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kubelet {
    pub(crate) up: bool,
    pub(crate) reaches_api: bool,
    pub(crate) verified: bool,
    pub(crate) mounted: bool,
    pub(crate) in_use: bool,
    pub(crate) attached: bool,
    pub(crate) ready: bool,
    pub(crate) fresh: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Began,
    Read,
    Asking,
    Decided(Rung),
    Sent,
}

/// One ControllerUnpublishVolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) step: Step,
    pub(crate) attachment: Fact<AttachmentFact>,
    pub(crate) instance: Fact<InstanceFact>,
    pub(crate) word: Fact<NodeWord>,
    pub(crate) asked: bool,
    /// The facts were read after the call began.
    pub(crate) fresh: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) ec2: Ec2,
    pub(crate) shown: Ec2,
    pub(crate) kubelet: Kubelet,
    /// The VolumeAttachment: whose, and whether it is to go.
    pub(crate) wanted: Option<(Node, bool)>,
    pub(crate) call: Option<Call>,
    /// A DetachVolume on its way, and from which node.
    pub(crate) on_its_way: Option<Node>,
    pub(crate) fenced: bool,
    pub(crate) glass: Option<u8>,
    /// The DetachVolume on its way is by a person's order.
    pub(crate) ordered: bool,
    pub(crate) attaches: u8,
    pub(crate) starts: u8,
    /// Of a controller that remembers what it should not.
    pub(crate) cache: Option<(Fact<AttachmentFact>, Fact<InstanceFact>)>,
}

impl World {
    /// Nothing is attached; node A runs.
    pub(crate) fn start() -> Self {
        let ec2 = Ec2 {
            held: None,
            power: Power::Running,
            hibernated: false,
        };
        Self {
            ec2,
            shown: ec2,
            kubelet: Kubelet {
                up: true,
                reaches_api: true,
                verified: false,
                mounted: false,
                in_use: false,
                attached: false,
                ready: true,
                fresh: true,
            },
            wanted: None,
            call: None,
            on_its_way: None,
            fenced: false,
            glass: None,
            ordered: false,
            attaches: 0,
            starts: 0,
            cache: None,
        }
    }

    /// Whatever can happen next.
    pub(crate) fn next(&self, rules: Rules) -> Steps<Self> {
        let mut steps = Vec::new();
        self.of_ec2(&mut steps);
        self.of_kubelet(rules, &mut steps);
        self.of_orchestrator(rules, &mut steps);
        self.of_controller(rules, &mut steps);
        for (_, after) in &mut steps {
            if let Ok(world) = after {
                world.forget();
            }
            // S2: a node that runs and has the volume mounted keeps it.
            if let Ok(world) = after
                && world.kubelet.mounted
                && world.ec2.power == Power::Running
                && !world.ordered
                && world.ec2.held.map(|held| held.0) != Some(Node::A)
            {
                *after = Err("S2: the volume was taken from a node that has it mounted".to_owned());
            }
        }
        steps
    }

    /// Forgets what can make no difference any more, so that fewer states are told apart.
    fn forget(&mut self) {
        if let Some(call) = &mut self.call {
            let (known, sent) = (*call, call.step == Step::Sent);
            if matches!(call.step, Step::Began | Step::Decided(_) | Step::Sent) {
                *call = Call {
                    attachment: if sent {
                        Fact::Unknown
                    } else {
                        known.attachment
                    },
                    instance: Fact::Unknown,
                    word: Fact::Unknown,
                    asked: false,
                    ..known
                };
            }
        }
        if !self.kubelet.up {
            self.kubelet.reaches_api = true;
        }
        if self.ec2.power == Power::Terminated {
            self.kubelet = Kubelet {
                up: false,
                reaches_api: true,
                verified: false,
                mounted: false,
                in_use: false,
                attached: self.kubelet.attached,
                ready: false,
                fresh: false,
            };
        }
    }

    fn of_ec2(&self, steps: &mut Steps<Self>) {
        let mut can = |name: &str, when: bool, change: &dyn Fn(&mut Self)| {
            if when {
                let mut after = *self;
                change(&mut after);
                steps.push((name.to_owned(), Ok(after)));
            }
        };
        let power = self.ec2.power;
        // Two APIs, two views.
        let (ec2, shown) = (self.ec2, self.shown);
        can(
            "EC2's view of volumes catches up",
            shown.held != ec2.held,
            &|w| w.shown.held = w.ec2.held,
        );
        let late = (shown.power, shown.hibernated) != (ec2.power, ec2.hibernated);
        can("EC2's view of instances catches up", late, &|w| {
            w.shown.power = w.ec2.power;
            w.shown.hibernated = w.ec2.hibernated;
        });
        can(
            "the instance is told to stop",
            power == Power::Running,
            &|w| w.ec2.power = Power::Stopping,
        );
        can(
            "the instance is told to hibernate",
            power == Power::Running,
            &|w| {
                w.ec2.power = Power::Stopping;
                w.ec2.hibernated = true;
            },
        );
        can(
            "the instance is told to terminate",
            power != Power::Terminated,
            &|w| {
                w.ec2.power = Power::ShuttingDown;
            },
        );
        can("the instance is off", power == Power::Stopping, &|w| {
            w.ec2.power = Power::Stopped;
            w.kubelet.up = false;
            w.kubelet.verified = false;
            // Saved memory keeps its mounts.
            w.kubelet.mounted &= w.ec2.hibernated;
        });
        can("the instance is gone", power == Power::ShuttingDown, &|w| {
            w.ec2.power = Power::Terminated;
            w.kubelet.up = false;
            w.kubelet.verified = false;
            w.kubelet.mounted = false;
            w.ec2.held = w.ec2.held.filter(|held| held.0 != Node::A);
        });
        can(
            "the instance is started",
            power == Power::Stopped && self.starts == 0,
            &|w| {
                w.ec2.power = Power::Pending;
                w.starts += 1;
            },
        );
        can("the instance runs again", power == Power::Pending, &|w| {
            w.ec2.power = Power::Running;
            w.ec2.hibernated = false;
            // A guest with saved memory goes on at once, the others boot.
            w.kubelet.up = self.ec2.hibernated;
        });
        let between = self.on_its_way.is_some()
            || self
                .call
                .is_some_and(|call| call.step != Step::Began && call.step != Step::Sent);
        let shown = self.shown.power == Power::Running;
        can(
            "the node has booted",
            power == Power::Running && !self.kubelet.up && shown && !between,
            &|w| {
                w.kubelet.up = true;
            },
        );
        can("DetachVolume arrives", self.on_its_way.is_some(), &|w| {
            // At its worst: the guest is not asked.
            w.ec2.held = w.ec2.held.filter(|held| Some(held.0) != w.on_its_way);
            w.on_its_way = None;
            if w.ordered {
                // What the node loses is the person's.
                w.kubelet.mounted = false;
                w.kubelet.verified = false;
                w.ordered = false;
            }
        });
        can("DetachVolume is lost", self.on_its_way.is_some(), &|w| {
            w.on_its_way = None;
            w.ordered = false;
        });
    }

    fn of_kubelet(&self, rules: Rules, steps: &mut Steps<Self>) {
        let k = self.kubelet;
        let alive = k.up && self.ec2.power != Power::Stopped;
        let speaks = alive && k.reaches_api;
        let has = self.ec2.held.map(|held| held.0) == Some(Node::A);
        let mut can = |name: &str, when: bool, change: &dyn Fn(&mut Kubelet)| {
            if when {
                let mut after = *self;
                change(&mut after.kubelet);
                steps.push((name.to_owned(), Ok(after)));
            }
        };
        can("kubelet lists the volume", speaks && !k.in_use, &|k| {
            k.in_use = true
        });
        can(
            "kubelet sees that it may mount",
            speaks && k.in_use && k.attached && !k.verified,
            &|k| k.verified = true,
        );
        can(
            "kubelet mounts",
            alive && k.verified && !k.mounted && has,
            &|k| k.mounted = true,
        );
        can(
            "kubelet unmounts",
            alive && (k.mounted || k.verified),
            &|k| {
                k.mounted = false;
                k.verified = false;
            },
        );
        let forgets = rules.fault == Fault::KubeletForgets;
        can(
            "kubelet unlists the volume",
            speaks && k.in_use && (forgets || !k.mounted && !k.verified),
            &|k| k.in_use = false,
        );
        if rules.mode == Mode::Ec2Only {
            // Nobody asks the node.
            return;
        }
        can("the node is cut off", k.up && k.reaches_api, &|k| {
            k.reaches_api = false
        });
        can("the node is reached again", !k.reaches_api, &|k| {
            k.reaches_api = true
        });
        can("the lease runs out", !speaks && k.fresh, &|k| {
            k.fresh = false
        });
        can("the node is called not ready", !k.fresh && k.ready, &|k| {
            k.ready = false
        });
        can("kubelet renews", speaks && !(k.fresh && k.ready), &|k| {
            k.fresh = true;
            k.ready = true;
        });
    }

    fn of_orchestrator(&self, rules: Rules, steps: &mut Steps<Self>) {
        let mut can = |name: &str, when: bool, change: &dyn Fn(&mut Self)| {
            if when {
                let mut after = *self;
                change(&mut after);
                steps.push((name.to_owned(), Ok(after)));
            }
        };
        let free = self.wanted.is_none()
            && self.call.is_none()
            && self.on_its_way.is_none()
            && self.ec2.held.is_none()
            && self.shown.held.is_none()
            && self.attaches < 2;
        for node in [Node::A, Node::B] {
            let runs = node == Node::B || self.ec2.power == Power::Running;
            can(&format!("attached to {node:?}"), free && runs, &|w| {
                w.attaches += 1;
                w.ec2.held = Some((node, w.attaches));
                // ControllerPublishVolume ends when EC2 shows it.
                w.shown.held = w.ec2.held;
                w.wanted = Some((node, false));
                w.kubelet.attached |= node == Node::A;
            });
        }
        let (on_a, kept) = match self.wanted {
            Some((node, going)) => (node == Node::A, !going),
            None => (false, false),
        };
        let unused = !self.kubelet.in_use;
        can("detach: the pod is gone", kept && (unused || !on_a), &|w| {
            w.kubelet.attached &= !on_a;
            w.wanted = w.wanted.map(|(node, _)| (node, true));
        });
        // In ec2-only the order of CSI calls is what is trusted.
        let forced = kept && on_a && rules.mode == Mode::Enforce;
        can(
            "detach: by force, after six minutes or by a taint",
            forced,
            &|w| {
                w.kubelet.attached = false;
                w.wanted = Some((Node::A, true));
            },
        );
        can(
            "detach: the VolumeAttachment is deleted by hand",
            forced,
            &|w| {
                w.wanted = Some((Node::A, true));
            },
        );
        can(
            "the volume is taken off volumesAttached",
            self.kubelet.attached && !kept && unused,
            &|w| {
                w.kubelet.attached = false;
            },
        );
        can(
            "the instance is fenced",
            forced && self.ec2.power == Power::Running && !self.fenced,
            &|w| {
                w.fenced = true;
                w.ec2.power = Power::Stopping;
            },
        );
        let here = self.ec2.held.filter(|held| held.0 == Node::A);
        can(
            "a person breaks the glass",
            here.is_some() && self.glass.is_none(),
            &|w| {
                w.glass = here.map(|held| held.1);
            },
        );
    }
}
