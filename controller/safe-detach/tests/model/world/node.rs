//! Node A: its kernel and its kubelet.

use ebs_csi_safe_detach::{Mode, Power};

use super::{Fault, Hold, NodeObject, On, Rules, Taint, World};
use crate::explore::Steps;

impl World {
    /// Returns whether node A's guest runs now.
    pub(super) fn is_running(&self) -> bool {
        self.guest.up && self.ec2.power != Power::Stopped
    }

    pub(super) fn add_node_steps(&self, rules: Rules, steps: &mut Steps<Self>) {
        let guest = self.guest;
        let is_running = self.is_running();
        let trusts_order = rules.mode == Mode::Ec2Only && self.has_own_taint();
        let may_lose = is_running && !guest.is_cut_off && !trusts_order;
        steps.add_fault_if(may_lose, "the node is cut off", |w| w.guest.is_cut_off = true);
        let is_cut_off = guest.is_cut_off;
        steps.add_if(is_cut_off, "the node is reconnected", |w| w.guest.is_cut_off = false);
        if is_running {
            self.add_kernel_steps(steps);
        }
        if !is_running || is_cut_off {
            // Nothing that kubelet does becomes known, and its mount stays.
            return;
        }
        let (ready, boot) = (true, guest.boot);
        let written_object = match self.node {
            Some(node) => NodeObject { ready, boot, ..node },
            // Kubelet fills the lists of a new Node object later.
            None => NodeObject {
                ready,
                boot,
                taint: Taint::None,
                in_use: false,
                attached: false,
                young: true,
            },
        };
        let differs = !guest.registered || self.node != Some(written_object);
        steps.add_if(differs, "kubelet reports its node Ready", |w| {
            w.set_node(Some(written_object));
            w.guest.registered = true;
        });
        if let Some(node) = self.node.filter(|_| guest.registered) {
            self.add_kubelet_steps(node, rules, steps);
        }
    }

    /// Adds what happens below kubelet.
    fn add_kernel_steps(&self, steps: &mut Steps<Self>) {
        let guest = self.guest;
        steps.add_if(!guest.disk, "the disk appears", |w| w.guest.disk = true);
        let is_staging = guest.hold == Hold::Stage;
        steps.add_if(is_staging, "a stage ends", |w| w.guest.hold = Hold::Mount);
        steps.add_fault_if(is_staging, "a stage fails", |w| w.guest.hold = Hold::Nothing);
        let is_held = guest.hold == Hold::Unlisted;
        steps.add_if(is_held, "what held the disk ends", |w| w.guest.hold = Hold::Nothing);
    }

    fn add_kubelet_steps(&self, node: NodeObject, rules: Rules, steps: &mut Steps<Self>) {
        let guest = self.guest;
        let is_wanted = self.is_wanted_on_a();
        steps.add_if(is_wanted && !node.in_use, "kubelet lists the volume", |w| {
            w.set_node(Some(NodeObject { in_use: true, ..node }));
        });
        let is_filled = node.in_use || !guest.has_leave && guest.hold != Hold::Mount;
        let may_age = node.young && self.ec2.held != Some(On::A) && is_filled;
        steps.add_if(may_age, "the Node object is a minute old", |w| {
            w.set_node(Some(NodeObject { young: false, ..node }));
        });
        let may_verify = is_wanted && node.in_use && node.attached && !guest.has_leave;
        steps.add_if(may_verify, "kubelet may stage", |w| w.guest.has_leave = true);
        let is_kept = is_wanted || matches!(guest.hold, Hold::Stage | Hold::Mount);
        let may_forget = guest.has_leave && !is_kept;
        steps.add_if(may_forget, "kubelet forgets its leave", |w| w.guest.has_leave = false);
        let is_here = self.ec2.held == Some(On::A) && guest.disk && guest.hold == Hold::Nothing;
        let may_stage = is_wanted && guest.has_leave && is_here;
        let is_forbidden = guest.promised && !guest.old_agent;
        if may_stage && is_forbidden && rules.fault == Fault::StageIgnoresPromise {
            let broken = Err("S4: a stage against a promise");
            steps.add(("a stage begins", ""), broken, false);
        }
        let name = if rules.kubelet.slow { "a stage begins" } else { "kubelet mounts" };
        steps.add_if(may_stage && !is_forbidden, name, |w| {
            w.guest.hold = if rules.kubelet.slow { Hold::Stage } else { Hold::Mount };
        });
        let may_unmount = !is_wanted && guest.hold == Hold::Mount;
        steps.add_if(may_unmount, "kubelet unmounts", |w| {
            w.guest.hold = Hold::Nothing;
            w.guest.has_leave = false;
        });
        let may_leave = may_unmount && rules.kubelet.holders;
        steps.add_fault_if(may_leave, "kubelet unmounts; a holder is left", |w| {
            w.guest.hold = Hold::Unlisted;
            w.guest.has_leave = false;
        });
        let is_unused = !is_kept && !guest.has_leave;
        steps.add_if(is_unused && node.in_use, "kubelet unlists the volume", |w| {
            w.set_node(Some(NodeObject { in_use: false, ..node }));
        });
        // A new kubelet knows only what its disk shows (a mount that it still finds in
        // `volumesAttached`) and what pods want.
        let listed = guest.hold == Hold::Mount && node.attached || is_wanted;
        let keeps_leave = guest.has_leave && guest.hold == Hold::Mount;
        let differs = listed != node.in_use || keeps_leave != guest.has_leave;
        steps.add_fault_if(rules.kubelet.restarts && differs, "kubelet starts anew", |w| {
            w.set_node(Some(NodeObject { in_use: listed, ..node }));
            w.guest.has_leave = keeps_leave;
        });
        let has_pod_ended = is_unused && self.is_pod_on_a();
        steps.add_if(has_pod_ended, "kubelet reports that the pod has ended", |w| w.set_pod(None));
    }
}
