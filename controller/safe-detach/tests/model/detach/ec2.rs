//! EC2: the instance of node A, the volume, and what EC2 shows of them.

use ebs_csi_safe_detach::Power;

use super::{Node, Rules, World};
use crate::explore::Steps;

impl World {
    pub(super) fn add_ec2_steps(&self, rules: Rules, steps: &mut Steps<Self>) {
        let power = self.ec2.power;
        let runs = power == Power::Running;
        // The two Describe APIs have separate views.
        let (ec2, shown) = (self.ec2, self.shown);
        let late = shown.held != ec2.held;
        steps.add_if(late, "EC2's view of volumes catches up", |w| w.shown.held = w.ec2.held);
        let late = (shown.power, shown.hibernated) != (ec2.power, ec2.hibernated);
        steps.add_if(late, "EC2's view of instances catches up", |w| {
            w.shown.power = w.ec2.power;
            w.shown.hibernated = w.ec2.hibernated;
        });
        steps.add_if(runs, "StopInstances is called", |w| w.ec2.power = Power::Stopping);
        steps.add_if(runs && rules.scope.hibernates, "StopInstances hibernates", |w| {
            w.ec2.power = Power::Stopping;
            w.ec2.hibernated = true;
        });
        let remains = power != Power::Terminated;
        steps.add_if(remains, "TerminateInstances is called", |w| {
            w.ec2.power = Power::ShuttingDown;
        });
        steps.add_if(power == Power::Stopping, "the instance is stopped", |w| {
            w.ec2.power = Power::Stopped;
            w.kubelet.up = false;
            w.kubelet.verified = false;
            // Mounts are part of the memory that a hibernation saves.
            w.kubelet.mounted &= w.ec2.hibernated;
        });
        steps.add_if(power == Power::ShuttingDown, "the instance is terminated", |w| {
            w.ec2.power = Power::Terminated;
            w.kubelet.up = false;
            w.kubelet.verified = false;
            w.kubelet.mounted = false;
            w.ec2.held = w.ec2.held.filter(|held| held.0 != Node::A);
        });
        let may_start = power == Power::Stopped && self.starts < rules.scope.starts;
        steps.add_if(may_start, "the instance is started", |w| {
            w.ec2.power = Power::Pending;
            w.starts += 1;
        });
        steps.add_if(power == Power::Pending, "the instance runs again", |w| {
            // A hibernated guest continues at once; any other guest boots first.
            w.kubelet.up = w.ec2.hibernated;
            w.ec2.power = Power::Running;
            w.ec2.hibernated = false;
        });
        let is_quiet = self.detach_in_flight.is_none();
        let boots = runs && !self.kubelet.up && shown.power == Power::Running && is_quiet;
        steps.add_if(boots, "the node has booted", |w| {
            w.kubelet.up = true;
            w.age_facts();
        });
        steps.add_if(self.detach_in_flight.is_some(), "DetachVolume arrives", |w| {
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
        steps.add_if(self.detach_in_flight.is_some(), "DetachVolume is lost", |w| {
            w.detach_in_flight = None;
            w.by_override_order = false;
        });
    }
}
