//! Deadlines, retries and their record: how a sidecar or kubelet repeats a call until it succeeds.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebs_csi_proto::lock;
use tokio::time::Instant;
use tonic::{Code, Status};

/// The deadline of a call, and when it is repeated.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Deadline of one RPC, also sent to the server (`grpc-timeout`).
    pub deadline: Duration,
    /// Wait before the second attempt; doubles with each further attempt.
    pub initial_backoff: Duration,
    /// Longest wait between two attempts.
    pub max_backoff: Duration,
    /// The time after which no further attempt is made.
    pub max_elapsed: Duration,
}

impl RetryPolicy {
    /// external-provisioner and external-resizer in the driver's chart: 60 s, retries from 1 s.
    pub const PROVISIONER: Self = Self::of(60, 1_000, 300);
    /// external-attacher in the driver's chart: 6 min, retries from 1 s.
    pub const ATTACHER: Self = Self::of(360, 1_000, 300);
    /// kubelet: 2 min, retries from 500 ms, at most 2 min 2 s apart.
    pub const KUBELET: Self = Self::of(120, 500, 122);

    const fn of(deadline_s: u64, initial_backoff_ms: u64, max_backoff_s: u64) -> Self {
        Self {
            deadline: Duration::from_secs(deadline_s),
            initial_backoff: Duration::from_millis(initial_backoff_ms),
            max_backoff: Duration::from_secs(max_backoff_s),
            max_elapsed: Duration::from_secs(180),
        }
    }

    /// Limits the calls to a single attempt, with the same deadline.
    #[must_use]
    pub const fn once(mut self) -> Self {
        self.max_elapsed = Duration::ZERO;
        self
    }

    /// Replaces the deadline of one RPC.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }
}

/// A failure of a call, or of the orchestrator itself.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CoError {
    /// The driver's last answer was an error.
    #[error("{rpc} failed after {attempts} attempts in {:.1} s: {code:?}: {message}", elapsed.as_secs_f64())]
    Refused {
        /// Name of the RPC.
        rpc: &'static str,
        /// gRPC code of the last answer.
        code: Code,
        /// Message of the last answer.
        message: String,
        /// Number of attempts.
        attempts: u32,
        /// Time since the first attempt.
        elapsed: Duration,
    },
    /// The answer or the resulting state violates the specification.
    #[error("{rpc} answered OK, but {what}")]
    Violation {
        /// Name of the RPC.
        rpc: &'static str,
        /// The violation.
        what: String,
    },
    /// The orchestrator's own work failed.
    #[error("{what}: {why}")]
    Own {
        /// The violation.
        what: String,
        /// The system's error message.
        why: String,
    },
}

/// The result of a call.
pub type Result<T, E = CoError> = std::result::Result<T, E>;

impl CoError {
    /// Returns the gRPC code, if the driver answered with one.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    pub(crate) fn violation(rpc: &'static str, what: impl Into<String>) -> Self {
        Self::Violation { rpc, what: what.into() }
    }

    pub(crate) fn own(what: impl Into<String>, why: impl ToString) -> Self {
        Self::Own { what: what.into(), why: why.to_string() }
    }
}

/// The record of one call, from the first attempt to the end.
#[derive(Clone, Debug)]
pub struct CallRecord {
    pub rpc: &'static str,
    /// Time from the first attempt to the last answer.
    pub elapsed: Duration,
    pub attempts: u32,
}

/// The record of all calls made through one orchestrator, shared by its clones.
#[derive(Clone, Debug, Default)]
pub struct Attempts {
    records: Arc<Mutex<Vec<CallRecord>>>,
}

impl Attempts {
    /// Returns the records so far.
    pub fn all(&self) -> Vec<CallRecord> {
        lock(&self.records).clone()
    }

    /// Returns the latest call of `rpc`.
    pub fn last(&self, rpc: &str) -> Option<CallRecord> {
        self.all().into_iter().rev().find(|record| record.rpc == rpc)
    }

    /// Returns how many attempts the latest call of `rpc` took, 0 without a call.
    pub fn attempts_of(&self, rpc: &str) -> u32 {
        self.last(rpc).map_or(0, |call| call.attempts)
    }

    /// Makes the call until it succeeds, the answer is final, or `policy` allows no further
    /// attempt.
    pub(crate) async fn run<T, F>(
        &self,
        rpc: &'static str,
        policy: RetryPolicy,
        mut call: impl FnMut() -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let clock = Instant::now();
        let mut wait = policy.initial_backoff;
        let mut attempts = 0;
        loop {
            attempts += 1;
            // The margin gives the server's own answer at the deadline time to arrive.
            let limit = policy.deadline + Duration::from_millis(500);
            let answer = match tokio::time::timeout(limit, call()).await {
                Ok(answer) => answer.map_err(|status| (status.code(), status.message().to_owned())),
                Err(_) => Err((Code::DeadlineExceeded, "no answer within the deadline".to_owned())),
            };
            let elapsed = clock.elapsed();
            if let Err((code, _)) = &answer
                && is_retryable(*code)
                && elapsed + wait < policy.max_elapsed
            {
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(policy.max_backoff);
                continue;
            }
            let mut records = lock(&self.records);
            records.push(CallRecord { rpc, elapsed, attempts });
            return match answer {
                Ok(reply) => Ok(reply.into_inner()),
                Err((code, message)) => {
                    Err(CoError::Refused { rpc, code, message, attempts, elapsed })
                }
            };
        }
    }
}

/// Returns whether a retry can succeed. A sidecar repeats any failure, but some codes say that the
/// same request cannot succeed.
fn is_retryable(code: Code) -> bool {
    !matches!(
        code,
        Code::InvalidArgument
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::AlreadyExists
            | Code::PermissionDenied
    )
}

/// Makes a call of a generated client through [`Attempts::run`].
macro_rules! call {
    ($own:ident.$client:ident, $policy:ident, $method:ident, $message:expr) => {{
        let message = $message;
        let answer = $own.attempts.run($crate::co::attempt::rpc_of(&message), $own.$policy, || {
            let mut client = $own.$client.clone();
            let request = $crate::co::attempt::request(message.clone(), $own.$policy);
            async move { client.$method(request).await }
        });
        answer.await
    }};
}

/// Returns the name of the RPC that has this request.
pub(crate) fn rpc_of<T>(_: &T) -> &'static str {
    let path = std::any::type_name::<T>();
    path.rsplit("::").next().unwrap_or(path).trim_end_matches("Request")
}

pub(super) use call;

pub(crate) fn request<T>(message: T, policy: RetryPolicy) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(policy.deadline);
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: RetryPolicy = RetryPolicy {
        deadline: Duration::from_secs(1),
        initial_backoff: Duration::from_secs(1),
        max_backoff: Duration::from_secs(4),
        max_elapsed: Duration::from_secs(100),
    };

    #[expect(clippy::disallowed_methods, reason = "a server's answers are played")]
    async fn codes(policy: RetryPolicy, answers: &[Code]) -> (Result<()>, Vec<CallRecord>) {
        let attempts = Attempts::default();
        let mut answers = answers.iter();
        let result = attempts
            .run("Probe", policy, || {
                let answer = match answers.next() {
                    None => Ok(tonic::Response::new(())),
                    Some(code) => Err(Status::new(*code, "said")),
                };
                async move { answer }
            })
            .await;
        (result, attempts.all())
    }

    #[tokio::test(start_paused = true)]
    async fn retryable_grpc_codes_are_retried_and_recorded() {
        let (result, records) =
            codes(QUICK, &[Code::Aborted, Code::Unavailable, Code::Internal]).await;
        result.unwrap();
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].attempts, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn final_grpc_codes_stop_retries() {
        for code in [Code::InvalidArgument, Code::OutOfRange, Code::AlreadyExists] {
            let (result, _) = codes(QUICK, &[Code::Aborted, code, Code::Aborted]).await;
            let error = result.unwrap_err();
            assert_eq!(error.code(), Some(code));
            assert!(error.to_string().contains("after 2 attempts"), "{error}");
        }
    }

    #[tokio::test]
    async fn once_policy_makes_single_attempt() {
        let (result, records) = codes(RetryPolicy::KUBELET.once(), &[Code::Unavailable]).await;
        assert_eq!(result.unwrap_err().code(), Some(Code::Unavailable));
        assert_eq!(records[0].attempts, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_call_ends_with_deadline_exceeded() {
        let attempts = Attempts::default();
        let error = attempts
            .run("NodeStageVolume", QUICK.once(), || {
                std::future::pending::<Result<tonic::Response<()>, Status>>()
            })
            .await
            .unwrap_err();
        assert_eq!(error.code(), Some(Code::DeadlineExceeded));
    }
}
