//! Whether kubelet has registered the driver, for the metric and for readiness.
//!
//! A node whose agent runs but is not registered looks healthy from outside, and no volume is ever
//! mounted there.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ebs_csi_proto::lock;

use crate::metrics::Metrics;

/// Kubelet notices a new socket within seconds; a kubelet that waits for the API server takes
/// longer.
const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(60);

/// Kubelet's last answer about the registration, or the time since when none has come.
#[derive(Debug)]
pub struct RegistrationState {
    state: Mutex<State>,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
enum State {
    /// A separate registrar registers the driver.
    Elsewhere,
    Waiting {
        since: Instant,
    },
    Registered,
    Refused {
        reason: String,
    },
    TakenOver,
}

impl RegistrationState {
    /// Creates the state of an agent that leaves the registration to a separate registrar.
    pub fn elsewhere(metrics: Arc<Metrics>) -> Self {
        Self { state: Mutex::new(State::Elsewhere), metrics }
    }

    /// Creates the state of an agent that has just put its socket where kubelet finds it.
    pub fn waiting(metrics: Arc<Metrics>, now: Instant) -> Self {
        let registration_state = Self::elsewhere(metrics);
        registration_state.record_new_socket(now);
        registration_state
    }

    /// Records that a new socket is visible to kubelet.
    pub fn record_new_socket(&self, now: Instant) {
        self.set(State::Waiting { since: now });
    }

    /// Records kubelet's report about the registration.
    pub fn record_status(&self, registered: bool, reason: &str) {
        self.set(if registered {
            State::Registered
        } else {
            State::Refused { reason: reason.to_owned() }
        });
    }

    /// Records that another agent has replaced this agent's sockets.
    pub fn record_takeover(&self) {
        self.set(State::TakenOver);
    }

    /// Returns why no volume can be mounted through this agent.
    pub fn fault(&self, now: Instant) -> Option<String> {
        match &*lock(&self.state) {
            State::Elsewhere | State::Registered => None,
            State::Waiting { since } => {
                let waited = now.saturating_duration_since(*since);
                (waited >= REGISTRATION_TIMEOUT).then(|| {
                    format!(
                        "kubelet has not registered the driver in {} s; check that --plugin-registration-path is kubelet's \
                         plugins_registry and --kubelet-registration-path the CSI socket as kubelet sees it, and kubelet's log",
                        waited.as_secs()
                    )
                })
            }
            State::Refused { reason } => Some(format!("kubelet refuses the driver: {reason}")),
            State::TakenOver => Some("another agent has taken over this node's sockets".to_owned()),
        }
    }

    fn set(&self, state: State) {
        self.metrics.kubelet_registered(matches!(state, State::Registered));
        *lock(&self.state) = state;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERIES: &str = "ebs_csi_node_agent_kubelet_registered";

    /// The fault is set 60 s after the start, or at once when kubelet refuses the registration or
    /// another agent takes over.
    #[test]
    fn unregistered_agent_sets_metric_first_and_faults_later() {
        let (metrics, start) = (Arc::new(Metrics::default()), Instant::now());
        let registration_state = RegistrationState::waiting(Arc::clone(&metrics), start);
        let shows = |value: u8| metrics.page().contains(&format!("\n{SERIES} {value}\n"));
        assert!(shows(0));
        let later = start + REGISTRATION_TIMEOUT;
        assert_eq!(registration_state.fault(later - Duration::from_millis(1)), None);
        let fault = registration_state.fault(later).unwrap();
        assert!(fault.contains("in 60 s"), "{fault}");

        registration_state.record_status(true, "");
        assert!(shows(1));
        assert_eq!(registration_state.fault(later), None);
        registration_state.record_status(false, "no such version");
        assert!(shows(0));
        assert!(registration_state.fault(start).unwrap().contains("no such version"));
        registration_state.record_new_socket(later);
        assert_eq!(registration_state.fault(later), None);
        registration_state.record_takeover();
        assert!(registration_state.fault(later).unwrap().contains("taken over"));
    }

    #[test]
    fn agent_with_separate_registrar_reports_no_fault() {
        let metrics = Arc::new(Metrics::default());
        let registration_state = RegistrationState::elsewhere(Arc::clone(&metrics));
        let later = Instant::now() + REGISTRATION_TIMEOUT;
        assert_eq!(registration_state.fault(later), None);
        assert!(!metrics.page().contains(SERIES));
    }
}
