//! EC2: node A's instance, the volume, and what EC2 shows of them.

use ebs_csi_safe_detach::Power;
use ebs_csi_safe_detach::lifecycle::FenceWhen;

use super::{Guest, On, Rules, Stage, World};
use crate::explore::Steps;

impl World {
    pub(super) fn add_ec2_steps(&self, rules: Rules, steps: &mut Steps<Self>) {
        let power = self.ec2.power;
        let runs = power == Power::Running;
        steps.add_fault_if(runs, "StopInstances is called", |w| w.ec2.power = Power::Stopping);
        let remains = !matches!(power, Power::ShuttingDown | Power::Terminated);
        steps.add_fault_if(remains, "TerminateInstances is called", |w| {
            w.ec2.power = Power::ShuttingDown;
        });
        steps.add_if(power == Power::Stopping, "the instance is stopped", |w| {
            w.ec2.power = Power::Stopped;
            w.end_boot();
        });
        steps.add_if(power == Power::ShuttingDown, "the instance is terminated", |w| {
            w.ec2.power = Power::Terminated;
            w.end_boot();
            w.ec2.held = w.ec2.held.filter(|on| *on == On::B);
        });
        let may_boot = self.guest.boot < rules.boots;
        steps.add_fault_if(power == Power::Stopped && may_boot, "the instance is started", |w| {
            w.ec2.power = Power::Pending;
            w.end_boot();
            w.guest.boot += 1;
        });
        let is_pending = power == Power::Pending;
        steps.add_if(is_pending, "the instance runs again", |w| w.ec2.power = Power::Running);
        steps.add_fault_if(runs && may_boot && self.guest.up, "the guest reboots", |w| {
            w.end_boot();
            w.guest.boot += 1;
        });
        let is_undecided = self.detach_in_flight
            || self
                .calls
                .iter()
                .flatten()
                .any(|call| matches!(call.stage, Stage::Asking | Stage::Decided(_)));
        let boots = runs && !self.guest.up && self.shown.power == power && !is_undecided;
        steps.add_if(boots, "the guest has booted", |w| w.guest.up = true);
        let is_checked = runs && rules.fences == Some(FenceWhen::Impaired);
        let (may_fail, may_pass) = (is_checked && !self.impaired, is_checked && self.impaired);
        steps.add_fault_if(may_fail, "the status checks fail", |w| w.impaired = true);
        steps.add_fault_if(may_pass, "the status checks pass again", |w| w.impaired = false);
        let late = self.shown.power != power;
        steps.add_if(late, "EC2's view of instances catches up", |w| w.shown.power = power);
        let late = self.shown.held != self.ec2.held;
        steps.add_if(late, "EC2's view of volumes catches up", |w| w.shown.held = w.ec2.held);
        steps.add_if(self.detach_in_flight, "DetachVolume arrives", |w| {
            // The worst case: the volume is detached without the guest's consent.
            w.ec2.held = w.ec2.held.filter(|on| *on == On::B);
            w.detach_in_flight = false;
        });
        steps.add_fault_if(self.detach_in_flight, "DetachVolume is lost", |w| {
            w.detach_in_flight = false;
        });
    }

    fn end_boot(&mut self) {
        self.guest = Guest { up: false, registered: false, mounted: false, ..self.guest };
    }
}
