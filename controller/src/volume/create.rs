//! Making a volume.
//!
//! The client token makes a repeated create the same create, as long as EC2 remembers it. A token does not always help: EC2 tests its
//! quota before it looks at tokens, refuses a token whose parameters have changed, and keeps a token used whose volume failed later.
//! Then, and whenever an error is about to be final, the volumes that bear the name decide: one that fits is the answer.

use std::ops::ControlFlow;
use std::time::Duration;

use ebs_csi_proto::{Condition, Failure, GiB};
use tokio::time::Instant;

use super::Volumes;
use super::adopt::{Found, difference, judge};
use super::settle::{Settled, Settling};
use crate::ec2::{self, Ec2, Ec2Error, Ec2ErrorKind, IopsQuestion, Volume, VolumeState, ZoneKind};
use crate::ec2_failure::{condition, failure, failure_as};
use crate::iops::{IopsLimits, per_gib};
use crate::request::{CreateVolume, Source};
use crate::token::{Attempt, ClientToken};
use crate::topology::{self, Placement};

/// How long one creation may take, waiting for its turn and for EC2 included.
const CREATE_TIME: Duration = Duration::from_secs(240);
/// Look-ups by tag lag behind creation by about so much.
const TAG_LAG: Duration = Duration::from_secs(2);

/// What to send, but for the token.
enum Plan {
    Create(ec2::CreateVolume),
    Copy(ec2::CopyVolume),
}

/// How one attempt went on.
enum Next {
    Done(Volume),
    /// The token is of no use, and no volume bears the name.
    StepOver(Failure),
}

impl Volumes {
    pub(super) async fn make(self, request: CreateVolume) -> Result<Volume, Failure> {
        let deadline = Instant::now() + CREATE_TIME;
        let ec2 = self.ec2.by(deadline);
        let plan = self.plan(&ec2, &request).await?;
        let mut attempt = self.spent.begin(&request.name);
        loop {
            let last = match self
                .attempt(&ec2, &request, &plan, attempt, deadline)
                .await?
            {
                Next::Done(volume) => return Ok(volume),
                Next::StepOver(failure) => failure,
            };
            attempt = attempt.next().ok_or_else(|| {
                Failure::new(
                    Condition::OperationPending,
                    format!("{} client tokens of {} are used up; give the volume another name, or wait 12 hours: {last}", Attempt::LIMIT, request.name),
                )
            })?;
            tracing::info!(name = request.name, %attempt, "a client token is used up and no volume bears the name: using the next");
            self.spent.step(&request.name, attempt);
        }
    }

    async fn attempt(
        &self,
        ec2: &Ec2,
        request: &CreateVolume,
        plan: &Plan,
        attempt: Attempt,
        deadline: Instant,
    ) -> Result<Next, Failure> {
        let client_token = ClientToken::of(&request.name, attempt).as_str().to_owned();
        let answer = match plan {
            Plan::Create(create) => {
                let create = ec2::CreateVolume {
                    client_token,
                    ..create.clone()
                };
                ec2.create_volume(&create).await
            }
            Plan::Copy(copy) => {
                let copy = ec2::CopyVolume {
                    client_token,
                    ..copy.clone()
                };
                ec2.copy_volumes(&copy).await
            }
        };
        let volume = match answer {
            Ok(volume) => volume,
            Err(error)
                if matches!(
                    error.kind,
                    Ec2ErrorKind::TokenMismatch | Ec2ErrorKind::TokenSpent
                ) =>
            {
                match find(ec2, request, TAG_LAG).await? {
                    Found::Fitting(volume) => *volume,
                    Found::Other(text) => return Err(incompatible(request, &text)),
                    Found::Nothing => return Ok(Next::StepOver(failure(&error))),
                }
            }
            Err(error) => match self.refused(ec2, request, &error).await? {
                Some(volume) => volume,
                None => return Err(create_failure(&error)),
            },
        };
        match settle(ec2, volume, deadline).await? {
            Settled::Ready(volume) => match difference(request, &volume) {
                None => Ok(Next::Done(volume)),
                Some(text) => Err(incompatible(request, &text)),
            },
            Settled::Deleted => Ok(Next::StepOver(Failure::new(
                Condition::OperationPending,
                "the volume that the name belonged to is being deleted",
            ))),
            Settled::Failed(volume) => {
                self.step_past(&request.name, attempt);
                // It bears our name and is of no use to anybody: nobody else would delete it.
                if let Err(error) = ec2.delete_volume(&volume.id).await {
                    tracing::warn!(volume.id = volume.id.as_str(), %error, "a volume in state error was not deleted");
                }
                Err(Failure::new(
                    Condition::Local,
                    format!(
                        "EC2 accepted {} and then failed to make it (state error); it is retried as a new volume",
                        volume.id
                    ),
                ))
            }
            Settled::Gone => {
                self.step_past(&request.name, attempt);
                Err(Failure::new(
                    Condition::Local,
                    "EC2 accepted the volume and then dropped it, which is how it reports an encryption key that cannot be used: check kmsKeyId, that \
                     the key is enabled, and that its policy lets the controller's role create grants; CloudTrail has the reason",
                ))
            }
        }
    }

    fn step_past(&self, name: &str, attempt: Attempt) {
        if let Some(next) = attempt.next() {
            self.spent.step(name, next);
        }
    }

    /// After an error: the volume of this name, when there is one all the same. An error that may be final is so only when there is none.
    async fn refused(
        &self,
        ec2: &Ec2,
        request: &CreateVolume,
        error: &Ec2Error,
    ) -> Result<Option<Volume>, Failure> {
        if error.may_have_happened() {
            return Err(failure_as(Condition::OperationPending, error));
        }
        // The quota counts as one that may hide a volume, though its code is not final: EC2 tests it before the token.
        let hides = matches!(
            error.kind,
            Ec2ErrorKind::VolumeQuota | Ec2ErrorKind::IopsQuota
        );
        if condition(error).may_be_in_progress() && !hides {
            return Ok(None);
        }
        match find(ec2, request, Duration::ZERO).await {
            Ok(Found::Fitting(volume)) => Ok(Some(*volume)),
            Ok(Found::Other(text)) => Err(incompatible(request, &text)),
            Ok(Found::Nothing) => Ok(None),
            Err(unknown) => Err(Failure::new(
                Condition::OperationPending,
                format!("{error}; whether a volume of this name exists is not known: {unknown}"),
            )),
        }
    }

    async fn plan(&self, ec2: &Ec2, request: &CreateVolume) -> Result<Plan, Failure> {
        let kind = request.volume_type().to_owned();
        let tags = self
            .tags
            .of_volume(&request.name, &request.class, &request.attributes)?;
        let throughput = request.attributes.throughput.or(request.class.throughput);
        if let Some(Source::Volume(source)) = &request.source {
            let source = self.copy_source(ec2, request, source).await?;
            let placement = Placement {
                zone: Some(source.zone.clone()),
                ..Default::default()
            };
            return Ok(Plan::Copy(ec2::CopyVolume {
                client_token: String::new(),
                iops: self.iops(ec2, request, &placement).await?,
                source: source.id,
                size: request.size,
                kind,
                throughput,
                multi_attach: request.multi_attach,
                tags,
            }));
        }
        let snapshot = match &request.source {
            Some(Source::Snapshot(snapshot)) => Some(snapshot.clone()),
            _ => None,
        };
        if let (Some(snapshot), Some(limit)) = (&snapshot, request.range.limit) {
            // EC2 raises the size to the snapshot's without a word.
            let found = ec2
                .look_snapshot(snapshot)
                .await
                .known()
                .map_err(|e| create_failure(&e))?;
            if let Some(found) = found.filter(|found| found.size.to_bytes() > limit) {
                return Err(Failure::new(
                    Condition::CapacityOutOfRange,
                    format!(
                        "snapshot {snapshot} has {}, which is more than limit_bytes {}",
                        found.size, limit.0
                    ),
                ));
            }
        }
        let placement = match &request.placement {
            Some(placement) => placement.clone(),
            None => self.any_zone(ec2, &request.name).await?,
        };
        Ok(Plan::Create(ec2::CreateVolume {
            client_token: String::new(),
            size: request.size,
            kind,
            iops: self.iops(ec2, request, &placement).await?,
            zone: placement.zone,
            zone_id: placement.zone_id,
            outpost_arn: placement.outpost,
            encrypted: request.class.encrypted == Some(true) || request.class.kms_key.is_some(),
            kms_key_id: request.class.kms_key.clone(),
            throughput,
            snapshot,
            initialization_rate: request.class.initialization_rate,
            multi_attach: request.multi_attach,
            tags,
        }))
    }

    /// The volume to copy, when it exists and may be copied to where the request wants it.
    async fn copy_source(
        &self,
        ec2: &Ec2,
        request: &CreateVolume,
        id: &ebs_csi_wire::VolumeId,
    ) -> Result<Volume, Failure> {
        let source = ec2
            .look_volume(id)
            .await
            .known()
            .map_err(|error| failure_as(Condition::OperationPending, &error))?
            .filter(|volume| !matches!(volume.state, VolumeState::Deleting | VolumeState::Deleted))
            .ok_or_else(|| Failure::not_found("source volume", id))?;
        topology::check(
            request.requirement.as_ref(),
            &source.zone,
            source.zone_id.as_deref(),
            source.outpost_arn.as_deref(),
        )?;
        if let Some(key) = &request.class.kms_key
            && source.kms_key_id.as_ref() != Some(key)
        {
            return Err(Failure::invalid(
                "parameters.kmsKeyId",
                format!(
                    "a copy has the key of its source, {}; give that ARN or leave it out",
                    source.kms_key_id.as_deref().unwrap_or("none")
                ),
            ));
        }
        if request.size < source.size {
            return Err(Failure::new(
                Condition::CapacityOutOfRange,
                format!(
                    "capacity_range: the source volume has {}, a copy cannot be smaller",
                    source.size
                ),
            ));
        }
        Ok(source)
    }

    /// A zone for a request that leaves it open: the same for the same name, so that a repeated create is the same create.
    async fn any_zone(&self, ec2: &Ec2, name: &str) -> Result<Placement, Failure> {
        let zones = ec2
            .availability_zones()
            .await
            .map_err(|e| create_failure(&e))?;
        let zones: Vec<&str> = zones
            .iter()
            .filter(|zone| zone.kind == ZoneKind::AvailabilityZone && zone.available)
            .map(|zone| zone.name.as_str())
            .collect();
        match topology::pick(&zones, name) {
            Some(zone) => Ok(Placement {
                zone: Some(zone.to_owned()),
                ..Default::default()
            }),
            None => Err(Failure::new(
                Condition::NoCapacityInTopology,
                "the request names no zone, and EC2 lists no available zone for this account and Region",
            )),
        }
    }

    /// The IOPS to ask for: explicit, or by size, within what the type and zone allow. A VolumeAttributesClass's word ends the StorageClass's.
    async fn iops(
        &self,
        ec2: &Ec2,
        request: &CreateVolume,
        placement: &Placement,
    ) -> Result<Option<u32>, Failure> {
        let (explicit, ratio) = match (request.attributes.iops, request.attributes.iops_per_gib) {
            (None, None) => (request.class.iops, request.class.iops_per_gib),
            attributes => attributes,
        };
        let Some(wanted) = wanted_iops(explicit, ratio, request.size)? else {
            return Ok(None);
        };
        let limits = self
            .limits(ec2, request.volume_type(), placement, wanted)
            .await;
        Ok(Some(limits.fit(
            wanted,
            request.size,
            request.class.raise_iops,
        )))
    }

    async fn limits(
        &self,
        ec2: &Ec2,
        kind: &str,
        placement: &Placement,
        wanted: u32,
    ) -> IopsLimits {
        let question = IopsQuestion {
            kind: kind.to_owned(),
            zone: placement.zone.clone(),
            zone_id: placement.zone_id.clone(),
            outpost_arn: placement.outpost.clone(),
            tags: self.tags.identity(),
        };
        self.ceilings.limits(ec2, question, wanted).await
    }
}

/// Explicit IOPS, or the ratio's.
pub(crate) fn wanted_iops(
    explicit: Option<u32>,
    ratio: Option<u32>,
    size: GiB,
) -> Result<Option<u32>, Failure> {
    match (explicit, ratio) {
        (Some(iops), _) => Ok(Some(iops)),
        (None, Some(ratio)) => per_gib(ratio, size).map(Some).ok_or_else(|| {
            Failure::invalid(
                "iopsPerGB",
                format!(
                    "{ratio} for each of {} is more IOPS than EC2 can express; lower it",
                    size
                ),
            )
        }),
        (None, None) => Ok(None),
    }
}

/// The volumes that bear the name. When none does, they are asked for once more after `lag`.
async fn find(ec2: &Ec2, request: &CreateVolume, lag: Duration) -> Result<Found, Failure> {
    let mut looked_late = lag.is_zero();
    loop {
        let volumes = ec2
            .volumes_by_name(&request.name)
            .await
            .map_err(|error| failure_as(Condition::OperationPending, &error))?;
        match judge(request, volumes) {
            Found::Nothing if !looked_late => {
                looked_late = true;
                tokio::time::sleep(lag).await;
            }
            found => return Ok(found),
        }
    }
}

async fn settle(ec2: &Ec2, volume: Volume, deadline: Instant) -> Result<Settled, Failure> {
    let id = volume.id.clone();
    let mut settling = Settling::default();
    // A repeated create is answered with what the volume is by now.
    if matches!(volume.state, VolumeState::Available | VolumeState::InUse) {
        return Ok(Settled::Ready(volume));
    }
    ec2.watch_volume(&id, deadline, |seen| {
        match settling.see(seen, Instant::now()) {
            Some(settled) => ControlFlow::Break(settled),
            None => ControlFlow::Continue(()),
        }
    })
    .await
    .ok_or_else(|| {
        Failure::new(
            Condition::OperationPending,
            format!("volume {id} is accepted and not available yet; EC2 still works on it"),
        )
    })
}

fn incompatible(request: &CreateVolume, text: &str) -> Failure {
    Failure::new(
        Condition::Incompatible,
        format!(
            "a volume named {} exists and is not what is asked for: {text}",
            request.name
        ),
    )
}

/// Errors of a create. The sources of a copy or restore are not found, not wrong.
fn create_failure(error: &Ec2Error) -> Failure {
    match error.kind {
        Ec2ErrorKind::Other | Ec2ErrorKind::Unreadable => {
            failure_as(Condition::OperationPending, error)
        }
        _ => failure(error),
    }
}
