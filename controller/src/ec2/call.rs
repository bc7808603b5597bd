//! One call of an action: its turn, its sending, its being sent again, and what is counted of it.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use ebs_csi_proto::observe::note;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use tracing::{Instrument, field};

use super::action::Action;
use super::bucket::Ended;
use super::caller::Caller;
use super::code::Ec2ErrorKind;
use super::error::{Ec2Error, Sent};
use super::lane::{Lane, LaneLevel, Place};
use super::random::Random;
use super::renewing::Renewing;
use super::retry;
use super::surroundings::Settings;
use super::trail;
use crate::metrics::Metrics;

/// Whether a failed call is made again here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tries {
    /// As [`retry`] says.
    Several,
    /// Once; the caller has its own way to repeat.
    One,
}

/// What all calls share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) client: aws_sdk_ec2::Client,
    pub(super) random: Random,
    pub(super) settings: Settings,
    pub(super) metrics: Arc<Metrics>,
    /// Who AWS takes us for, once it has said.
    pub(super) caller: OnceCell<Caller>,
    credentials: Option<Renewing>,
    lanes: BTreeMap<Action, Arc<Lane>>,
}

impl Core {
    pub(super) fn new(
        client: aws_sdk_ec2::Client,
        credentials: Option<Renewing>,
        settings: Settings,
        metrics: Arc<Metrics>,
    ) -> Self {
        let now = Instant::now();
        let lanes = Action::ALL
            .into_iter()
            .map(|action| {
                let (rate, ceiling) = (settings.rate(action), settings.ceiling(action));
                let most = settings.calls_in_flight;
                (
                    action,
                    Arc::new(Lane::new(action, rate, ceiling, most, now)),
                )
            })
            .collect();
        Self {
            client,
            random: Random::new(settings.seed),
            settings,
            metrics,
            caller: OnceCell::new(),
            credentials,
            lanes,
        }
    }

    pub(super) fn levels(&self) -> Vec<(Action, LaneLevel)> {
        let now = Instant::now();
        self.lanes
            .iter()
            .map(|(action, lane)| (*action, lane.level(now)))
            .collect()
    }

    /// A place in the queue of the action.
    pub(super) fn place(&self, action: Action) -> Option<Place> {
        // Action::ALL is what the lanes were made from.
        self.lanes.get(&action).map(Lane::place)
    }

    /// Makes a call. `send` sends it once.
    ///
    /// A call that was sent is waited for beyond the deadline, up to the call timeout: its outcome is worth more than the time.
    ///
    /// # Errors
    /// The last failure; it may have happened when an earlier attempt may have.
    pub(super) async fn call<T, F>(
        &self,
        action: Action,
        deadline: Instant,
        tries: Tries,
        send: impl Fn() -> F,
    ) -> Result<T, Ec2Error>
    where
        F: Future<Output = Result<T, Ec2Error>>,
    {
        match self.place(action) {
            Some(place) => self.call_at(&place, deadline, tries, send).await,
            None => send().await,
        }
    }

    /// As [`Core::call`], at a place that was taken before.
    ///
    /// # Errors
    /// As [`Core::call`].
    pub(super) async fn call_at<T, F>(
        &self,
        place: &Place,
        deadline: Instant,
        tries: Tries,
        send: impl Fn() -> F,
    ) -> Result<T, Ec2Error>
    where
        F: Future<Output = Result<T, Ec2Error>>,
    {
        let action = place.action();
        let mut made = 0;
        let mut renewed = false;
        // Whether an attempt before had no clear answer: what the last one is told does not undo it.
        let mut unclear = false;
        loop {
            let turn = place.turn(deadline).await;
            let pass = turn.map_err(|error| error.after(unclear))?;
            let started = Instant::now();
            let (result, request_id) = self.send(action, &send).await;
            made += 1;
            let seconds = started.elapsed().as_secs_f64();
            let error = match result {
                Ok(value) => {
                    pass.end(Ended::Accepted);
                    self.metrics.api_call(action.name(), seconds);
                    tracing::debug!(%action, request_id, milliseconds = (seconds * 1e6).round() / 1e3, "ec2 call");
                    return Ok(value);
                }
                Err(error) => error.after(unclear),
            };
            if error.kind == Ec2ErrorKind::Stale {
                pass.end(Ended::NotSent);
                return Err(error);
            }
            unclear = error.may_have_happened();
            self.count(&error);
            tracing::debug!(%action, request_id, milliseconds = (seconds * 1e6).round() / 1e3, attempt = made, %error, "ec2 call failed");
            pass.end(match (error.kind, error.sent) {
                (Ec2ErrorKind::Throttled, _) => Ended::Throttled,
                (_, Sent::Answered) => Ended::Accepted,
                (Ec2ErrorKind::Unwanted, _) => Ended::NotSent,
                _ => Ended::Unknown,
            });
            // AWS refused the credential and did nothing: with a new one the call may be made once more.
            if !renewed && self.renew(&error) {
                renewed = true;
                continue;
            }
            let pause = match tries {
                Tries::One => None,
                Tries::Several => retry::pause(&error, made, self.random.fraction()),
            };
            let Some(pause) = pause.filter(|pause| Instant::now() + *pause < deadline) else {
                return Err(error);
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends once, outside any lane. Answers the outcome and EC2's id of the request.
    pub(super) async fn send<T, F>(
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
        let (result, seen) = trail::follow(send()).instrument(span.clone()).await;
        if let Some(id) = &seen.request_id {
            span.record("request_id", id);
            if result.is_err() || !action.is_read() {
                note("ec2.request_id", id);
            }
        }
        let result = result.map_err(|error| match seen.endpoint {
            Some(endpoint) => error.at(&endpoint),
            None => error,
        });
        if let Err(error) = &result {
            span.record("error", field::display(error));
        }
        (result, seen.request_id)
    }

    /// Forgets credentials that AWS refused; answers whether others may come.
    pub(super) fn renew(&self, error: &Ec2Error) -> bool {
        error.refuses_the_session()
            && self
                .credentials
                .as_ref()
                .is_some_and(|credentials| credentials.forget())
    }

    fn count(&self, error: &Ec2Error) {
        // EC2's way to say that a dry run would have succeeded.
        if error.kind == Ec2ErrorKind::DryRun {
            return;
        }
        let action = error.action.name();
        match (&error.code, error.kind) {
            (_, Ec2ErrorKind::Throttled) => self.metrics.api_throttle(action),
            (Some(code), _) => self.metrics.api_error(action, code),
            // The Go driver counts only failures with a code of EC2's; ours have a name of their own.
            (None, kind) => self.metrics.api_error(action, &format!("{kind:?}")),
        }
    }
}
