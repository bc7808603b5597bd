//! Node A's node-agent and mount-helper, and the annotation that requests a promise.

use ebs_csi_safe_detach::{Agent, KernelState};

use super::{Agents, Fault, Hold, Rules, World};
use crate::explore::Steps;
use crate::kubernetes_objects::answered;

impl World {
    pub(super) fn add_agent_steps(&self, rules: Rules, steps: &mut Steps<Self>) {
        let is_over = self.promise_requested && !self.is_leaving();
        steps.add_if(is_over, "the request for a promise is withdrawn", |w| {
            w.promise_requested = false;
        });
        let guest = self.guest;
        if !self.is_running() {
            return;
        }
        // Kubelet shows the agent its annotations.
        let can_promise = !guest.is_cut_off && !guest.old_agent;
        let looks = rules.fault != Fault::PromiseWhileHeld;
        let may_promise = self.promise_requested && (!self.is_used() || !looks);
        steps.add_if(can_promise && may_promise && !guest.promised, "a promise is recorded", |w| {
            w.guest.promised = true;
        });
        let at_once = rules.fault == Fault::PromiseLiftedAtOnce;
        let waited = !self.detach_in_flight || at_once;
        let may_lift = !self.promise_requested && waited;
        let lifts = rules.fault != Fault::PromiseNeverLifted;
        steps.add_if(can_promise && guest.promised && may_lift && lifts, "a promise ends", |w| {
            w.guest.promised = false;
            if !at_once {
                w.age_facts();
            }
        });
        if matches!(rules.agents, Agents::Stay | Agents::Old) || self.detach_in_flight {
            return;
        }
        let forgets = rules.fault == Fault::PromiseInMemory;
        let differs = self.promise_requested || guest.promised && forgets;
        let flips = rules.agents == Agents::Mixed;
        steps.add_fault_if(differs || flips, "the node-agent's pod is replaced", |w| {
            w.promise_requested = false;
            w.guest.promised &= !forgets;
            w.guest.old_agent ^= flips;
            // With the fault, a new process answers within the time of a call.
            if !forgets {
                w.age_facts();
            }
        });
    }

    /// Returns what the node-agent answers now.
    pub(super) fn agent(&self, rules: Rules) -> Agent {
        if !self.is_running() {
            return Agent::Silent;
        }
        if self.guest.old_agent {
            return Agent::WithoutPage;
        }
        let state = match self.guest.hold {
            Hold::Stage if rules.fault == Fault::LookWithoutLock => KernelState::Free,
            Hold::Stage => KernelState::Busy,
            Hold::Unlisted if rules.fault == Fault::HolderUnseen => KernelState::Free,
            Hold::Mount | Hold::Unlisted => KernelState::Held,
            Hold::Nothing if self.guest.disk => KernelState::Free,
            Hold::Nothing => KernelState::NoDisk,
        };
        let requested = rules.fault == Fault::RequestCountsAsPromise && self.promise_requested;
        answered(state, self.guest.promised || requested)
    }
}
