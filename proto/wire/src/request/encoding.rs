//! Conversion of requests to wire messages and back.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use super::{
    Disk, Expand, Hello, NvmeStatistics, Operation, Origin, PublishBlock, PublishFilesystem,
    Request, Source, Stage, Stats, Unpublish, Unstage,
};
use crate::malformed::{Malformed, required};
use crate::{DeviceName, FsType, KeyStep, KubeletPath, MountFlag, VolumeId, pb};

/// Partition numbers are limited by the kernel's minor numbers.
const PARTITION_LIMIT: u32 = 255;

impl TryFrom<pb::Request> for Request {
    type Error = Malformed;

    fn try_from(wire: pb::Request) -> Result<Self, Malformed> {
        use pb::request::Operation as Wire;
        let operation = match required(wire.operation, "operation")? {
            Wire::Hello(request) => Operation::Hello(request.try_into()?),
            Wire::Stage(request) => Operation::Stage(request.try_into()?),
            Wire::Unstage(request) => Operation::Unstage(Unstage {
                volume: VolumeId::parse(&request.volume_id)?,
                staging: KubeletPath::parse(&request.staging_path)?,
            }),
            Wire::PublishFilesystem(request) => Operation::PublishFilesystem(PublishFilesystem {
                disk: required(request.disk, "disk")?.try_into()?,
                staging: KubeletPath::parse(&request.staging_path)?,
                target: KubeletPath::parse(&request.target_path)?,
                read_only: request.read_only,
                flags: flags_from(&request.flags)?,
            }),
            Wire::PublishBlock(request) => Operation::PublishBlock(PublishBlock {
                disk: required(request.disk, "disk")?.try_into()?,
                target: KubeletPath::parse(&request.target_path)?,
                read_only: request.read_only,
            }),
            Wire::Unpublish(request) => Operation::Unpublish(Unpublish {
                volume: VolumeId::parse(&request.volume_id)?,
                target: KubeletPath::parse(&request.target_path)?,
            }),
            Wire::Expand(request) => Operation::Expand(Expand {
                volume: VolumeId::parse(&request.volume_id)?,
                path: KubeletPath::parse(&request.volume_path)?,
                required_bytes: NonZeroU64::new(request.required_bytes),
                limit_bytes: NonZeroU64::new(request.limit_bytes),
            }),
            Wire::Stats(request) => Operation::Stats(Stats {
                volume: VolumeId::parse(&request.volume_id)?,
                path: KubeletPath::parse(&request.volume_path)?,
            }),
            Wire::NvmeStatistics(request) => Operation::NvmeStatistics(NvmeStatistics {
                volume: VolumeId::parse(&request.volume_id)?,
            }),
            Wire::Inspect(request) => Operation::Inspect(request),
        };
        Ok(Self { id: wire.id, wait: Duration::from_millis(wire.wait_ms.into()), operation })
    }
}

impl From<Request> for pb::Request {
    fn from(request: Request) -> Self {
        use pb::request::Operation as Wire;
        let operation = match request.operation {
            Operation::Hello(hello) => Wire::Hello(hello.into()),
            Operation::Stage(request) => Wire::Stage(request.into()),
            Operation::Unstage(request) => Wire::Unstage(pb::Unstage {
                volume_id: request.volume.to_string(),
                staging_path: request.staging.to_string(),
            }),
            Operation::PublishFilesystem(request) => {
                Wire::PublishFilesystem(pb::PublishFilesystem {
                    disk: Some(request.disk.into()),
                    staging_path: request.staging.to_string(),
                    target_path: request.target.to_string(),
                    read_only: request.read_only,
                    flags: flags_to(&request.flags),
                })
            }
            Operation::PublishBlock(request) => Wire::PublishBlock(pb::PublishBlock {
                disk: Some(request.disk.into()),
                target_path: request.target.to_string(),
                read_only: request.read_only,
            }),
            Operation::Unpublish(request) => Wire::Unpublish(pb::Unpublish {
                volume_id: request.volume.to_string(),
                target_path: request.target.to_string(),
            }),
            Operation::Expand(request) => Wire::Expand(pb::Expand {
                volume_id: request.volume.to_string(),
                volume_path: request.path.to_string(),
                required_bytes: number_or_zero(request.required_bytes),
                limit_bytes: number_or_zero(request.limit_bytes),
            }),
            Operation::Stats(request) => Wire::Stats(pb::Stats {
                volume_id: request.volume.to_string(),
                volume_path: request.path.to_string(),
            }),
            Operation::NvmeStatistics(request) => {
                Wire::NvmeStatistics(pb::NvmeStatistics { volume_id: request.volume.to_string() })
            }
            Operation::Inspect(request) => Wire::Inspect(request),
        };
        Self {
            id: request.id,
            wait_ms: u32::try_from(request.wait.as_millis()).unwrap_or(u32::MAX),
            operation: Some(operation),
        }
    }
}

impl TryFrom<pb::Hello> for Hello {
    type Error = Malformed;

    fn try_from(wire: pb::Hello) -> Result<Self, Malformed> {
        if wire.oldest == 0 || wire.newest < wire.oldest {
            return Err(Malformed::Invalid { field: "hello" });
        }
        Ok(Self {
            oldest: wire.oldest,
            newest: wire.newest,
            key: KeyStep::from_wire(&wire.nonce, &wire.proof)?,
        })
    }
}

impl From<Hello> for pb::Hello {
    fn from(hello: Hello) -> Self {
        let (nonce, proof) = hello.key.to_wire();
        Self { oldest: hello.oldest, newest: hello.newest, nonce, proof }
    }
}

impl TryFrom<pb::Disk> for Disk {
    type Error = Malformed;

    fn try_from(wire: pb::Disk) -> Result<Self, Malformed> {
        if wire.partition > PARTITION_LIMIT {
            return Err(Malformed::Invalid { field: "partition" });
        }
        Ok(Self {
            volume: VolumeId::parse(&wire.volume_id)?,
            device_hint: match wire.device_hint.as_str() {
                "" => None,
                hint => Some(DeviceName::parse(hint)?),
            },
            partition: NonZeroU32::new(wire.partition),
            size_at_attach: NonZeroU64::new(wire.size_at_attach),
            origin: Origin::from_wire(wire.origin)?,
            source: Source::from_wire(wire.source)?,
        })
    }
}

impl From<Disk> for pb::Disk {
    fn from(disk: Disk) -> Self {
        Self {
            volume_id: disk.volume.to_string(),
            device_hint: disk.device_hint.map(|hint| hint.to_string()).unwrap_or_default(),
            partition: disk.partition.map_or(0, NonZeroU32::get),
            size_at_attach: number_or_zero(disk.size_at_attach),
            origin: disk.origin.to_wire(),
            source: disk.source.to_wire(),
        }
    }
}

impl TryFrom<pb::Stage> for Stage {
    type Error = Malformed;

    fn try_from(wire: pb::Stage) -> Result<Self, Malformed> {
        Ok(Self {
            disk: required(wire.disk, "disk")?.try_into()?,
            staging: KubeletPath::parse(&wire.staging_path)?,
            fs: FsType::from_wire(wire.fs_type)?,
            read_only: wire.read_only,
            flags: flags_from(&wire.flags)?,
            format: wire.format,
        })
    }
}

impl From<Stage> for pb::Stage {
    fn from(stage: Stage) -> Self {
        Self {
            disk: Some(stage.disk.into()),
            staging_path: stage.staging.to_string(),
            fs_type: stage.fs.to_wire(),
            read_only: stage.read_only,
            flags: flags_to(&stage.flags),
            format: stage.format,
        }
    }
}

fn flags_from(wire: &[pb::MountFlag]) -> Result<Vec<MountFlag>, Malformed> {
    // The frame's size limits their number.
    let flags = wire.iter().map(MountFlag::try_from).collect::<Result<Vec<_>, _>>()?;
    MountFlag::check_list(&flags)?;
    Ok(flags)
}

fn flags_to(flags: &[MountFlag]) -> Vec<pb::MountFlag> {
    flags.iter().map(Into::into).collect()
}

impl TryFrom<&pb::MountFlag> for MountFlag {
    type Error = Malformed;

    fn try_from(wire: &pb::MountFlag) -> Result<Self, Malformed> {
        let value = (!wire.value.is_empty()).then_some(wire.value.as_str());
        Ok(Self::new(&wire.name, value)?)
    }
}

impl From<&MountFlag> for pb::MountFlag {
    fn from(flag: &MountFlag) -> Self {
        Self { name: flag.name().to_owned(), value: flag.value().unwrap_or_default().to_owned() }
    }
}

fn number_or_zero(value: Option<NonZeroU64>) -> u64 {
    value.map_or(0, NonZeroU64::get)
}
