//! Node A: its guest and its kubelet.

use ebs_csi_safe_detach::{Mode, Power};

use super::{NodeObject, On, Rules, Taint, World};
use crate::explore::Steps;

impl World {
    pub(super) fn add_node_steps(&self, rules: Rules, steps: &mut Steps<Self>) {
        let guest = self.guest;
        let is_running = guest.up && self.ec2.power != Power::Stopped;
        let trusts_order = rules.mode == Mode::Ec2Only && self.has_own_taint();
        let may_lose = is_running && !guest.is_cut_off && !trusts_order;
        steps.add_fault_if(may_lose, "the node is cut off", |w| w.guest.is_cut_off = true);
        let is_cut_off = guest.is_cut_off;
        steps.add_if(is_cut_off, "the node is reconnected", |w| w.guest.is_cut_off = false);
        if !is_running || is_cut_off {
            // Nothing that the guest does becomes known, and its mount stays.
            return;
        }
        let (ready, boot, in_use) = (true, guest.boot, guest.mounted);
        let written_object = match self.node {
            Some(node) => NodeObject { ready, boot, ..node },
            None => NodeObject { ready, boot, taint: Taint::None, in_use, attached: false },
        };
        let differs = !guest.registered || self.node != Some(written_object);
        steps.add_if(differs, "kubelet reports its node Ready", |w| {
            w.set_node(Some(written_object));
            w.guest.registered = true;
        });
        let Some(node) = self.node.filter(|_| guest.registered) else {
            return;
        };
        let is_wanted = self.is_pod_on_a() && self.pod.is_some_and(|pod| !pod.deleting);
        steps.add_if(is_wanted && !node.in_use, "kubelet lists the volume", |w| {
            w.set_node(Some(NodeObject { in_use: true, ..node }));
        });
        let may_mount = is_wanted && node.in_use && node.attached && self.ec2.held == Some(On::A);
        steps.add_if(may_mount && !guest.mounted, "kubelet mounts", |w| w.guest.mounted = true);
        steps.add_if(!is_wanted && guest.mounted, "kubelet unmounts", |w| w.guest.mounted = false);
        let is_unused = !is_wanted && !guest.mounted;
        steps.add_if(is_unused && node.in_use, "kubelet unlists the volume", |w| {
            w.set_node(Some(NodeObject { in_use: false, ..node }));
        });
        let has_pod_ended = is_unused && self.is_pod_on_a();
        steps.add_if(has_pod_ended, "kubelet reports that the pod has ended", |w| w.set_pod(None));
    }
}
