//! Node A: its guest and its kubelet.

use ebs_csi_safe_detach::{Mode, Power};

use super::{Guest, NodeObject, On, Rules, Taint, World};
use crate::explore::Steps;

impl World {
    pub(super) fn of_node(&self, rules: Rules, steps: &mut Steps<Self>) {
        let guest = self.guest;
        let is = |guest| Self { guest, ..*self };
        let lives = guest.up && self.ec2.power != Power::Stopped;
        let kept = rules.mode == Mode::Ec2Only && self.has_our_taint();
        steps.fault(lives && !guest.cut && !kept, "the node is cut off", || {
            is(Guest { cut: true, ..guest })
        });
        steps.can(guest.cut, "the node is reached again", || is(Guest { cut: false, ..guest }));
        if !lives || guest.cut {
            // Nothing that the guest does becomes known, and its mount stays.
            return;
        }
        let written = match self.node {
            Some(node) => NodeObject { ready: true, boot: guest.boot, ..node },
            None => NodeObject {
                ready: true,
                boot: guest.boot,
                taint: Taint::None,
                in_use: guest.mounted,
                attached: false,
            },
        };
        let news = !guest.registered || self.node != Some(written);
        steps.can(news, "kubelet says that its node is ready", || Self {
            guest: Guest { registered: true, ..guest },
            ..self.with_node(Some(written))
        });
        let Some(node) = self.node.filter(|_| guest.registered) else {
            return;
        };
        let wanted = self.is_pod_on_a() && self.pod.is_some_and(|pod| !pod.deleting);
        steps.can(wanted && !node.in_use, "kubelet lists the volume", || {
            self.with_node(Some(NodeObject { in_use: true, ..node }))
        });
        let may = wanted && node.in_use && node.attached && self.ec2.held == Some(On::A);
        steps.can(may && !guest.mounted, "kubelet mounts", || is(Guest { mounted: true, ..guest }));
        steps.can(!wanted && guest.mounted, "kubelet unmounts", || {
            is(Guest { mounted: false, ..guest })
        });
        let unused = !wanted && !guest.mounted;
        steps.can(unused && node.in_use, "kubelet unlists the volume", || {
            self.with_node(Some(NodeObject { in_use: false, ..node }))
        });
        let ended = unused && self.is_pod_on_a();
        steps.can(ended, "kubelet says that the pod has ended", || self.with_pod(None));
    }
}
