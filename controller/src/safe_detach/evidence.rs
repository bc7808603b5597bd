//! The facts that EC2 shows, read after the call began.

use ebs_csi_ec2::{
    AttachmentState, Call, DatedLook, Ec2, Ec2Error, Hibernation, Instance, InstanceState,
    LookResult, Timestamp, Volume,
};
use ebs_csi_safe_detach::{
    AttachTime, AttachmentFact, Fact, Facts, InstanceFact, Mode, Phase, Power,
};
use tokio::time::Instant;

use super::ClusterEvidence;
use crate::request::Pair;

/// The facts, and the error that left some of them unknown.
pub(crate) struct Gathered {
    pub(crate) facts: Facts,
    pub(crate) unknown_because: Option<Ec2Error>,
    /// The device name, when the volume is the instance's root volume.
    pub(crate) root_device: Option<String>,
    /// Whether EC2 shows neither the volume nor the instance: they are gone, or reads have a gap.
    pub(crate) shows_neither: bool,
    pub(crate) is_launch_volume: bool,
    /// When the oldest of EC2's answers was asked for.
    pub(crate) looked_at: Instant,
}

/// Asks EC2 for the facts of one pair.
///
/// One DescribeInstances shows the instance and its attachments. That is enough where a running
/// instance is trusted, if the instance runs and shows the volume attached. In every other case the
/// volume is described too, and its own view of its attachments counts; an instance that does not
/// run is looked at last, because somebody may start it meanwhile.
///
/// Kubelet's report is not requested here: it is `Unknown`.
pub(crate) async fn gather(
    ec2: &Ec2,
    call: &Call,
    mode: Mode,
    pair: &Pair,
    cluster_evidence: &ClusterEvidence,
) -> Gathered {
    let first = match mode {
        Mode::Ec2Only => Some(ec2.look_instance_dated(call, &pair.node).await),
        Mode::Off | Mode::Enforce => None,
    };
    let running = first.filter(|look| is_running(&look.result));
    if let Some(look) = running.as_ref().filter(|look| is_shown(pair, &look.result)) {
        let DatedLook { began, result } = look.clone();
        return derive_facts(mode, pair, result, None, cluster_evidence, began);
    }
    let volume = ec2.look_volume_dated(call, &pair.volume).await;
    let instance = match running {
        Some(look) => look,
        None => ec2.look_instance_dated(call, &pair.node).await,
    };
    let looked_at = volume.began.min(instance.began);
    let volume = Some(volume.result);
    derive_facts(mode, pair, instance.result, volume, cluster_evidence, looked_at)
}

/// Like [`gather`] for many pairs, to report and not to act on, with as few calls as EC2 permits.
///
/// Volumes that their instances show attached are not described too. Both views may lag; the worst
/// effect here is that a volume that has just become free is reported as attached until the next
/// query.
pub(super) async fn gather_all(
    ec2: &Ec2,
    call: &Call,
    mode: Mode,
    pairs: &[Pair],
    cluster_evidence: &ClusterEvidence,
) -> Vec<Gathered> {
    let nodes: Vec<_> = pairs.iter().map(|pair| pair.node.clone()).collect();
    let looked_at = Instant::now();
    let nodes = ec2.look_instances(call, &nodes).await;
    let shown: Vec<bool> =
        pairs.iter().zip(&nodes).map(|(pair, instance)| is_shown(pair, instance)).collect();
    let others = pairs.iter().zip(&shown).filter(|(_, shown)| !**shown);
    let others: Vec<_> = others.map(|(pair, _)| pair.volume.clone()).collect();
    let mut volumes = ec2.look_volumes(call, &others).await.into_iter();
    let looks = pairs.iter().zip(nodes).zip(shown);
    looks
        .map(|((pair, node), shown)| {
            let volume = if shown { None } else { volumes.next() };
            derive_facts(mode, pair, node, volume, cluster_evidence, looked_at)
        })
        .collect()
}

fn is_shown(pair: &Pair, instance: &LookResult<Instance>) -> bool {
    let mapped = instance.present().and_then(|instance| mapped_attachment(instance, pair));
    mapped.is_some_and(|attachment| attachment.phase == Phase::Attached)
}

fn is_running(instance: &LookResult<Instance>) -> bool {
    instance.present().is_some_and(|instance| instance.state == InstanceState::Running)
}

/// Derives the facts from the looks. Without a look at the volume, the instance's view counts.
fn derive_facts(
    mode: Mode,
    pair: &Pair,
    instance: LookResult<Instance>,
    volume: Option<LookResult<Volume>>,
    cluster_evidence: &ClusterEvidence,
    looked_at: Instant,
) -> Gathered {
    let mapped = instance.present().and_then(|instance| mapped_attachment(instance, pair));
    let mut unknown_because = None;
    let shows_neither =
        matches!(instance, LookResult::Absent) && matches!(volume, Some(LookResult::Absent));
    let attachment = match volume {
        None => mapped.map_or(Fact::Unknown, Fact::Present),
        // A resource that reads do not show may still exist.
        Some(_) if shows_neither => Fact::Unknown,
        Some(volume) => match attachment_of_volume(volume, pair, mapped, &mut unknown_because) {
            // The instance, which may show the attachment, could not be seen.
            Fact::Absent if matches!(instance, LookResult::Unknown(_)) => Fact::Unknown,
            attachment => attachment,
        },
    };
    let root_device = instance
        .present()
        .and_then(|instance| instance.root_device_of(&pair.volume))
        .map(str::to_owned);
    let is_launch_volume = instance
        .present()
        .is_some_and(|instance| instance.launch_device_of(&pair.volume).is_some());
    let fact = instance_look_to_fact(&instance);
    if let LookResult::Unknown(error) = instance {
        unknown_because = Some(error);
    }
    Gathered {
        facts: Facts {
            mode,
            attachment,
            instance: fact,
            node: Fact::Unknown,
            fence: cluster_evidence.fences.of(&pair.node),
            override_order: cluster_evidence.overrides.of(pair),
        },
        unknown_because,
        root_device,
        shows_neither,
        is_launch_volume,
        looked_at,
    }
}

fn attachment_fact(state: &AttachmentState, since: Option<Timestamp>) -> AttachmentFact {
    AttachmentFact {
        phase: match state {
            AttachmentState::Attaching | AttachmentState::Attached => Phase::Attached,
            AttachmentState::Detaching | AttachmentState::Busy => Phase::Leaving,
            AttachmentState::Detached => Phase::NotAttached,
            AttachmentState::Other(_) => Phase::Unrecognised,
        },
        since: since.map(|at| AttachTime { seconds: at.seconds, nanoseconds: at.nanoseconds }),
    }
}

fn mapped_attachment(instance: &Instance, pair: &Pair) -> Option<AttachmentFact> {
    let device =
        instance.devices.iter().find(|device| device.volume.as_ref() == Some(&pair.volume))?;
    Some(attachment_fact(&device.state, device.attached))
}

/// Returns the attachment. The two views of EC2 may lag behind each other, so there is no
/// attachment only when neither view shows one.
fn attachment_of_volume(
    look: LookResult<Volume>,
    pair: &Pair,
    mapped: Option<AttachmentFact>,
    unknown_because: &mut Option<Ec2Error>,
) -> Fact<AttachmentFact> {
    let shown = match &look {
        LookResult::Present(volume) => volume.attachment(&pair.node),
        LookResult::Absent => None,
        LookResult::Unknown(error) => {
            *unknown_because = Some(error.clone());
            return Fact::Unknown;
        }
    };
    shown
        .map(|attachment| attachment_fact(&attachment.state, attachment.attached))
        .or(mapped)
        .map_or(Fact::Absent, Fact::Present)
}

pub(super) fn instance_look_to_fact(seen: &LookResult<Instance>) -> Fact<InstanceFact> {
    match seen {
        LookResult::Present(instance) => Fact::Present(instance_fact(instance)),
        LookResult::Absent => Fact::Absent,
        LookResult::Unknown(_) => Fact::Unknown,
    }
}

fn instance_fact(instance: &Instance) -> InstanceFact {
    InstanceFact {
        power: match instance.state {
            InstanceState::Pending => Power::Pending,
            InstanceState::Running => Power::Running,
            InstanceState::ShuttingDown => Power::ShuttingDown,
            InstanceState::Terminated => Power::Terminated,
            InstanceState::Stopping => Power::Stopping,
            InstanceState::Stopped => Power::Stopped,
            InstanceState::Other(_) => Power::Unrecognised,
        },
        hibernation: match instance.hibernation {
            Hibernation::No => Fact::Absent,
            Hibernation::Yes => Fact::Present(()),
            Hibernation::Unclear => Fact::Unknown,
        },
    }
}
