//! The kubelet of node A, and what the API server has of it.

use ebs_csi_safe_detach::{Mode, Power};

use super::{Fault, Kubelet, Node, Rules, World};
use crate::explore::Steps;

impl World {
    pub(super) fn add_kubelet_steps(&self, rules: Rules, steps: &mut Steps<Self>) {
        let k = self.kubelet;
        let alive = k.up && self.ec2.power != Power::Stopped;
        let can_write = alive && k.reaches_api;
        let has = self.ec2.held.map(|held| held.0) == Some(Node::A);
        let mut add_if = |name: &'static str, when: bool, change: &dyn Fn(&mut Kubelet)| {
            steps.add_if(when, name, || {
                let mut after = *self;
                change(&mut after.kubelet);
                after
            });
        };
        add_if("kubelet lists the volume", can_write && !k.in_use, &|k| k.in_use = true);
        add_if(
            "kubelet sees that it may mount",
            can_write && k.in_use && k.attached && !k.verified,
            &|k| k.verified = true,
        );
        add_if("kubelet mounts", alive && k.verified && !k.mounted && has, &|k| k.mounted = true);
        add_if("kubelet unmounts", alive && (k.mounted || k.verified), &|k| {
            k.mounted = false;
            k.verified = false;
        });
        let forgets = rules.fault == Fault::KubeletForgets;
        add_if(
            "kubelet unlists the volume",
            can_write && k.in_use && (forgets || !k.mounted && !k.verified),
            &|k| k.in_use = false,
        );
        if rules.mode == Mode::Ec2Only {
            // In this mode the controller does not ask for kubelet's report.
            return;
        }
        add_if("the node is cut off", k.up && k.reaches_api, &|k| k.reaches_api = false);
        add_if("the node is reached again", !k.reaches_api, &|k| k.reaches_api = true);
        add_if("the lease runs out", !can_write && k.fresh, &|k| k.fresh = false);
        add_if("the node is called not ready", !k.fresh && k.ready, &|k| k.ready = false);
        add_if("kubelet renews", can_write && !(k.fresh && k.ready), &|k| {
            k.fresh = true;
            k.ready = true;
        });
    }
}
