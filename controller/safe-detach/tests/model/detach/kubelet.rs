//! The kubelet of node A, and what the API server has of it.

use ebs_csi_safe_detach::{Mode, Power};

use super::{Fault, Kubelet, Node, Rules, World};
use crate::explore::Steps;

impl World {
    pub(super) fn of_kubelet(&self, rules: Rules, steps: &mut Steps<Self>) {
        let k = self.kubelet;
        let alive = k.up && self.ec2.power != Power::Stopped;
        let speaks = alive && k.reaches_api;
        let has = self.ec2.held.map(|held| held.0) == Some(Node::A);
        let mut can = |name: &'static str, when: bool, change: &dyn Fn(&mut Kubelet)| {
            steps.can(when, name, || {
                let mut after = *self;
                change(&mut after.kubelet);
                after
            });
        };
        can("kubelet lists the volume", speaks && !k.in_use, &|k| k.in_use = true);
        can(
            "kubelet sees that it may mount",
            speaks && k.in_use && k.attached && !k.verified,
            &|k| k.verified = true,
        );
        can("kubelet mounts", alive && k.verified && !k.mounted && has, &|k| k.mounted = true);
        can("kubelet unmounts", alive && (k.mounted || k.verified), &|k| {
            k.mounted = false;
            k.verified = false;
        });
        let forgets = rules.fault == Fault::KubeletForgets;
        can(
            "kubelet unlists the volume",
            speaks && k.in_use && (forgets || !k.mounted && !k.verified),
            &|k| k.in_use = false,
        );
        if rules.mode == Mode::Ec2Only {
            // In this mode the controller does not ask for kubelet's report.
            return;
        }
        can("the node is cut off", k.up && k.reaches_api, &|k| k.reaches_api = false);
        can("the node is reached again", !k.reaches_api, &|k| k.reaches_api = true);
        can("the lease runs out", !speaks && k.fresh, &|k| k.fresh = false);
        can("the node is called not ready", !k.fresh && k.ready, &|k| k.ready = false);
        can("kubelet renews", speaks && !(k.fresh && k.ready), &|k| {
            k.fresh = true;
            k.ready = true;
        });
    }
}
