//! Kubernetes' own controllers, EC2's cloud controller, and persons.

use ebs_csi_safe_detach::{Mode, Power};

use super::{Attachment, NodeObject, On, Pod, Rules, Taint, World};
use crate::explore::Steps;

impl World {
    pub(super) fn add_kubernetes_steps(&self, rules: Rules, steps: &mut Steps<Self>) {
        let node = self.node;
        let guest = self.guest;
        let is_ready = node.is_some_and(|node| node.ready);
        let is_tainted = node.is_some_and(|node| node.taint != Taint::None);
        if let Some(node) = node {
            let silent = !guest.up || guest.is_cut_off || !guest.registered;
            steps.add_if(node.ready && silent, "the node is called not ready", || {
                self.with_node(Some(NodeObject { ready: false, ..node }))
            });
            let is_terminated = self.shown.power == Power::Terminated;
            steps.add_if(is_terminated, "the Node of a terminated instance goes", || {
                self.with_node(None)
            });
        }
        self.add_pod_steps(steps, is_ready, is_tainted);
        match self.attachment {
            None => {
                let wanted = self.pod.filter(|pod| !pod.deleting);
                let on = wanted.map(|pod| pod.on).filter(|on| *on == On::B || node.is_some());
                if let Some(on) = on {
                    steps.add_if(true, "an attachment is asked for", || Self {
                        attachment: Some(Attachment {
                            on,
                            deleting: false,
                            retry_requested: false,
                        }),
                        ..*self
                    });
                }
            }
            Some(va) if !va.deleting => self.add_attachment_steps(va, rules, steps),
            Some(_) => {}
        }
        // A VolumeAttachment that a person deleted, or that is gone, does not keep the volume
        // listed.
        let kept = self.attachment.is_some_and(|va| va.on == On::A && !va.deleting);
        let listed =
            node.filter(|node| node.attached && (!node.in_use || node.taint != Taint::None));
        if let Some(node) = listed.filter(|_| !kept && !self.is_pod_on_a()) {
            steps.add_if(true, "the volume is taken off volumesAttached", || {
                self.with_node(Some(NodeObject { attached: false, ..node }))
            });
        }
    }

    fn add_pod_steps(&self, steps: &mut Steps<Self>, is_ready: bool, is_tainted: bool) {
        let Some(pod) = self.pod else {
            for (on, name) in [(On::A, "a pod is made on A"), (On::B, "a pod is made on B")] {
                let may = on == On::B || is_ready && !is_tainted;
                steps.add_if(may, name, || self.with_pod(Some(Pod { on, deleting: false })));
            }
            return;
        };
        if pod.on == On::B {
            return;
        }
        let evicted = self.node.is_some() && (!is_ready || is_tainted);
        steps.add_if(evicted && !pod.deleting, "the pod is evicted", || {
            self.with_pod(Some(Pod { deleting: true, ..pod }))
        });
        let collected = self.node.is_none() || is_tainted && !is_ready && pod.deleting;
        steps.add_if(collected, "the pod is collected", || self.with_pod(None));
    }

    fn add_attachment_steps(&self, va: Attachment, rules: Rules, steps: &mut Steps<Self>) {
        let free = self.ec2.held.is_none() && self.shown.held.is_none();
        let idle = self.calls == [None; 2] && !self.detach_in_flight;
        let runs = va.on == On::B || self.ec2.power == Power::Running;
        steps.add_if(free && idle && runs, "attached", || {
            let mut after = self.with_attachment(|_| ());
            after.ec2.held = Some(va.on);
            // ControllerPublishVolume ends when EC2 shows the attachment.
            after.shown.held = Some(va.on);
            after
        });
        if va.on == On::B {
            return;
        }
        let attached = |attached| {
            let node = self.node.map(|node| NodeObject { attached, ..node });
            match node == self.node {
                true => *self,
                false => self.with_node(node),
            }
        };
        let held = self.ec2.held == Some(On::A) && self.shown.held == Some(On::A);
        let has = self.node.is_some_and(|node| !node.attached);
        let listed = held && has && self.is_pod_on_a();
        steps.add_if(listed, "the volume is put on volumesAttached", || attached(true));
        let node = self.node;
        let orderly = rules.mode != Mode::Enforce;
        let force = match node {
            None => !orderly || self.shown.power == Power::Terminated,
            Some(node) => node.taint != Taint::None || !node.ready && !orderly,
        };
        let unused = node.is_some_and(|node| !node.in_use);
        let may = !self.is_pod_on_a() && (unused || force);
        steps.add_if(may, "a detach is asked for", || {
            attached(false).with_attachment(|va| va.deleting = true)
        });
    }

    pub(super) fn add_person_steps(&self, rules: Rules, steps: &mut Steps<Self>) {
        if let Some(pod) = self.pod.filter(|pod| pod.on == On::A && !pod.deleting) {
            steps.add_fault_if(true, "the pod is deleted", || {
                self.with_pod(Some(Pod { deleting: true, ..pod }))
            });
        }
        if !rules.persons || rules.mode != Mode::Enforce {
            return;
        }
        if let Some(node) = self.node {
            steps.add_fault_if(true, "a person deletes the Node object", || self.with_node(None));
            let free = node.taint == Taint::None;
            steps.add_fault_if(free, "a person sets the taint", || {
                self.with_node(Some(NodeObject { taint: Taint::Foreign, ..node }))
            });
        }
        let here = self.attachment.filter(|va| va.on == On::A && !va.deleting);
        steps.add_fault_if(here.is_some(), "a person deletes the VolumeAttachment", || {
            self.with_attachment(|va| va.deleting = true)
        });
    }
}
