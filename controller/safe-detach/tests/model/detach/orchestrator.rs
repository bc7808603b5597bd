//! The orchestrator, and persons.

use ebs_csi_safe_detach::{Mode, Power};

use super::{Node, Rules, World};
use crate::explore::Steps;

impl World {
    pub(super) fn of_orchestrator(&self, rules: Rules, steps: &mut Steps<Self>) {
        let mut can = |name: &'static str, when: bool, change: &dyn Fn(&mut Self)| {
            steps.can(when, name, || {
                let mut after = *self;
                change(&mut after);
                after
            });
        };
        let free = self.wanted.is_none()
            && self.calls == [None; 2]
            && self.on_its_way.is_none()
            && self.ec2.held.is_none()
            && self.shown.held.is_none()
            && self.attaches < rules.scope.attaches;
        for (node, name) in [(Node::A, "attached to A"), (Node::B, "attached to B")] {
            let runs = node == Node::B || self.ec2.power == Power::Running;
            can(name, free && runs, &|w| {
                w.attaches += 1;
                w.ec2.held = Some((node, w.attaches));
                // ControllerPublishVolume ends when EC2 shows the attachment.
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
        // The mode `ec2-only` trusts the order of CSI calls.
        let forced = kept && on_a && rules.mode == Mode::Enforce;
        can("detach: by force, after six minutes or by a taint", forced, &|w| {
            w.kubelet.attached = false;
            w.wanted = Some((Node::A, true));
        });
        can("detach: the VolumeAttachment is deleted by hand", forced, &|w| {
            w.wanted = Some((Node::A, true));
        });
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
            "a person orders an override",
            rules.scope.override_order && here.is_some() && self.override_order.is_none(),
            &|w| {
                w.override_order = here.map(|held| held.1);
            },
        );
    }
}
