//! The orchestrator, and persons.

use ebs_csi_safe_detach::{Mode, Power};

use super::{Node, Rules, World};
use crate::explore::Steps;

impl World {
    pub(super) fn add_orchestrator_steps(&self, rules: Rules, steps: &mut Steps<Self>) {
        let mut add_if = |name: &'static str, when: bool, change: &dyn Fn(&mut Self)| {
            steps.add_if(when, name, || {
                let mut after = *self;
                change(&mut after);
                after
            });
        };
        let is_free = self.attachment_for.is_none()
            && self.calls == [None; 2]
            && self.detach_in_flight.is_none()
            && self.ec2.held.is_none()
            && self.shown.held.is_none()
            && self.attaches < rules.scope.attaches;
        for (node, name) in [(Node::A, "attached to A"), (Node::B, "attached to B")] {
            let runs = node == Node::B || self.ec2.power == Power::Running;
            add_if(name, is_free && runs, &|w| {
                w.attaches += 1;
                w.ec2.held = Some((node, w.attaches));
                // ControllerPublishVolume ends when EC2 shows the attachment.
                w.shown.held = w.ec2.held;
                w.attachment_for = Some((node, false));
                w.kubelet.attached |= node == Node::A;
            });
        }
        let (on_a, kept) = match self.attachment_for {
            Some((node, going)) => (node == Node::A, !going),
            None => (false, false),
        };
        let unused = !self.kubelet.in_use;
        add_if("detach: the pod is gone", kept && (unused || !on_a), &|w| {
            w.kubelet.attached &= !on_a;
            w.attachment_for = w.attachment_for.map(|(node, _)| (node, true));
        });
        // The mode `ec2-only` trusts the order of CSI calls.
        let forced = kept && on_a && rules.mode == Mode::Enforce;
        add_if("detach: by force, after six minutes or by a taint", forced, &|w| {
            w.kubelet.attached = false;
            w.attachment_for = Some((Node::A, true));
        });
        add_if("detach: the VolumeAttachment is deleted by hand", forced, &|w| {
            w.attachment_for = Some((Node::A, true));
        });
        add_if(
            "the volume is taken off volumesAttached",
            self.kubelet.attached && !kept && unused,
            &|w| {
                w.kubelet.attached = false;
            },
        );
        add_if(
            "the instance is fenced",
            forced && self.ec2.power == Power::Running && !self.fenced,
            &|w| {
                w.fenced = true;
                w.ec2.power = Power::Stopping;
            },
        );
        let here = self.ec2.held.filter(|held| held.0 == Node::A);
        add_if(
            "a person orders an override",
            rules.scope.override_order && here.is_some() && self.override_order.is_none(),
            &|w| {
                w.override_order = here.map(|held| held.1);
            },
        );
    }
}
