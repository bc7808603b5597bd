//! EC2: the instance of node A, the volume, and what EC2 shows of them.

use ebs_csi_safe_detach::Power;

use super::{Node, Rules, World};
use crate::explore::Steps;

impl World {
    pub(super) fn add_ec2_steps(&self, rules: Rules, steps: &mut Steps<Self>) {
        let mut add_if = |name: &'static str, when: bool, change: &dyn Fn(&mut Self)| {
            steps.add_if(when, name, || {
                let mut after = *self;
                change(&mut after);
                after
            });
        };
        let power = self.ec2.power;
        // The two Describe APIs have separate views.
        let (ec2, shown) = (self.ec2, self.shown);
        add_if("EC2's view of volumes catches up", shown.held != ec2.held, &|w| {
            w.shown.held = w.ec2.held
        });
        let late = (shown.power, shown.hibernated) != (ec2.power, ec2.hibernated);
        add_if("EC2's view of instances catches up", late, &|w| {
            w.shown.power = w.ec2.power;
            w.shown.hibernated = w.ec2.hibernated;
        });
        add_if("the instance is told to stop", power == Power::Running, &|w| {
            w.ec2.power = Power::Stopping
        });
        add_if(
            "the instance is told to hibernate",
            power == Power::Running && rules.scope.hibernates,
            &|w| {
                w.ec2.power = Power::Stopping;
                w.ec2.hibernated = true;
            },
        );
        add_if("the instance is told to terminate", power != Power::Terminated, &|w| {
            w.ec2.power = Power::ShuttingDown;
        });
        add_if("the instance is off", power == Power::Stopping, &|w| {
            w.ec2.power = Power::Stopped;
            w.kubelet.up = false;
            w.kubelet.verified = false;
            // Mounts are part of the memory that a hibernation saves.
            w.kubelet.mounted &= w.ec2.hibernated;
        });
        add_if("the instance is gone", power == Power::ShuttingDown, &|w| {
            w.ec2.power = Power::Terminated;
            w.kubelet.up = false;
            w.kubelet.verified = false;
            w.kubelet.mounted = false;
            w.ec2.held = w.ec2.held.filter(|held| held.0 != Node::A);
        });
        add_if(
            "the instance is started",
            power == Power::Stopped && self.starts < rules.scope.starts,
            &|w| {
                w.ec2.power = Power::Pending;
                w.starts += 1;
            },
        );
        add_if("the instance runs again", power == Power::Pending, &|w| {
            w.ec2.power = Power::Running;
            w.ec2.hibernated = false;
            // A hibernated guest continues at once; any other guest boots first.
            w.kubelet.up = self.ec2.hibernated;
        });
        let is_undecided = self.detach_in_flight.is_some() || self.has_undecided_call();
        let shown = self.shown.power == Power::Running;
        add_if(
            "the node has booted",
            power == Power::Running && !self.kubelet.up && shown && !is_undecided,
            &|w| {
                w.kubelet.up = true;
            },
        );
        add_if("DetachVolume arrives", self.detach_in_flight.is_some(), &|w| {
            // The worst case: the volume is detached without the guest's consent.
            w.ec2.held = w.ec2.held.filter(|held| Some(held.0) != w.detach_in_flight);
            w.detach_in_flight = None;
            if w.by_override_order {
                // The person who gave the override order accepts that the node loses its mount.
                w.kubelet.mounted = false;
                w.kubelet.verified = false;
                w.by_override_order = false;
            }
        });
        add_if("DetachVolume is lost", self.detach_in_flight.is_some(), &|w| {
            w.detach_in_flight = None;
            w.by_override_order = false;
        });
    }
}
