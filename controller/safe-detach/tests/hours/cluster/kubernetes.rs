//! Kubelets, kube-controller-manager and external-attacher, each with its own period.

use super::{Cluster, EVICTION, GRACE, NODES};

impl Cluster {
    pub(super) fn of_kubelets(&mut self) {
        for node in 0..NODES {
            let speaks = node != 0 || self.reaches;
            if speaks && (self.now + self.phase * node as u64).is_multiple_of(10) {
                self.heard[node] = self.now;
                self.lost[node] = None;
            }
        }
        if self.reaches {
            self.mounted &= self.pod == Some(false);
            self.in_use = self.mounted;
            if self.pod == Some(true) && !self.mounted {
                self.pod = None;
            }
        }
    }

    pub(super) fn of_kubernetes(&mut self) {
        for node in 0..NODES {
            let silent = self.now - self.heard[node] > GRACE;
            // The node lifecycle controller checks every five seconds.
            if silent && self.lost[node].is_none() && self.is_time_for(5) {
                self.lost[node] = Some(self.now);
            }
        }
        let lost_for = self.lost[0].map(|since| self.now - since);
        let evicted = lost_for.is_some_and(|lost| lost > EVICTION) || self.is_tainted();
        if evicted && self.pod == Some(false) {
            self.pod = Some(true);
        }
        let collected = self.pod == Some(true) && self.is_tainted() && lost_for.is_some();
        if collected && self.is_time_for(20) {
            self.pod = None;
        }
        let forced = self.is_tainted() || lost_for.is_some_and(|lost| lost > 360);
        if self.pod.is_none() && self.attachment == Some((false, false)) && (!self.in_use || forced)
        {
            self.attached = false;
            self.attachment = Some((true, false));
        }
        let free = self.pod.is_none() && self.attachment.is_none() && !self.held;
        self.moved |= free && self.is_time_for(4);
    }

    pub(super) fn of_attacher(&mut self) {
        let going = self.attachment.is_some_and(|(deleting, _)| deleting);
        if going && self.call.is_none() && self.now >= self.next_call {
            self.call = Some((self.now, false));
        }
    }
}
