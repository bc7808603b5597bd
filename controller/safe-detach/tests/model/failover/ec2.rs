//! EC2: node A's instance, the volume, and what EC2 shows of them.

use ebs_csi_safe_detach::Power;
use ebs_csi_safe_detach::lifecycle::FenceWhen;

use super::{Ec2, Guest, On, Rules, Stage, World};
use crate::explore::Steps;

impl World {
    pub(super) fn add_ec2_steps(&self, rules: Rules, steps: &mut Steps<Self>) {
        let power = self.ec2.power;
        let becomes = |power| Self { ec2: Ec2 { power, ..self.ec2 }, ..*self };
        let off = |after: Self| Self {
            guest: Guest { up: false, registered: false, mounted: false, ..self.guest },
            ..after
        };
        let boots = self.guest.boot < rules.boots;
        let booting = |after: Self| Self {
            guest: Guest { boot: self.guest.boot + 1, ..off(after).guest },
            ..after
        };
        let runs = power == Power::Running;
        steps.add_fault_if(runs, "the instance is told to stop", || becomes(Power::Stopping));
        let ends = matches!(power, Power::ShuttingDown | Power::Terminated);
        steps.add_fault_if(!ends, "the instance is told to terminate", || {
            becomes(Power::ShuttingDown)
        });
        steps.add_if(power == Power::Stopping, "the instance is off", || {
            off(becomes(Power::Stopped))
        });
        steps.add_if(power == Power::ShuttingDown, "the instance is gone", || {
            let mut after = off(becomes(Power::Terminated));
            after.ec2.held = after.ec2.held.filter(|on| *on == On::B);
            after
        });
        let stopped = power == Power::Stopped;
        steps.add_fault_if(stopped && boots, "the instance is started", || {
            booting(becomes(Power::Pending))
        });
        steps
            .add_if(power == Power::Pending, "the instance runs again", || becomes(Power::Running));
        steps.add_fault_if(runs && boots && self.guest.up, "the guest reboots", || booting(*self));
        let between = self.detach_in_flight
            || self
                .calls
                .iter()
                .flatten()
                .any(|call| matches!(call.stage, Stage::Asking | Stage::Decided(_)));
        let boots = runs && !self.guest.up && self.shown.power == power && !between;
        steps.add_if(boots, "the guest has booted", || Self {
            guest: Guest { up: true, ..self.guest },
            ..*self
        });
        let checked = runs && rules.fences == Some(FenceWhen::Impaired);
        let checks = |impaired| Self { impaired, ..*self };
        steps.add_fault_if(checked && !self.impaired, "its checks fail", || checks(true));
        steps.add_fault_if(checked && self.impaired, "its checks pass again", || checks(false));
        let late = self.shown.power != power;
        steps.add_if(late, "EC2's view of instances catches up", || Self {
            shown: Ec2 { power, ..self.shown },
            ..*self
        });
        let held = self.ec2.held;
        let late = self.shown.held != held;
        steps.add_if(late, "EC2's view of volumes catches up", || Self {
            shown: Ec2 { held, ..self.shown },
            ..*self
        });
        steps.add_if(self.detach_in_flight, "DetachVolume arrives", || Self {
            ec2: Ec2 {
                // The worst case: the volume is detached without the guest's consent.
                held: held.filter(|on| *on == On::B),
                ..self.ec2
            },
            detach_in_flight: false,
            ..*self
        });
        steps.add_fault_if(self.detach_in_flight, "DetachVolume is lost", || Self {
            detach_in_flight: false,
            ..*self
        });
    }
}
