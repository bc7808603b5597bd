//! Whether kubelet has registered the driver, for the metric and for readiness.
//!
//! A node whose agent runs but is not registered looks healthy from outside, and no volume is ever
//! mounted there.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::metrics::Metrics;

/// Kubelet notices a new socket within seconds; a kubelet that waits for the API server takes
/// longer.
const REGISTERED_WITHIN: Duration = Duration::from_secs(60);

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
    #[must_use]
    pub fn elsewhere(metrics: Arc<Metrics>) -> Self {
        Self { state: Mutex::new(State::Elsewhere), metrics }
    }

    /// Creates the state of an agent that has just put its socket where kubelet finds it.
    #[must_use]
    pub fn waiting(metrics: Arc<Metrics>, now: Instant) -> Self {
        let standing = Self::elsewhere(metrics);
        standing.shown(now);
        standing
    }

    /// Records that a new socket is visible to kubelet.
    pub fn shown(&self, now: Instant) {
        self.set(State::Waiting { since: now });
    }

    /// Records kubelet's report about the registration.
    pub fn told(&self, registered: bool, reason: &str) {
        self.set(if registered {
            State::Registered
        } else {
            State::Refused { reason: reason.to_owned() }
        });
    }

    /// Records that another agent has replaced this agent's sockets.
    pub fn taken_over(&self) {
        self.set(State::TakenOver);
    }

    /// Returns why no volume can be mounted through this agent.
    #[must_use]
    pub fn fault(&self, now: Instant) -> Option<String> {
        match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Elsewhere | State::Registered => None,
            State::Waiting { since } => {
                let waited = now.saturating_duration_since(*since);
                (waited >= REGISTERED_WITHIN).then(|| {
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
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
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
        let standing = RegistrationState::waiting(Arc::clone(&metrics), start);
        let shows = |value: u8| metrics.page().contains(&format!("\n{SERIES} {value}\n"));
        assert!(shows(0));
        let later = start + REGISTERED_WITHIN;
        assert_eq!(standing.fault(later - Duration::from_millis(1)), None);
        let fault = standing.fault(later).unwrap();
        assert!(fault.contains("in 60 s"), "{fault}");

        standing.told(true, "");
        assert!(shows(1));
        assert_eq!(standing.fault(later), None);
        standing.told(false, "no such version");
        assert!(shows(0));
        assert!(standing.fault(start).unwrap().contains("no such version"));
        standing.shown(later);
        assert_eq!(standing.fault(later), None);
        standing.taken_over();
        assert!(standing.fault(later).unwrap().contains("taken over"));
    }

    #[test]
    fn agent_with_separate_registrar_reports_no_fault() {
        let metrics = Arc::new(Metrics::default());
        let standing = RegistrationState::elsewhere(Arc::clone(&metrics));
        let later = Instant::now() + REGISTERED_WITHIN;
        assert_eq!(standing.fault(later), None);
        assert!(!metrics.page().contains(SERIES));
    }
}
