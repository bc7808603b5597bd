//! Node A: its guest and its kubelet.

use ebs_csi_safe_detach::{Mode, Power};

use super::{Guest, NodeObject, On, Rules, Taint, World};
use crate::explore::Steps;

impl World {
    pub(super) fn add_node_steps(&self, rules: Rules, steps: &mut Steps<Self>) {
        let guest = self.guest;
        let is = |guest| Self { guest, ..*self };
        let is_running = guest.up && self.ec2.power != Power::Stopped;
        let trusts_order = rules.mode == Mode::Ec2Only && self.has_own_taint();
        steps.add_fault_if(
            is_running && !guest.is_cut_off && !trusts_order,
            "the node is cut off",
            || is(Guest { is_cut_off: true, ..guest }),
        );
        steps.add_if(guest.is_cut_off, "the node is reached again", || {
            is(Guest { is_cut_off: false, ..guest })
        });
        if !is_running || guest.is_cut_off {
            // Nothing that the guest does becomes known, and its mount stays.
            return;
        }
        let written_object = match self.node {
            Some(node) => NodeObject { ready: true, boot: guest.boot, ..node },
            None => NodeObject {
                ready: true,
                boot: guest.boot,
                taint: Taint::None,
                in_use: guest.mounted,
                attached: false,
            },
        };
        let differs = !guest.registered || self.node != Some(written_object);
        steps.add_if(differs, "kubelet says that its node is ready", || Self {
            guest: Guest { registered: true, ..guest },
            ..self.with_node(Some(written_object))
        });
        let Some(node) = self.node.filter(|_| guest.registered) else {
            return;
        };
        let wanted = self.is_pod_on_a() && self.pod.is_some_and(|pod| !pod.deleting);
        steps.add_if(wanted && !node.in_use, "kubelet lists the volume", || {
            self.with_node(Some(NodeObject { in_use: true, ..node }))
        });
        let may = wanted && node.in_use && node.attached && self.ec2.held == Some(On::A);
        steps.add_if(may && !guest.mounted, "kubelet mounts", || {
            is(Guest { mounted: true, ..guest })
        });
        steps.add_if(!wanted && guest.mounted, "kubelet unmounts", || {
            is(Guest { mounted: false, ..guest })
        });
        let unused = !wanted && !guest.mounted;
        steps.add_if(unused && node.in_use, "kubelet unlists the volume", || {
            self.with_node(Some(NodeObject { in_use: false, ..node }))
        });
        let has_pod_ended = unused && self.is_pod_on_a();
        steps.add_if(has_pod_ended, "kubelet says that the pod has ended", || self.with_pod(None));
    }
}
