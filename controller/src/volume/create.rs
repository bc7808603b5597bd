//! Creating a volume.
//!
//! The client token makes a repeated create the same create, as long as EC2 remembers the token. A
//! token does not always help: EC2 tests its quota before it looks at tokens, refuses a token whose
//! parameters have changed, and keeps a token used whose volume failed later. Then, and whenever an
//! error is about to be final, the volumes with the name decide: one that fits is the answer.

use std::time::Duration;

use ebs_csi_ec2::{self as ec2, Call, Ec2Error, Ec2ErrorKind, ExpiringCache, Volume};
use ebs_csi_proto::{Condition, Failure};
use tokio::time::Instant;

use super::adopt::{Found, delete_failed, difference, find};
use super::plan::create_failure;
use super::settle::{Settled, not_ready, settle, watch_adopted};
use super::{Attempt, Volumes, encryption};
use crate::operation::Cancellation;
use crate::request::CreateVolume;

/// How long one creation may take, including the waits for its turn and for EC2.
const CREATE_TIME: Duration = Duration::from_secs(240);
/// About how long look-ups by tag lag behind a creation.
const TAG_LAG: Duration = Duration::from_secs(2);

/// How long a used-up token is remembered. Forgetting it costs one more call: EC2's answer shows it
/// again.
const ATTEMPT_TTL: Duration = Duration::from_secs(3600);
/// How long a create that EC2 accepted, or may have accepted, is remembered. Until then a look-up
/// by name that finds nothing proves nothing, since reads lag and have gaps.
const RECENT_REQUEST: Duration = Duration::from_secs(120);
/// How long a refusal that does not depend on the client token is repeated before it is final:
/// another process may have sent the request, and reads may not show its volume for as long.
const FINAL_AFTER: Duration = Duration::from_secs(75);
/// A volume that no look has shown for this long is requested again with its client token; then
/// after twice as long, and so on up to [`MAX_HIDDEN_AFTER`].
const HIDDEN_AFTER: Duration = Duration::from_secs(3);
const MAX_HIDDEN_AFTER: Duration = Duration::from_secs(48);

/// One attempt: a request under one client token.
struct Creation<'a> {
    call: &'a Call,
    request: &'a CreateVolume,
    plan: &'a ec2::CreateVolume,
    attempt: Attempt,
    cancellation: &'a Cancellation,
}

enum AttemptEnd {
    Done(Box<Volume>),
    /// The token is used up, and no volume has the name.
    TokenUsedUp(Failure),
}

impl Volumes {
    pub(super) async fn create_now(
        self,
        request: CreateVolume,
        cancellation: Cancellation,
    ) -> Result<Volume, Failure> {
        if let Some((refused, failure)) = self.refused_copies.get(&request.name)
            && refused == request
        {
            return Err(failure);
        }
        let call = Call::until(Instant::now() + CREATE_TIME);
        let plan = match self.plan(&call, &request).await {
            Ok(plan) => plan,
            Err(failure) => return self.find_created_before(&call, &request, failure).await,
        };
        let mut attempt = self.next_attempts.get(&request.name).unwrap_or(Attempt::FIRST);
        let mut last = None;
        for _ in 0..Attempt::MAX_PER_CALL {
            let creation = Creation {
                call: &call,
                request: &request,
                plan: &plan,
                attempt,
                cancellation: &cancellation,
            };
            match self.attempt(&creation).await? {
                AttemptEnd::Done(volume) => return Ok(*volume),
                AttemptEnd::TokenUsedUp(failure) => last = Some(failure),
            }
            // The caller may have got its volume from another process, and may have deleted it
            // since.
            cancellation.check_wanted()?;
            attempt = attempt.next();
            tracing::info!(name = request.name, %attempt, "a client token is used up and no volume bears the name: using the next");
            self.next_attempts.put(&request.name, attempt, ATTEMPT_TTL);
        }
        Err(Failure::pending(format!(
            "{} client tokens of {} in a row are used up; the next call goes on with token {attempt}: {}",
            Attempt::MAX_PER_CALL,
            request.name,
            last.as_ref().map_or("", Failure::text)
        )))
    }

    /// Looks for a volume that an earlier request created, when the volume cannot be created any
    /// more (its source is gone, for example).
    async fn find_created_before(
        &self,
        call: &Call,
        request: &CreateVolume,
        failure: Failure,
    ) -> Result<Volume, Failure> {
        if failure.condition().may_be_in_progress() {
            return Err(failure);
        }
        let found = find(&self.ec2, call, request, self.lag(request)).await;
        let volume = match found.map_err(|unknown| existence_unknown(&failure, &unknown))? {
            Found::Fitting(volume) => *volume,
            Found::Other(text) => return Err(incompatible(request, &text)),
            Found::Nothing if self.was_recently_requested(request) => {
                return Err(Failure::pending(format!(
                    "{failure}; a volume of this name was asked for before"
                )));
            }
            Found::Nothing => return Err(self.final_or_pending(request, failure)),
        };
        let deadline = Instant::now() + CREATE_TIME;
        match watch_adopted(&self.ec2, call, volume, deadline).await? {
            Settled::Ready(volume) => Ok(volume),
            Settled::Hidden(volume) => Err(not_ready(&volume.id)),
            Settled::Failed(_) | Settled::Deleted | Settled::Dropped => Err(failure),
        }
    }

    /// Returns whether EC2 recently accepted, or may have accepted, a create under this name.
    fn was_recently_requested(&self, request: &CreateVolume) -> bool {
        self.recently_requested.get(&request.name).is_some()
    }

    /// Returns the failure of a request under whose name no look-up shows a volume. A refusal that
    /// EC2 may give before it looks at the client token (the source is not shown, the credentials
    /// are refused, a quota is used up) does not show whether another process had a volume made; it
    /// is final after [`FINAL_AFTER`].
    fn final_or_pending(&self, request: &CreateVolume, failure: Failure) -> Failure {
        let precedes_token = matches!(
            failure.condition(),
            Condition::NotFound | Condition::NotPermitted | Condition::Local
        );
        if !precedes_token || time_in_state(&self.refused_since, &request.name) >= FINAL_AFTER {
            return failure;
        }
        Failure::pending(format!(
            "{failure}; this is final when it has been the answer for {} s",
            FINAL_AFTER.as_secs()
        ))
    }

    /// Returns how long look-ups by tag may lag behind changes under this name.
    fn lag(&self, request: &CreateVolume) -> Duration {
        match self.was_recently_requested(request) {
            true => TAG_LAG,
            false => Duration::ZERO,
        }
    }

    /// Sends the create to EC2 with this attempt's token.
    async fn send(&self, creation: &Creation<'_>) -> Result<Volume, Ec2Error> {
        let name = &creation.request.name;
        let client_token = creation.attempt.client_token(name);
        let create = ec2::CreateVolume { client_token, ..creation.plan.clone() };
        let sent = self.ec2.create_volume(creation.call, &create).await;
        if !matches!(&sent, Err(error) if !error.may_have_happened()) {
            self.recently_requested.put(name, (), RECENT_REQUEST);
        }
        if let Ok(volume) = &sent {
            self.refused_since.remove(name);
            self.recently_created.put(volume.id.as_str(), (), RECENT_REQUEST);
        }
        sent
    }

    async fn attempt(&self, creation: &Creation<'_>) -> Result<AttemptEnd, Failure> {
        let Creation { call, request, attempt, .. } = *creation;
        let deadline = Instant::now() + CREATE_TIME;
        let end = match self.send(creation).await {
            Ok(volume) => {
                let end = self.wait_until_created(creation, volume, deadline).await?;
                if let Settled::Ready(volume) = &end
                    && let Some(text) = encryption::difference(request, volume)
                {
                    return Err(self.discard(creation, volume, &text).await);
                }
                end
            }
            Err(error)
                if matches!(error.kind, Ec2ErrorKind::TokenMismatch | Ec2ErrorKind::TokenSpent) =>
            {
                match find(&self.ec2, call, request, TAG_LAG).await? {
                    Found::Fitting(volume) => {
                        watch_adopted(&self.ec2, call, *volume, deadline).await?
                    }
                    Found::Other(text) => return Err(incompatible(request, &text)),
                    Found::Nothing if error.kind == Ec2ErrorKind::TokenSpent => {
                        return Ok(AttemptEnd::TokenUsedUp(error.into()));
                    }
                    Found::Nothing => return self.handle_token_mismatch(&request.name, &error),
                }
            }
            Err(error) => match self.find_despite_error(call, request, &error).await? {
                Some(volume) => watch_adopted(&self.ec2, call, volume, deadline).await?,
                None => {
                    return Err(self.final_or_pending(request, create_failure(&error)));
                }
            },
        };
        match end {
            Settled::Ready(volume) => match difference(request, &volume) {
                None => Ok(AttemptEnd::Done(Box::new(volume))),
                Some(text) => Err(incompatible(request, &text)),
            },
            Settled::Deleted => Ok(AttemptEnd::TokenUsedUp(Failure::pending(
                "the volume that the name belonged to is being deleted",
            ))),
            Settled::Hidden(volume) => Err(not_ready(&volume.id)),
            Settled::Failed(volume) => {
                // The token stays bound to the failed volume until the volume is deleted.
                delete_failed(&self.ec2, call, &volume).await?;
                self.use_next_token(&request.name, attempt);
                Err(Failure::new(
                    Condition::Local,
                    format!(
                        "EC2 accepted {} and then failed to make it (state error); it is retried as a new volume",
                        volume.id
                    ),
                ))
            }
            Settled::Dropped => {
                self.use_next_token(&request.name, attempt);
                Err(Failure::new(
                    Condition::Local,
                    "EC2 accepted the volume and then dropped it, which is how it reports an encryption key that cannot be used: check kmsKeyId, that \
                     the key is enabled, and that its policy lets the controller's role create grants; CloudTrail has the reason",
                ))
            }
        }
    }

    /// Deletes a volume that this attempt's token created with another encryption than the request
    /// asks for, and that no caller got. Returns the refusal, which is repeated without a call for
    /// [`ATTEMPT_TTL`].
    async fn discard(&self, creation: &Creation<'_>, volume: &Volume, text: &str) -> Failure {
        if let Err(error) = self.ec2.delete_volume(creation.call, &volume.id).await
            && error.kind != Ec2ErrorKind::VolumeNotFound
        {
            let kept = error.pending();
            return kept.context(format!("{text}, and it must be deleted"));
        }
        let refusal = Failure::invalid(
            "parameters.encrypted",
            format!(
                "EC2 gave the volume another encryption than the class asks for, so the driver deleted it: {text}; \
                 use a class without encrypted and kmsKeyId, which leaves a copy its source's encryption"
            ),
        );
        let refused = (creation.request.clone(), refusal.clone());
        self.refused_copies.put(&creation.request.name, refused, ATTEMPT_TTL);
        refusal
    }

    /// Follows a volume that this attempt's token created. While looks do not show the volume, the
    /// request is repeated at growing intervals: EC2 answers with the volume, or that the volume is
    /// deleted.
    async fn wait_until_created(
        &self,
        creation: &Creation<'_>,
        mut volume: Volume,
        deadline: Instant,
    ) -> Result<Settled, Failure> {
        let mut hidden_after = HIDDEN_AFTER;
        loop {
            match settle(&self.ec2, creation.call, volume, hidden_after, deadline).await? {
                Settled::Hidden(last) => {
                    creation.cancellation.check_wanted()?;
                    volume = match self.send(creation).await {
                        Ok(volume) => volume,
                        Err(error) if error.kind == Ec2ErrorKind::TokenSpent => {
                            return Ok(Settled::Dropped);
                        }
                        Err(_) => last,
                    };
                    hidden_after = (hidden_after * 2).min(MAX_HIDDEN_AFTER);
                }
                settled => return Ok(settled),
            }
        }
    }

    /// Handles a token that a request with other parameters has used while no look-up shows its
    /// volume. The next token is used only after [`RECENT_REQUEST`] in this state: a volume that is
    /// hidden for longer is created twice.
    fn handle_token_mismatch(&self, name: &str, error: &Ec2Error) -> Result<AttemptEnd, Failure> {
        if time_in_state(&self.mismatched_since, name) >= RECENT_REQUEST {
            return Ok(AttemptEnd::TokenUsedUp(error.into()));
        }
        // Another process has requested the volume, so no refusal is final until look-ups have had
        // time to show it.
        self.recently_requested.put(name, (), RECENT_REQUEST);
        Err(error.pending().context(format!(
            "no volume of this name is shown; when none has been for {} s, it is made under the next client token",
            RECENT_REQUEST.as_secs()
        )))
    }

    fn use_next_token(&self, name: &str, attempt: Attempt) {
        self.next_attempts.put(name, attempt.next(), ATTEMPT_TTL);
    }

    /// Returns the volume of this name if one exists in spite of the error. An error that may be
    /// final is final only when no such volume exists.
    async fn find_despite_error(
        &self,
        call: &Call,
        request: &CreateVolume,
        error: &Ec2Error,
    ) -> Result<Option<Volume>, Failure> {
        let unclear = error.may_have_happened();
        // A full quota or zone may hide a volume, though its code is not final: EC2 tests it before
        // the token. A scheduler that is sent to another zone would have a second volume created
        // there.
        let may_hide_volume = matches!(
            error.kind,
            Ec2ErrorKind::VolumeQuota
                | Ec2ErrorKind::IopsQuota
                | Ec2ErrorKind::NoCapacity
                | Ec2ErrorKind::TypeNotInZone
        );
        if error.condition().may_be_in_progress() && !may_hide_volume {
            // `Unreachable` already maps to a retryable code.
            return match unclear && error.kind != Ec2ErrorKind::Unreachable {
                true => Err(error.pending()),
                false => Ok(None),
            };
        }
        // Another process may have created the volume just now, without this process's knowledge.
        let lag = match may_hide_volume {
            true => TAG_LAG,
            false => self.lag(request),
        };
        match find(&self.ec2, call, request, lag).await {
            Ok(Found::Fitting(volume)) => Ok(Some(*volume)),
            // Look-ups may lag for longer, or have a gap.
            Ok(found)
                if unclear
                    || matches!(found, Found::Nothing) && self.was_recently_requested(request) =>
            {
                Err(error.pending())
            }
            Ok(Found::Other(text)) => Err(incompatible(request, &text)),
            Ok(Found::Nothing) => Ok(None),
            Err(unknown) => Err(existence_unknown(error, &unknown)),
        }
    }
}

/// Returns for how long the name has been in this state, which begins now if it is new.
fn time_in_state(states: &ExpiringCache<Instant>, name: &str) -> Duration {
    let now = Instant::now();
    let since = states.get(name).unwrap_or(now);
    states.put(name, since, ATTEMPT_TTL);
    now.duration_since(since)
}

fn existence_unknown(why: &dyn std::fmt::Display, unknown: &Failure) -> Failure {
    Failure::pending(format!("{why}; whether a volume of this name exists is not known: {unknown}"))
}

fn incompatible(request: &CreateVolume, text: &str) -> Failure {
    Failure::new(
        Condition::Incompatible,
        format!("a volume named {} exists and is not what is asked for: {text}", request.name),
    )
}
