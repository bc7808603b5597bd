//! Kubernetes' own controllers, EC2's cloud controller, and persons.

use ebs_csi_safe_detach::{Mode, Power};

use super::{Attachment, NodeObject, On, Order, Pod, PodKind, Rules, Taint, World};
use crate::explore::Steps;

impl World {
    pub(super) fn add_kubernetes_steps(&self, rules: Rules, steps: &mut Steps<Self>) {
        let node = self.node;
        let guest = self.guest;
        let is_ready = node.is_some_and(|node| node.ready);
        let is_tainted = node.is_some_and(|node| node.taint != Taint::None);
        if let Some(node) = node {
            let silent = !guest.up || guest.is_cut_off || !guest.registered;
            steps.add_if(node.ready && silent, "the node is marked not Ready", |w| {
                w.set_node(Some(NodeObject { ready: false, ..node }));
            });
            let is_terminated = self.shown.power == Power::Terminated;
            steps.add_if(is_terminated, "the Node of a terminated instance is deleted", |w| {
                w.set_node(None);
            });
        }
        self.add_pod_steps(rules, steps, is_ready, is_tainted);
        match self.attachment {
            None => {
                let wanted = self.pod.filter(|pod| !pod.deleting);
                let on = wanted.map(|pod| pod.on).filter(|on| *on == On::B || node.is_some());
                if let Some(on) = on {
                    let (deleting, retry_requested) = (false, false);
                    steps.add_if(true, "a VolumeAttachment is created", |w| {
                        w.attachment = Some(Attachment { on, deleting, retry_requested });
                    });
                }
            }
            Some(va) if !va.deleting => self.add_attachment_steps(va, rules, steps),
            Some(_) => {}
        }
        // A VolumeAttachment that a person deleted, or that is gone, does not keep the volume
        // listed.
        let listed =
            node.filter(|node| node.attached && (!node.in_use || node.taint != Taint::None));
        if let Some(node) = listed.filter(|_| !self.stays() && !self.is_pod_on_a()) {
            steps.add_if(true, "volumesAttached no longer lists the volume", |w| {
                w.set_node(Some(NodeObject { attached: false, ..node }));
            });
        }
    }

    fn add_pod_steps(
        &self,
        rules: Rules,
        steps: &mut Steps<Self>,
        is_ready: bool,
        is_tainted: bool,
    ) {
        let Some(pod) = self.pod else {
            for (on, name) in [(On::A, "a pod is created on A"), (On::B, "a pod is created on B")] {
                let may = on == On::B || is_ready && !is_tainted;
                steps.add_if(may, name, |w| w.set_pod(Some(Pod { on, deleting: false })));
            }
            return;
        };
        if pod.on == On::B {
            return;
        }
        let is_evictable = rules.pod != PodKind::Tolerates;
        let is_evicted = self.node.is_some() && (!is_ready || is_tainted) && is_evictable;
        steps.add_if(is_evicted && !pod.deleting, "the pod is evicted", |w| {
            w.set_pod(Some(Pod { deleting: true, ..pod }));
        });
        let is_collected = self.node.is_none() || is_tainted && !is_ready && pod.deleting;
        steps.add_if(is_collected, "the pod is collected", |w| w.set_pod(None));
    }

    fn add_attachment_steps(&self, va: Attachment, rules: Rules, steps: &mut Steps<Self>) {
        let is_free = self.ec2.held.is_none() && self.shown.held.is_none();
        let is_idle = self.is_idle();
        let runs = va.on == On::B || self.instance_runs();
        steps.add_if(is_free && is_idle && runs, "attached", |w| {
            w.write_attachment(|_| ());
            w.ec2.held = Some(va.on);
            // ControllerPublishVolume ends when EC2 shows the attachment.
            w.shown.held = Some(va.on);
            w.guest.disk = va.on == On::B || !rules.kubelet.slow;
            if w.order == Order::This {
                w.order = Order::Former;
            }
        });
        if va.on == On::B {
            return;
        }
        let is_held = self.ec2.held == Some(On::A) && self.shown.held == Some(On::A);
        let is_unlisted = self.node.is_some_and(|node| !node.attached);
        let is_listed = is_held && is_idle && is_unlisted && self.is_pod_on_a();
        steps.add_if(is_listed, "volumesAttached lists the volume", |w| w.list_attached(true));
        let is_orderly = rules.mode != Mode::Enforce;
        let forced = match self.node {
            None => !is_orderly || self.shown.power == Power::Terminated,
            Some(node) => node.taint != Taint::None || !node.ready && !is_orderly,
        };
        let is_unused = self.node.is_some_and(|node| !node.in_use);
        let may_detach = !self.is_pod_on_a() && (is_unused || forced);
        steps.add_if(may_detach, "a detach is requested", |w| {
            w.list_attached(false);
            w.write_attachment(|va| va.deleting = true);
        });
    }

    /// Puts the volume on `volumesAttached` or takes it off.
    fn list_attached(&mut self, attached: bool) {
        let node = self.node.map(|node| NodeObject { attached, ..node });
        if node != self.node {
            self.set_node(node);
        }
    }

    pub(super) fn add_person_steps(&self, rules: Rules, steps: &mut Steps<Self>) {
        if let Some(pod) = self.pod.filter(|pod| pod.on == On::A && !pod.deleting) {
            steps.add_fault_if(true, "the pod is deleted", |w| {
                w.set_pod(Some(Pod { deleting: true, ..pod }));
            });
        }
        if rules.finalizers && self.is_leaving() {
            let name = "a person removes the VolumeAttachment's finalizer";
            steps.add_fault_if(true, name, Self::remove_attachment);
        }
        let may_order = rules.orders && self.shown.held == Some(On::A);
        let has_none = matches!(self.order, Order::None | Order::Former);
        steps.add_fault_if(may_order && has_none, "a person orders an override", |w| {
            w.order = Order::This;
        });
        if !rules.persons || rules.mode != Mode::Enforce {
            return;
        }
        if self.is_pod_on_a() {
            steps.add_fault_if(true, "a person deletes the pod by force", |w| w.set_pod(None));
        }
        if let Some(node) = self.node {
            steps.add_fault_if(true, "a person deletes the Node object", |w| w.set_node(None));
            steps.add_fault_if(node.taint == Taint::None, "a person sets the taint", |w| {
                w.set_node(Some(NodeObject { taint: Taint::Foreign, ..node }));
            });
        }
        steps.add_fault_if(self.stays(), "a person deletes the VolumeAttachment", |w| {
            w.write_attachment(|va| va.deleting = true);
        });
    }
}
