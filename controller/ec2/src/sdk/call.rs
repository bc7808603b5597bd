//! One call of an action: the wait for its turn, the sending, the retries, and the metrics.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use ebs_csi_proto::observe::record_field;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use tracing::{Instrument, field};

use super::credentials::RenewingCredentials;
use super::interceptors;
use super::settings::{Ec2Settings, Observer};
use crate::call::Call;
use crate::calls::Action;
use crate::client::identity::CallerIdentity;
use crate::error::code::Ec2ErrorKind;
use crate::error::{Ec2Error, Sent};
use crate::model::sdk_field::Incomplete;
use crate::pacing::bucket::CallOutcome;
use crate::pacing::lane::{Lane, LaneLevel, QueuePlace};
use crate::pacing::random::Random;
use crate::pacing::retry;

/// Sends one request and converts the SDK's failure to an [`Ec2Error`], which the function that
/// sends returns.
macro_rules! send {
    ($action:expr, $request:expr) => {
        $request.send().await.map_err(|e| crate::error::Ec2Error::from_sdk($action, &e))?
    };
}

pub(crate) use send;

/// Takes the error with which EC2 answers a dry run that would have succeeded for a success.
pub(crate) fn accept_dry_run(result: Result<(), Ec2Error>) -> Result<(), Ec2Error> {
    match result {
        Err(error) if error.kind == Ec2ErrorKind::DryRun => Ok(()),
        result => result,
    }
}

/// Returns the conversion of a missing field to the error of a success that cannot be read.
pub(crate) fn unreadable(action: Action) -> impl Fn(Incomplete) -> Ec2Error {
    move |incomplete| Ec2Error::unreadable(action, incomplete.to_string())
}

/// Whether a failed call is sent again here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tries {
    /// As often as [`retry`] allows.
    Several,
    /// Not at all; the caller repeats in its own way.
    One,
}

/// The state that all calls share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) client: aws_sdk_ec2::Client,
    pub(crate) random: Random,
    pub(crate) settings: Ec2Settings,
    pub(crate) observer: Arc<dyn Observer>,
    /// The identity that AWS sees, once AWS has told it.
    pub(crate) caller: OnceCell<CallerIdentity>,
    credentials: Option<RenewingCredentials>,
    lanes: BTreeMap<Action, Arc<Lane>>,
}

impl Core {
    pub(crate) fn new(
        client: aws_sdk_ec2::Client,
        credentials: Option<RenewingCredentials>,
        settings: Ec2Settings,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let now = Instant::now();
        let lanes = Action::ALL
            .into_iter()
            .map(|action| {
                let (rate, ceiling) = (settings.rate(action), settings.ceiling(action));
                let max_under_way = settings.calls_in_flight;
                (action, Arc::new(Lane::new(action, rate, ceiling, max_under_way, now)))
            })
            .collect();
        for action in Action::ALL {
            observer.expect_api_call(action);
        }
        Self {
            client,
            random: Random::new(settings.seed),
            settings,
            observer,
            caller: OnceCell::new(),
            credentials,
            lanes,
        }
    }

    pub(crate) fn lane_levels(&self) -> Vec<(Action, LaneLevel)> {
        let now = Instant::now();
        self.lanes.iter().map(|(action, lane)| (*action, lane.level(now))).collect()
    }

    pub(crate) fn throttled_since(&self, since: Instant) -> Vec<Action> {
        let is_throttled = |lane: &Lane| lane.last_throttle().is_some_and(|last| last >= since);
        self.lanes.iter().filter(|(_, lane)| is_throttled(lane)).map(|(a, _)| *a).collect()
    }

    pub(crate) fn take_place(&self, action: Action) -> Option<QueuePlace> {
        // Never `None`: the lanes were made from `Action::ALL`.
        self.lanes.get(&action).map(Lane::take_place)
    }

    /// Makes a call that changes nothing. `send` sends the request once.
    pub(crate) async fn read<T, F>(
        &self,
        call: &Call,
        action: Action,
        send: impl Fn() -> F,
    ) -> Result<T, Ec2Error>
    where
        F: Future<Output = Result<T, Ec2Error>>,
    {
        self.call(action, None, self.deadline_of(call), Tries::Several, send).await
    }

    /// Makes a call that changes something, while somebody waits for it. `send` sends the request
    /// once.
    pub(crate) async fn send_change<T, F>(
        &self,
        call: &Call,
        action: Action,
        send: impl Fn() -> F,
    ) -> Result<T, Ec2Error>
    where
        F: Future<Output = Result<T, Ec2Error>>,
    {
        let send_if_wanted = || async {
            match call.is_wanted() {
                true => send().await,
                false => Err(Ec2Error::unwanted(action)),
            }
        };
        let (place, deadline) = (call.place(action), self.deadline_of(call));
        self.call(action, place, deadline, Tries::Several, send_if_wanted).await
    }

    /// Returns when a call for this work must have had its turn.
    pub(crate) fn deadline_of(&self, call: &Call) -> Instant {
        call.deadline_or(self.settings.default_timeout)
    }

    /// Makes a call, from `place` when the caller has taken one of this action. `send` sends it
    /// once.
    ///
    /// A call that was sent is awaited beyond the deadline, up to the call timeout: knowing the
    /// outcome is worth more than the time.
    ///
    /// # Errors
    /// The last failure. It counts as one that may have happened when an earlier attempt may have
    /// happened.
    pub(crate) async fn call<T, F>(
        &self,
        action: Action,
        place: Option<&QueuePlace>,
        deadline: Instant,
        tries: Tries,
        send: impl Fn() -> F,
    ) -> Result<T, Ec2Error>
    where
        F: Future<Output = Result<T, Ec2Error>>,
    {
        let taken = match place {
            Some(_) => None,
            None => self.take_place(action),
        };
        let Some(place) = place.or(taken.as_ref()) else {
            return send().await;
        };
        let mut attempts = 0;
        let mut renewed = false;
        // Whether an earlier attempt had no clear answer; a later error does not show that the
        // earlier attempt had no effect.
        let mut unclear = false;
        loop {
            let turn = place.wait_for_turn(deadline).await;
            let permit = turn.map_err(|error| error.after(unclear))?;
            let started = Instant::now();
            let (result, request_id) = self.send_once(action, &send).await;
            attempts += 1;
            let seconds = started.elapsed().as_secs_f64();
            let error = match result {
                Ok(value) => {
                    permit.end(CallOutcome::Accepted);
                    self.observer.api_call(action, seconds);
                    tracing::debug!(%action, request_id, milliseconds = (seconds * 1e6).round() / 1e3, "ec2 call");
                    return Ok(value);
                }
                Err(error) => error.after(unclear),
            };
            if error.kind == Ec2ErrorKind::Stale {
                permit.end(CallOutcome::NotSent);
                return Err(error);
            }
            unclear = error.may_have_happened();
            self.count_error(&error);
            tracing::debug!(%action, request_id, milliseconds = (seconds * 1e6).round() / 1e3, attempt = attempts, %error, "ec2 call failed");
            permit.end(match (error.kind, error.sent) {
                (Ec2ErrorKind::Throttled, _) => CallOutcome::Throttled,
                (_, Sent::Answered) => CallOutcome::Accepted,
                (Ec2ErrorKind::Unwanted, _) => CallOutcome::NotSent,
                _ => CallOutcome::Unknown,
            });
            // AWS refused the credential and did nothing, so the call may be made once more with a
            // new one.
            if !renewed && self.drop_refused_credentials(&error) {
                renewed = true;
                continue;
            }
            let pause = match tries {
                Tries::One => None,
                Tries::Several => retry::pause(&error, attempts, self.random.fraction()),
            };
            let Some(pause) = pause.filter(|pause| Instant::now() + *pause < deadline) else {
                return Err(error);
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends once, outside any lane. Returns the outcome and EC2's id of the request.
    pub(crate) async fn send_once<T, F>(
        &self,
        action: Action,
        send: impl Fn() -> F,
    ) -> (Result<T, Ec2Error>, Option<String>)
    where
        F: Future<Output = Result<T, Ec2Error>>,
    {
        let span = tracing::debug_span!(
            "ec2",
            %action,
            request_id = field::Empty,
            error = field::Empty
        );
        let (result, exchange) =
            interceptors::record_exchange(send()).instrument(span.clone()).await;
        if let Some(id) = &exchange.request_id {
            span.record("request_id", id);
            if result.is_err() || !action.is_read() {
                record_field("ec2.request_id", id);
            }
        }
        let result = result.map_err(|error| match exchange.endpoint {
            Some(endpoint) => error.with_endpoint(&endpoint),
            None => error,
        });
        if let Err(error) = &result {
            span.record("error", field::display(error));
        }
        (result, exchange.request_id)
    }

    /// Drops credentials that AWS refused. Returns whether newly fetched ones may work.
    pub(crate) fn drop_refused_credentials(&self, error: &Ec2Error) -> bool {
        error.refuses_credentials()
            && self.credentials.as_ref().is_some_and(|credentials| credentials.drop_refused())
    }

    fn count_error(&self, error: &Ec2Error) {
        // EC2 reports a dry run that would have succeeded as this error.
        if error.kind == Ec2ErrorKind::DryRun {
            return;
        }
        let action = error.action;
        match (&error.code, error.kind) {
            (_, Ec2ErrorKind::Throttled) => self.observer.api_throttle(action),
            (Some(code), _) => self.observer.api_error(action, code),
            // The Go driver counts only failures that have an EC2 error code. The other failures
            // are counted here under the name of their kind.
            (None, kind) => self.observer.api_error(action, &format!("{kind:?}")),
        }
    }
}
