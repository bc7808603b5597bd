//! EC2: node A's instance, the volume, and what EC2 shows of them.

use ebs_csi_safe_detach::Power;
use ebs_csi_safe_detach::lifecycle::FenceWhen;

use super::{Guest, Hold, On, Order, Rules, World};
use crate::explore::Steps;

impl World {
    pub(super) fn add_ec2_steps(&self, rules: Rules, steps: &mut Steps<Self>) {
        let power = self.ec2.power;
        let runs = power == Power::Running;
        let may_stop = runs && rules.power_fails;
        steps.add_fault_if(may_stop, "StopInstances is called", |w| w.ec2.power = Power::Stopping);
        steps.add_fault_if(may_stop && rules.orders, "StopInstances hibernates", |w| {
            w.ec2.power = Power::Stopping;
            w.ec2.hibernated = true;
        });
        let is_ending = matches!(power, Power::ShuttingDown | Power::Terminated);
        let remains = rules.power_fails && !is_ending;
        steps.add_fault_if(remains, "TerminateInstances is called", |w| {
            w.ec2.power = Power::ShuttingDown;
            w.ec2.hibernated = false;
        });
        steps.add_if(power == Power::Stopping, "the instance is stopped", |w| {
            w.ec2.power = Power::Stopped;
            if w.ec2.hibernated {
                // Mounts and promises are part of the memory that a hibernation saves.
                w.guest.up = false;
            } else {
                w.end_boot();
            }
        });
        steps.add_if(power == Power::ShuttingDown, "the instance is terminated", |w| {
            w.ec2.power = Power::Terminated;
            w.end_boot();
            w.ec2.held = w.ec2.held.filter(|on| *on == On::B);
        });
        let may_boot = self.guest.boot < rules.boots;
        steps.add_fault_if(power == Power::Stopped && may_boot, "the instance is started", |w| {
            w.ec2.power = Power::Pending;
            // A guest that was hibernated continues in the boot that it had.
            w.guest.boot += u8::from(!w.ec2.hibernated);
        });
        let is_pending = power == Power::Pending;
        steps.add_if(is_pending, "the instance runs again", |w| {
            w.ec2.power = Power::Running;
            if w.ec2.hibernated {
                // Such a guest continues at once.
                w.guest.up = true;
                w.ec2.hibernated = false;
            }
        });
        steps.add_fault_if(runs && may_boot && self.guest.up, "the guest reboots", |w| {
            w.end_boot();
            w.guest.boot += 1;
        });
        let boots = runs && !self.guest.up && self.shown.power == power && !self.detach_in_flight;
        steps.add_if(boots, "the guest has booted", |w| {
            w.guest.up = true;
            w.age_facts();
        });
        let is_checked = runs && rules.fences == Some(FenceWhen::Impaired);
        let (may_fail, may_pass) = (is_checked && !self.impaired, is_checked && self.impaired);
        steps.add_fault_if(may_fail, "the status checks fail", |w| w.impaired = true);
        steps.add_fault_if(may_pass, "the status checks pass again", |w| w.impaired = false);
        let of_instance = |ec2: super::Ec2| (ec2.power, ec2.hibernated);
        let late = of_instance(self.shown) != of_instance(self.ec2);
        steps.add_if(late, "EC2's view of instances catches up", |w| {
            w.shown.power = power;
            w.shown.hibernated = w.ec2.hibernated;
        });
        let late = self.shown.held != self.ec2.held;
        steps.add_if(late, "EC2's view of volumes catches up", |w| w.shown.held = w.ec2.held);
        steps.add_if(self.detach_in_flight, "DetachVolume arrives", |w| {
            // The worst case: the volume is detached without the guest's consent.
            w.ec2.held = w.ec2.held.filter(|on| *on == On::B);
            if w.order == Order::Sent {
                // The person who gave the override order accepts that the node loses its mount.
                w.guest.hold = Hold::Nothing;
                w.guest.has_leave = false;
            }
            w.end_detach();
        });
        steps.add_fault_if(self.detach_in_flight, "DetachVolume is lost", Self::end_detach);
    }

    fn end_detach(&mut self) {
        self.detach_in_flight = false;
        if self.order == Order::Sent {
            self.order = Order::None;
        }
    }

    fn end_boot(&mut self) {
        self.guest = Guest {
            up: false,
            registered: false,
            hold: Hold::Nothing,
            has_leave: false,
            promised: false,
            ..self.guest
        };
    }
}
