//! The kubelet of node A, and what the API server has of it.

use ebs_csi_safe_detach::{Mode, Power};

use super::{Fault, Node, Rules, World};
use crate::explore::Steps;

impl World {
    pub(super) fn add_kubelet_steps(&self, rules: Rules, steps: &mut Steps<Self>) {
        let k = self.kubelet;
        let is_alive = k.up && self.ec2.power != Power::Stopped;
        let can_write = is_alive && k.reaches_api;
        let may_list = can_write && !k.in_use;
        steps.add_if(may_list, "kubelet lists the volume", |w| w.kubelet.in_use = true);
        let may_verify = can_write && k.in_use && k.attached && !k.verified;
        steps.add_if(may_verify, "kubelet may mount the volume", |w| w.kubelet.verified = true);
        let may_mount = is_alive && k.verified && !k.mounted && self.holder() == Some(Node::A);
        steps.add_if(may_mount, "kubelet mounts", |w| w.kubelet.mounted = true);
        steps.add_if(is_alive && (k.mounted || k.verified), "kubelet unmounts", |w| {
            w.kubelet.mounted = false;
            w.kubelet.verified = false;
        });
        let is_unused = rules.fault == Fault::KubeletForgets || !k.mounted && !k.verified;
        let may_unlist = can_write && k.in_use && is_unused;
        steps.add_if(may_unlist, "kubelet unlists the volume", |w| w.kubelet.in_use = false);
        if rules.mode == Mode::Ec2Only {
            // In this mode the controller does not ask for kubelet's report.
            return;
        }
        let is_reached = k.up && k.reaches_api;
        steps.add_if(is_reached, "the node is cut off", |w| w.kubelet.reaches_api = false);
        let is_cut_off = !k.reaches_api;
        steps.add_if(is_cut_off, "the node is reconnected", |w| w.kubelet.reaches_api = true);
        steps.add_if(!can_write && k.fresh, "the lease runs out", |w| w.kubelet.fresh = false);
        let is_lost = !k.fresh && k.ready;
        steps.add_if(is_lost, "the node is marked not Ready", |w| w.kubelet.ready = false);
        steps.add_if(can_write && !(k.fresh && k.ready), "kubelet renews the lease", |w| {
            w.kubelet.fresh = true;
            w.kubelet.ready = true;
        });
    }
}
