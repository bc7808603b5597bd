//! Kubelets, kube-controller-manager and external-attacher, each with its own period.

use super::{Cluster, EVICTION, GRACE, NODES};

impl Cluster {
    pub(super) fn run_kubelets(&mut self) {
        for node in 0..NODES {
            let sends_heartbeat = node != 0 || self.reaches_api_server;
            if sends_heartbeat && (self.now + self.observer_phase * node as u64).is_multiple_of(10)
            {
                self.last_heartbeat[node] = self.now;
                self.not_ready_since[node] = None;
            }
        }
        if self.reaches_api_server {
            self.mounted &= self.pod == Some(false);
            self.in_use = self.mounted;
            if self.pod == Some(true) && !self.mounted {
                self.pod = None;
            }
        }
    }

    pub(super) fn run_kube_controller_manager(&mut self) {
        for node in 0..NODES {
            let is_silent = self.now - self.last_heartbeat[node] > GRACE;
            // The node lifecycle controller checks every five seconds.
            if is_silent && self.not_ready_since[node].is_none() && self.is_due_every(5) {
                self.not_ready_since[node] = Some(self.now);
            }
        }
        let lost_for = self.not_ready_since[0].map(|since| self.now - since);
        let evicted = lost_for.is_some_and(|seconds| seconds > EVICTION) || self.is_tainted();
        if evicted && self.pod == Some(false) {
            self.pod = Some(true);
        }
        let collected = self.pod == Some(true) && self.is_tainted() && lost_for.is_some();
        if collected && self.is_due_every(20) {
            self.pod = None;
        }
        let forced = self.is_tainted() || lost_for.is_some_and(|seconds| seconds > 360);
        if self.pod.is_none() && self.attachment == Some((false, false)) && (!self.in_use || forced)
        {
            self.attached = false;
            self.attachment = Some((true, false));
        }
        let free = self.pod.is_none() && self.attachment.is_none() && !self.is_attached;
        self.pod_moved |= free && self.is_due_every(4);
    }

    pub(super) fn run_external_attacher(&mut self) {
        let is_deleting = self.attachment.is_some_and(|(deleting, _)| deleting);
        if is_deleting && self.call.is_none() && self.now >= self.next_call {
            self.call = Some((self.now, false));
        }
    }
}
