//! What EC2 shows, read after the call began.

use ebs_csi_safe_detach::{
    AttachTime, AttachmentFact, Fact, Facts, InstanceFact, Mode, NodeWord, Phase, Power,
};

use crate::attach::root::root_device_of;
use crate::ec2::{
    AttachmentState, Ec2, Ec2Error, Hibernation, Instance, InstanceState, Seen, Timestamp, Volume,
};
use crate::request::Pair;

/// Facts, and why those that are unknown are.
pub(crate) struct Gathered {
    pub(crate) facts: Facts,
    pub(crate) silence: Option<Ec2Error>,
    /// The name under which the instance boots from the volume, if it does.
    pub(crate) root_device: Option<String>,
}

/// Asks EC2 for the facts of one pair.
///
/// One DescribeInstances shows the instance and what is attached to it: for an instance that runs and shows the volume that is enough where
/// a running instance is trusted. Everything else is also asked of the volume, whose word about its attachments counts.
pub(crate) async fn gather(ec2: &Ec2, mode: Mode, pair: &Pair, word: Fact<NodeWord>) -> Gathered {
    let instance = ec2.look_instance(&pair.node).await;
    let mapped = instance
        .present()
        .and_then(|instance| of_mapping(instance, pair));
    let enough = mode == Mode::Ec2Only
        && instance
            .present()
            .is_some_and(|instance| instance.state == InstanceState::Running)
        && mapped.is_some_and(|attachment| attachment.phase == Phase::Held);
    let mut silence = None;
    let attachment = if enough {
        mapped.map_or(Fact::Unknown, Fact::Present)
    } else {
        of_volume(
            ec2.look_volume(&pair.volume).await,
            pair,
            mapped,
            &mut silence,
        )
    };
    let root_device = instance
        .present()
        .and_then(|instance| root_device_of(instance, &pair.volume))
        .map(str::to_owned);
    let instance = match instance {
        Seen::Present(instance) => Fact::Present(of_instance(&instance)),
        Seen::Absent => Fact::Absent,
        Seen::Unknown(error) => {
            silence = Some(error);
            Fact::Unknown
        }
    };
    Gathered {
        facts: Facts {
            mode,
            attachment,
            instance,
            word,
            fence: Fact::Absent,
            broken_glass: Fact::Absent,
        },
        silence,
        root_device,
    }
}

fn of_instance(instance: &Instance) -> InstanceFact {
    InstanceFact {
        power: match instance.state {
            InstanceState::Pending => Power::Pending,
            InstanceState::Running => Power::Running,
            InstanceState::ShuttingDown => Power::ShuttingDown,
            InstanceState::Terminated => Power::Terminated,
            InstanceState::Stopping => Power::Stopping,
            InstanceState::Stopped => Power::Stopped,
            InstanceState::Other(_) => Power::Strange,
        },
        hibernation: match instance.hibernation {
            Hibernation::No => Fact::Absent,
            Hibernation::Yes => Fact::Present(()),
            Hibernation::Unclear => Fact::Unknown,
        },
    }
}

fn of_attachment(state: &AttachmentState, since: Option<Timestamp>) -> AttachmentFact {
    AttachmentFact {
        phase: match state {
            AttachmentState::Attaching | AttachmentState::Attached => Phase::Held,
            AttachmentState::Detaching | AttachmentState::Busy => Phase::Leaving,
            AttachmentState::Detached => Phase::Off,
            AttachmentState::Other(_) => Phase::Strange,
        },
        since: since.map(|at| AttachTime {
            seconds: at.seconds,
            nanoseconds: at.nanoseconds,
        }),
    }
}

fn of_mapping(instance: &Instance, pair: &Pair) -> Option<AttachmentFact> {
    let device = instance
        .devices
        .iter()
        .find(|device| device.volume.as_ref() == Some(&pair.volume))?;
    Some(of_attachment(&device.state, device.attached))
}

/// The two views of EC2 may lag behind each other: there is no attachment only where neither shows one.
fn of_volume(
    seen: Seen<Volume>,
    pair: &Pair,
    mapped: Option<AttachmentFact>,
    silence: &mut Option<Ec2Error>,
) -> Fact<AttachmentFact> {
    let shown = match &seen {
        Seen::Present(volume) => volume.attachment(&pair.node),
        Seen::Absent => None,
        Seen::Unknown(error) => {
            *silence = Some(error.clone());
            return Fact::Unknown;
        }
    };
    shown
        .map(|attachment| of_attachment(&attachment.state, attachment.attached))
        .or(mapped)
        .map_or(Fact::Absent, Fact::Present)
}
