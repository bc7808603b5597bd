//! One ControllerUnpublishVolume, step by step, as `controller/src/attach/leave.rs` goes them; the properties are looked at where it decides and sends.

use std::time::Duration;

use ebs_csi_safe_detach::{
    AttachTime, AttachmentFact, BrokenGlass, Fact, Facts, InstanceFact, NodeReport, NodeWord,
    Phase, Power, Refusal, Rung, Verdict, Waiting, decide, word,
};
use ebs_csi_wire::{InstanceId, VolumeId};

use crate::explore::Steps;
use crate::world::{Call, Fault, Node, Rules, Step, World};

fn id(node: Node) -> InstanceId {
    let text = match node {
        Node::A => "i-0aaaaaaaaaaaaaaa1",
        Node::B => "i-0bbbbbbbbbbbbbbb2",
    };
    InstanceId::parse(text).expect("an id")
}

fn volume() -> VolumeId {
    VolumeId::parse("vol-0aaaaaaaaaaaaaaa1").expect("an id")
}

fn at(attach: u8) -> AttachTime {
    AttachTime {
        seconds: i64::from(attach),
        nanoseconds: 0,
    }
}

fn lets_go(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Safe(_) | Verdict::Done)
}

impl World {
    pub(crate) fn of_controller(&self, rules: Rules, steps: &mut Steps<Self>) {
        let Some((node, true)) = self.wanted else {
            // S16: without a VolumeAttachment that is to go nothing is asked of the controller.
            return;
        };
        let mut to = |name: String, after: Result<Self, String>| steps.push((name, after));
        let Some(call) = self.call else {
            let mut began = Call {
                step: Step::Began,
                attachment: Fact::Unknown,
                instance: Fact::Unknown,
                word: Fact::Unknown,
                asked: false,
                fresh: true,
            };
            if let Some((attachment, instance)) = self.cache {
                began = Call {
                    step: Step::Read,
                    attachment,
                    instance,
                    fresh: false,
                    ..began
                };
            }
            return to(
                "the call begins".to_owned(),
                Ok(Self {
                    call: Some(began),
                    ..*self
                }),
            );
        };
        let with = |call| {
            Ok(Self {
                call: Some(call),
                ..*self
            })
        };
        to(
            "the controller dies".to_owned(),
            Ok(Self {
                call: None,
                cache: None,
                ..*self
            }),
        );
        match call.step {
            Step::Began => {
                for (what, instance) in self.instance_answers(node) {
                    for (how, attachment) in self.volume_answers(node) {
                        let read = Call {
                            step: Step::Read,
                            attachment,
                            instance,
                            ..call
                        };
                        let mut after = Self {
                            call: Some(read),
                            ..*self
                        };
                        if rules.fault == Fault::ReadBeforeTheCall {
                            after.cache = Some((attachment, instance));
                        }
                        to(
                            format!("EC2 is read: instance {what}, volume {how}"),
                            Ok(after),
                        );
                    }
                }
            }
            Step::Asking => {
                let heard = self.word(node, rules.fault);
                for (name, word) in [
                    ("the node's word comes", heard),
                    ("no word comes", Fact::Unknown),
                ] {
                    to(
                        name.to_owned(),
                        with(Call {
                            step: Step::Read,
                            word,
                            asked: true,
                            ..call
                        }),
                    );
                }
            }
            Step::Read => {
                let (name, after) = self.decided(rules, node, call);
                to(name, after);
            }
            Step::Decided(rung) => to(
                format!("DetachVolume is sent: {}", rung.label()),
                self.sent(node, rung, call),
            ),
            Step::Sent => {
                if self.shown.held.map(|held| held.0) != Some(node) {
                    to("the call ends: OK".to_owned(), Ok(self.ended()));
                }
                to(
                    "the call's time ends".to_owned(),
                    Ok(Self {
                        call: None,
                        ..*self
                    }),
                );
            }
        }
    }

    fn instance_answers(&self, node: Node) -> Vec<(&'static str, Fact<InstanceFact>)> {
        let (power, hibernated) = match node {
            Node::A => (self.shown.power, self.shown.hibernated),
            Node::B => (Power::Running, false),
        };
        let hibernation = if hibernated {
            Fact::Present(())
        } else {
            Fact::Absent
        };
        vec![
            (
                power.label(),
                Fact::Present(InstanceFact { power, hibernation }),
            ),
            ("NotFound", Fact::Absent),
            ("unknown", Fact::Unknown),
        ]
    }

    fn volume_answers(&self, node: Node) -> Vec<(&'static str, Fact<AttachmentFact>)> {
        let shown = match self.shown.held.filter(|held| held.0 == node) {
            Some((_, attach)) => {
                let phase = if self.on_its_way.is_some() {
                    Phase::Leaving
                } else {
                    Phase::Held
                };
                (
                    "attached",
                    Fact::Present(AttachmentFact {
                        phase,
                        since: Some(at(attach)),
                    }),
                )
            }
            None => ("free", Fact::Absent),
        };
        vec![shown, ("unknown", Fact::Unknown)]
    }

    /// What the Node object says now, judged by what the controller judges it with.
    fn word(&self, node: Node, fault: Fault) -> Fact<NodeWord> {
        let k = self.kubelet;
        if node == Node::B {
            // B has released what is taken from it.
            return Fact::Present(NodeWord::Released);
        }
        let named = |listed: bool| {
            if listed {
                vec![format!("kubernetes.io/csi/ebs.csi.aws.com^{}", volume())]
            } else {
                vec![]
            }
        };
        let report = NodeReport {
            provider_id: format!("aws:///us-east-1a/{}", id(node)),
            ready: k.ready,
            lease_age: Some(if k.fresh {
                Duration::ZERO
            } else {
                Duration::from_secs(41)
            }),
            in_use: named(k.in_use),
            attached: named(k.attached && fault != Fault::WordWithoutVolumesAttached),
        };
        word(&[report], &id(node), &volume(), Duration::ZERO)
    }

    fn decided(&self, rules: Rules, node: Node, call: Call) -> (String, Result<Self, String>) {
        let glass = self.glass.filter(|_| node == Node::A);
        let facts = Facts {
            mode: rules.mode,
            attachment: call.attachment,
            instance: call.instance,
            word: call.word,
            fence: if self.fenced {
                Fact::Present(())
            } else {
                Fact::Absent
            },
            broken_glass: match glass {
                Some(attach) => Fact::Present(BrokenGlass {
                    instance: id(node),
                    since: at(attach),
                    asked: id(node),
                }),
                None => Fact::Absent,
            },
        };
        let mut verdict = decide(&facts);
        if rules.fault == Fault::DetachOnNotFound
            && verdict == Verdict::Refuse(Refusal::InstanceMissing)
        {
            verdict = Verdict::Safe(Rung::Terminated);
        }
        let name = format!("decided: {} {}", verdict.label().0, verdict.label().1);
        let with = |step| {
            Ok(Self {
                call: Some(Call { step, ..call }),
                ..*self
            })
        };
        let after = match verdict {
            // S6, S17: with a fact lost nothing is let go that was not before; with none known nothing is.
            _ if rules.fault == Fault::None && less_is_safer(&facts, verdict) => {
                Err("S17: losing a fact made it safe".to_owned())
            }
            _ if lets_go(verdict) && facts.attachment == Fact::Unknown => {
                Err("S6: let go without knowing the attachment".to_owned())
            }
            _ if lets_go(verdict) && !call.fresh => {
                Err("S7: decided on what was read before the call began".to_owned())
            }
            Verdict::Done if call.attachment != Fact::Absent => {
                Err("S11: OK though EC2 showed an attachment".to_owned())
            }
            Verdict::Done => Ok(self.ended()),
            Verdict::Safe(rung) => with(Step::Decided(rung)),
            Verdict::Wait(Waiting::Leaving) => with(Step::Sent),
            Verdict::Wait(Waiting::Transition) => with(Step::Began),
            Verdict::Refuse(Refusal::NoWord) if !call.asked => with(Step::Asking),
            Verdict::Refuse(_) => Ok(Self {
                call: None,
                ..*self
            }),
        };
        (name, after)
    }

    fn sent(&self, node: Node, rung: Rung, call: Call) -> Result<Self, String> {
        let off = matches!(self.ec2.power, Power::Stopped | Power::Terminated);
        let by_order = matches!(rung, Rung::Fenced | Rung::BrokenGlass);
        if node == Node::A && self.kubelet.mounted && !off && !by_order {
            return Err("S1: DetachVolume for a volume that the node uses".to_owned());
        }
        let since = match call.attachment {
            Fact::Present(attachment) => attachment.since,
            Fact::Absent | Fact::Unknown => None,
        };
        if self
            .ec2
            .held
            .is_some_and(|held| held.0 == node && Some(at(held.1)) != since)
        {
            return Err(
                "S12: DetachVolume for another attachment than the one that was decided on"
                    .to_owned(),
            );
        }
        Ok(Self {
            on_its_way: Some(node),
            ordered: rung == Rung::BrokenGlass,
            call: Some(Call {
                step: Step::Sent,
                ..call
            }),
            ..*self
        })
    }

    fn ended(&self) -> Self {
        Self {
            wanted: None,
            call: None,
            glass: None,
            ..*self
        }
    }
}

/// Whether some fact, lost, would let go what is not let go.
fn less_is_safer(facts: &Facts, verdict: Verdict) -> bool {
    let less = [
        Facts {
            attachment: Fact::Unknown,
            ..facts.clone()
        },
        Facts {
            instance: Fact::Unknown,
            ..facts.clone()
        },
        Facts {
            word: Fact::Unknown,
            ..facts.clone()
        },
        Facts {
            fence: Fact::Unknown,
            ..facts.clone()
        },
        Facts {
            broken_glass: Fact::Unknown,
            ..facts.clone()
        },
    ];
    !lets_go(verdict) && less.iter().any(|facts| lets_go(decide(facts)))
}
