//! Instances and instance types, as far as an attach needs them.

use aws_sdk_ec2::types as sdk;
use ebs_csi_wire::{InstanceId, VolumeId};

use super::sdk_field::{self, Incomplete};
use super::timestamp::Timestamp;
use super::volume::AttachmentState;

/// An instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// The instance's id, which is the CSI node id.
    pub id: InstanceId,
    /// The instance's type (`m5.large`).
    pub kind: String,
    /// The state.
    pub state: InstanceState,
    /// When the instance was last launched; a stop and a start change it, a reboot does not.
    pub launched: Option<Timestamp>,
    /// Whether the last stop saved the instance's memory.
    pub hibernation: Hibernation,
    /// The name of the instance's zone.
    pub zone: String,
    /// The id of the instance's zone.
    pub zone_id: Option<String>,
    /// The ARN of the instance's Outpost.
    pub outpost_arn: Option<String>,
    /// The device name of the root volume.
    pub root_device: Option<String>,
    /// The device names that are taken. This list may be newer or older than what the volumes
    /// themselves show.
    pub devices: Vec<BlockMapping>,
}

sdk_field::words! {
    /// The states of an instance.
    pub enum InstanceState {
        /// Being launched.
        Pending = "pending",
        /// Running.
        Running = "running",
        /// Being terminated.
        ShuttingDown = "shutting-down",
        /// Terminated; EC2 shows the instance for up to an hour.
        Terminated = "terminated",
        /// Being stopped.
        Stopping = "stopping",
        /// Stopped.
        Stopped = "stopped",
    }
}

/// Whether the stop of an instance saved its memory (EC2 user guide, "Hibernate your instance").
/// The guest then resumes with its mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hibernation {
    /// The instance was not launched for hibernation, or was stopped in another way.
    No,
    /// The instance hibernated.
    Yes,
    /// The instance was launched for hibernation, and EC2 does not say how it was stopped.
    Unclear,
}

impl Hibernation {
    fn read(answer: &sdk::Instance) -> Self {
        let reason = answer.state_reason().and_then(sdk::StateReason::code);
        let configured = answer
            .hibernation_options()
            .and_then(sdk::HibernationOptions::configured)
            .unwrap_or_default();
        match (configured, reason) {
            (_, Some("Client.UserInitiatedHibernate")) => Self::Yes,
            (false, _)
            | (true, Some("Client.UserInitiatedShutdown" | "Client.InstanceInitiatedShutdown")) => {
                Self::No
            }
            (true, _) => Self::Unclear,
        }
    }
}

/// A device name in use on an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockMapping {
    /// The name (`/dev/xvdba`).
    pub device: String,
    /// The volume; `None` for a device that is not an EBS volume.
    pub volume: Option<VolumeId>,
    /// The state of the attachment.
    pub state: AttachmentState,
    /// When the attach was accepted.
    pub attached: Option<Timestamp>,
    /// The EBS card, on instances with several.
    pub card: Option<u32>,
    /// Whether EC2 deletes the volume when it terminates the instance (EC2 API,
    /// `EbsInstanceBlockDevice`). AttachVolume never sets it: a launch template or image does.
    pub delete_on_termination: bool,
}

/// The attachment limits of an instance type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceType {
    /// The type's name.
    pub name: String,
    /// EBS cards; 1 unless EC2 says more.
    pub cards: u32,
    /// The slots for EBS volumes, where EC2 reports them. Not of a Xen type, whose device names are
    /// the limit.
    pub slots: Option<Slots>,
}

/// The slots for EBS volumes of an instance type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// How many, that of the root volume included.
    pub count: u32,
    /// Whether network interfaces take from the same slots.
    pub shared: bool,
}

impl Instance {
    /// Returns the root device's name when the volume is attached there.
    pub fn root_device_of(&self, volume: &VolumeId) -> Option<&str> {
        let root = self.root_device.as_deref()?;
        let mut devices = self.devices.iter();
        devices.any(|at| at.volume.as_ref() == Some(volume) && at.device == root).then_some(root)
    }

    /// Returns the device name of a volume that the instance was launched with.
    pub fn launch_device_of(&self, volume: &VolumeId) -> Option<&str> {
        let mut devices = self.devices.iter();
        devices
            .find(|at| at.delete_on_termination && at.volume.as_ref() == Some(volume))
            .map(|at| at.device.as_str())
    }

    pub(crate) fn read(answer: &sdk::Instance) -> Result<Self, Incomplete> {
        let placement = answer.placement();
        let state = answer.state().and_then(sdk::InstanceState::name);
        let state = sdk_field::required(state, "instanceState")?;
        Ok(Self {
            id: sdk_field::id(answer.instance_id(), "instanceId", InstanceId::parse)?,
            kind: answer.instance_type().map(|t| t.as_str().to_owned()).unwrap_or_default(),
            state: InstanceState::read(state.as_str()),
            launched: answer.launch_time().map(Timestamp::from),
            hibernation: Hibernation::read(answer),
            zone: placement.and_then(|p| p.availability_zone()).unwrap_or_default().to_owned(),
            zone_id: sdk_field::text(placement.and_then(|p| p.availability_zone_id())),
            outpost_arn: sdk_field::text(answer.outpost_arn()),
            root_device: sdk_field::text(answer.root_device_name()),
            devices: answer
                .block_device_mappings()
                .iter()
                .filter_map(|mapping| {
                    let ebs = mapping.ebs();
                    let state = ebs.and_then(|e| e.status());
                    let delete_on_termination = ebs.and_then(|e| e.delete_on_termination());
                    Some(BlockMapping {
                        device: mapping.device_name()?.to_owned(),
                        volume: ebs.and_then(|e| VolumeId::parse(e.volume_id()?).ok()),
                        state: AttachmentState::read(state.map_or("attached", |s| s.as_str())),
                        attached: ebs.and_then(|e| e.attach_time()).map(Timestamp::from),
                        card: sdk_field::number(ebs.and_then(|e| e.ebs_card_index())),
                        delete_on_termination: delete_on_termination.unwrap_or_default(),
                    })
                })
                .collect(),
        })
    }
}

impl InstanceType {
    pub(crate) fn read(answer: &sdk::InstanceTypeInfo) -> Result<Self, Incomplete> {
        let ebs = answer.ebs_info();
        Ok(Self {
            name: sdk_field::required(answer.instance_type(), "instanceType")?.as_str().to_owned(),
            cards: sdk_field::number(ebs.and_then(|e| e.maximum_ebs_cards())).unwrap_or(1).max(1),
            slots: Slots::read(answer),
        })
    }
}

impl Slots {
    fn read(answer: &sdk::InstanceTypeInfo) -> Option<Self> {
        if answer.hypervisor() == Some(&sdk::InstanceTypeHypervisor::Xen) {
            return None;
        }
        let ebs = answer.ebs_info()?;
        let shared = match ebs.attachment_limit_type()?.as_str() {
            "shared" => true,
            "dedicated" => false,
            _ => return None,
        };
        Some(Self { count: sdk_field::number(ebs.maximum_ebs_attachments())?, shared })
    }
}
