//! The orchestrator, and persons.

use ebs_csi_safe_detach::{Mode, Power};

use super::{Node, Rules, World};
use crate::explore::Steps;

impl World {
    pub(super) fn add_orchestrator_steps(&self, rules: Rules, steps: &mut Steps<Self>) {
        let is_free = self.attachment_for.is_none()
            && self.calls == [None; 2]
            && self.detach_in_flight.is_none()
            && self.ec2.held.is_none()
            && self.shown.held.is_none()
            && self.attaches < rules.scope.attaches;
        for (node, name) in [(Node::A, "attached to A"), (Node::B, "attached to B")] {
            let runs = node == Node::B || self.ec2.power == Power::Running;
            steps.add_if(is_free && runs, name, |w| {
                w.attaches += 1;
                w.ec2.held = Some((node, w.attaches));
                // ControllerPublishVolume ends when EC2 shows the attachment.
                w.shown.held = w.ec2.held;
                w.attachment_for = Some((node, false));
                w.kubelet.attached |= node == Node::A;
            });
        }
        let (on_a, is_kept) = match self.attachment_for {
            Some((node, deleting)) => (node == Node::A, !deleting),
            None => (false, false),
        };
        let is_unused = !self.kubelet.in_use;
        steps.add_if(is_kept && (is_unused || !on_a), "detach: the pod is gone", |w| {
            w.kubelet.attached &= !on_a;
            w.attachment_for = w.attachment_for.map(|(node, _)| (node, true));
        });
        // The mode `ec2-only` trusts the order of CSI calls.
        let forced = is_kept && on_a && rules.mode == Mode::Enforce;
        steps.add_if(forced, "detach: by force, after six minutes or by a taint", |w| {
            w.kubelet.attached = false;
            w.attachment_for = Some((Node::A, true));
        });
        steps.add_if(forced, "a person deletes the VolumeAttachment", |w| {
            w.attachment_for = Some((Node::A, true));
        });
        let is_left_listed = self.kubelet.attached && !is_kept && is_unused;
        steps.add_if(is_left_listed, "volumesAttached no longer lists the volume", |w| {
            w.kubelet.attached = false;
        });
        let may_fence = forced && self.ec2.power == Power::Running && !self.fenced;
        steps.add_if(may_fence, "the instance is fenced", |w| {
            w.fenced = true;
            w.ec2.power = Power::Stopping;
        });
        let here = self.ec2.held.filter(|held| held.0 == Node::A);
        let may_order =
            rules.scope.override_order && here.is_some() && self.override_order.is_none();
        steps.add_if(may_order, "a person orders an override", |w| {
            w.override_order = here.map(|held| held.1);
        });
    }
}
