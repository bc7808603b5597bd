//! Checks at the start and once an hour whether AWS lets the controller work, and serves the result
//! to Probe and /readyz.
//!
//! An outage of AWS must not restart the process. A liveness probe reads Probe, so after the first
//! success Probe stays ready, and later failures show in /readyz, in a metric and in the log
//! (`--probe-aws` changes that).

use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use ebs_csi_ec2::{Ec2, Ec2Error};
use ebs_csi_proto::identity::Readiness;
use ebs_csi_proto::{Condition, Failure};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::metrics::Metrics;

/// What Probe says about AWS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProbeAws {
    /// Not ready until the first successful check; later failures show in /readyz, metric and log.
    Startup,
    /// Not ready whenever the last check failed.
    Always,
    /// Ready as soon as the process serves.
    Never,
}

/// How long the result of a successful check stays valid.
const INTERVAL: Duration = Duration::from_secs(3600);
/// How long Probe waits for the first check, which is under way.
const FIRST_CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest pause after a failed check; the pause begins at one second and doubles.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
struct ProbeResult {
    has_ever_succeeded: bool,
    failure: Option<String>,
}

/// The check of AWS and its last outcome.
#[derive(Debug)]
pub(crate) struct Probe {
    mode: ProbeAws,
    outcome: watch::Sender<Option<ProbeResult>>,
    check_requested: Notify,
}

impl Probe {
    pub(crate) fn new(mode: ProbeAws) -> Arc<Self> {
        Arc::new(Self { mode, outcome: watch::Sender::new(None), check_requested: Notify::new() })
    }

    pub(crate) fn readiness(self: &Arc<Self>) -> Readiness {
        let probe = Arc::clone(self);
        Arc::new(move || {
            let probe = Arc::clone(&probe);
            Box::pin(async move { probe.answer().await })
        })
    }

    async fn answer(&self) -> Result<bool, Failure> {
        if self.mode == ProbeAws::Never {
            return Ok(true);
        }
        let mut outcomes = self.outcome.subscribe();
        let known = timeout(FIRST_CHECK_TIMEOUT, outcomes.wait_for(Option::is_some)).await;
        let outcome = match known {
            Ok(Ok(outcome)) => outcome.clone(),
            _ => None,
        };
        match outcome {
            Some(ProbeResult { failure: None, .. }) => Ok(true),
            Some(ProbeResult { has_ever_succeeded: true, .. })
                if self.mode == ProbeAws::Startup =>
            {
                Ok(true)
            }
            Some(ProbeResult { failure: Some(why), .. }) => {
                self.check_requested.notify_one();
                Err(Failure::new(Condition::NotReady, format!("the check of AWS failed: {why}")))
            }
            None => Err(Failure::new(
                Condition::NotReady,
                "the first check of AWS has not ended: EC2 does not answer; check the network path to the EC2 endpoint",
            )),
        }
    }

    /// Returns why the controller is not ready now, if it is not; for /readyz. The cause may name
    /// the account and its role, and every pod can read /readyz, so that only the log has it.
    pub(crate) fn unready(&self) -> Option<&'static str> {
        if self.mode == ProbeAws::Never {
            return None;
        }
        match &*self.outcome.borrow() {
            None => Some("the first check of AWS has not ended"),
            Some(ProbeResult { failure: Some(_), .. }) => {
                Some("the check of AWS failed; the controller's log has the cause")
            }
            Some(ProbeResult { failure: None, .. }) => None,
        }
    }

    pub(crate) async fn run(self: Arc<Self>, ec2: Ec2, metrics: Arc<Metrics>) {
        let mut failures = 0u32;
        loop {
            let result = ec2.check_access().await;
            metrics.usable(result.is_ok());
            let first_success = self.record(&result);
            if first_success {
                tokio::spawn(log_identity(ec2.clone()));
            }
            match result {
                Ok(()) => {
                    failures = 0;
                    sleep(INTERVAL).await;
                }
                Err(_) => {
                    let pause = Duration::from_secs(1 << failures.min(6)).min(MAX_RETRY_PAUSE);
                    failures = failures.saturating_add(1);
                    tokio::select! {
                        // A fixed order instead of a random one, so that a seeded history replays
                        // exactly.
                        biased;
                        () = sleep(pause) => {}
                        // A caller of Probe asks: check again, but at most once a second.
                        () = self.check_requested.notified() => sleep(Duration::from_secs(1)).await,
                    }
                }
            }
        }
    }

    /// Records an outcome. Returns whether it is the first success.
    fn record(&self, result: &Result<(), Ec2Error>) -> bool {
        let failure = result.as_ref().err().map(ToString::to_string);
        let mut first = false;
        self.outcome.send_modify(|outcome| {
            let before = outcome.take();
            let has_ever_succeeded = before.as_ref().is_some_and(|o| o.has_ever_succeeded);
            let was_failing = before.as_ref().is_some_and(|o| o.failure.is_some());
            first = failure.is_none() && !has_ever_succeeded;
            match &failure {
                Some(why) if !was_failing => tracing::warn!(%why, "the check of AWS failed"),
                Some(why) => tracing::debug!(%why, "the check of AWS failed again"),
                None if was_failing || first => tracing::info!("the check of AWS succeeded"),
                None => {}
            }
            *outcome = Some(ProbeResult {
                has_ever_succeeded: has_ever_succeeded || failure.is_none(),
                failure,
            });
        });
        first
    }
}

/// Asks for the identity that AWS sees, which logs it.
async fn log_identity(ec2: Ec2) {
    if let Err(why) = ec2.caller().await {
        tracing::warn!(
            why,
            "sts:GetCallerIdentity failed; it is asked again when the account is needed for the ARN of an Outpost"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebs_csi_ec2::{Action, Ec2ErrorKind, Sent};

    fn down() -> Result<(), Ec2Error> {
        let (kind, action) = (Ec2ErrorKind::Unreachable, Action::DescribeAvailabilityZones);
        Err(Ec2Error::new(kind, action, Sent::Not, "connection refused"))
    }

    /// A later failure of the check shows in `unready`, not in the probe's answer.
    #[tokio::test(start_paused = true)]
    async fn probe_fails_until_first_success_then_always_succeeds() {
        let probe = Probe::new(ProbeAws::Startup);
        assert!(probe.answer().await.unwrap_err().text().contains("first check"));
        assert!(!probe.record(&down()));
        let failure = probe.answer().await.unwrap_err();
        assert_eq!(failure.condition(), Condition::NotReady);
        assert!(failure.text().contains("connection refused"));
        assert!(probe.record(&Ok(())));
        assert_eq!(probe.answer().await, Ok(true));
        assert_eq!(probe.unready(), None);
        assert!(!probe.record(&down()));
        assert_eq!(probe.answer().await, Ok(true));
        let why = probe.unready().unwrap();
        assert!(why.contains("log") && !why.contains("connection refused"), "{why}");
    }

    #[tokio::test(start_paused = true)]
    async fn always_mode_reports_failure_never_mode_stays_ready() {
        let always = Probe::new(ProbeAws::Always);
        always.record(&Ok(()));
        assert_eq!(always.answer().await, Ok(true));
        always.record(&down());
        assert!(always.answer().await.is_err());
        let never = Probe::new(ProbeAws::Never);
        assert_eq!(never.answer().await, Ok(true));
        never.record(&down());
        assert_eq!((never.answer().await, never.unready()), (Ok(true), None));
    }
}
