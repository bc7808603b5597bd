//! Conversion of replies to wire messages and back.

use std::num::{NonZeroI32, NonZeroU8};

use super::{
    ERRNO_LIMIT, Failed, HeldVolume, INVENTORY_LIMIT, Inventory, OperationKind, Outcome, Reply,
    RunningOperation, ToolEnd, Welcome,
};
use crate::malformed::{Malformed, bounded, required};
use crate::{KubeletPath, Step, VolumeId, pb};

/// Bytes in the text of a release.
const RELEASE_LIMIT: usize = 64;
/// Hexadecimal digits of a SHA-256 digest.
const DIGEST_LENGTH: usize = 64;
/// Bytes in a log page; page 0xD0 has 4096.
const LOG_PAGE_LIMIT: usize = 4096;
/// Signal numbers end at 64.
const SIGNAL_LIMIT: i32 = 64;
/// Permission bits, including set-user-id, set-group-id and sticky.
const MODE_LIMIT: u32 = 0o7777;

impl TryFrom<pb::Reply> for Reply {
    type Error = Malformed;

    fn try_from(wire: pb::Reply) -> Result<Self, Malformed> {
        use pb::reply::Result as Wire;
        let outcome = match required(wire.result, "result")? {
            Wire::Welcome(answer) => {
                check_welcome(&answer)?;
                Outcome::Welcome(answer)
            }
            Wire::Staged(answer) => Outcome::Staged(answer),
            Wire::Done(answer) => Outcome::Done(answer),
            Wire::Expanded(answer) => Outcome::Expanded(answer),
            Wire::Usage(answer) => Outcome::Usage(answer),
            Wire::LogPage(answer) => {
                bounded(answer.page.len(), LOG_PAGE_LIMIT, "page")?;
                Outcome::LogPage(answer)
            }
            Wire::Inventory(answer) => Outcome::Inventory(answer.try_into()?),
            Wire::Refused(answer) => Outcome::Refused(answer.try_into()?),
            Wire::Failed(answer) => Outcome::Failed(answer.try_into()?),
            Wire::Pending(pb::Pending {}) => Outcome::Pending,
            Wire::Challenge(answer) => Outcome::Challenge(answer.try_into()?),
        };
        Ok(Self { id: wire.id, outcome })
    }
}

impl From<Reply> for pb::Reply {
    fn from(reply: Reply) -> Self {
        use pb::reply::Result as Wire;
        let result = match reply.outcome {
            Outcome::Welcome(answer) => Wire::Welcome(answer),
            Outcome::Staged(answer) => Wire::Staged(answer),
            Outcome::Done(answer) => Wire::Done(answer),
            Outcome::Expanded(answer) => Wire::Expanded(answer),
            Outcome::Usage(answer) => Wire::Usage(answer),
            Outcome::LogPage(answer) => Wire::LogPage(answer),
            Outcome::Inventory(answer) => Wire::Inventory(answer.into()),
            Outcome::Refused(answer) => Wire::Refused(answer.into()),
            Outcome::Failed(answer) => Wire::Failed(answer.into()),
            Outcome::Pending => Wire::Pending(pb::Pending {}),
            Outcome::Challenge(answer) => Wire::Challenge(answer.into()),
        };
        Self { id: reply.id, result: Some(result) }
    }
}

fn check_welcome(welcome: &Welcome) -> Result<(), Malformed> {
    let Welcome { version, release, policy_digest, .. } = welcome;
    bounded(release.len(), RELEASE_LIMIT, "release")?;
    let hexadecimal = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    for (valid, field) in [
        (!release.is_empty() && release.bytes().all(|b| b.is_ascii_graphic()), "release"),
        (
            policy_digest.len() == DIGEST_LENGTH && policy_digest.bytes().all(hexadecimal),
            "policy_digest",
        ),
        (*version != 0, "version"),
    ] {
        if !valid {
            return Err(Malformed::Invalid { field });
        }
    }
    Ok(())
}

impl TryFrom<pb::Inventory> for Inventory {
    type Error = Malformed;

    fn try_from(wire: pb::Inventory) -> Result<Self, Malformed> {
        bounded(wire.volumes.len(), INVENTORY_LIMIT, "volumes")?;
        bounded(wire.operations.len(), INVENTORY_LIMIT, "operations")?;
        let volumes = wire.volumes.into_iter().map(|held| {
            Ok(HeldVolume {
                volume: VolumeId::parse(&held.volume_id)?,
                path: KubeletPath::parse(&held.path)?,
                read_only: held.read_only,
                staged: held.staged,
                by_name: held.by_name,
            })
        });
        let operations = wire.operations.into_iter().map(|running| {
            Ok(RunningOperation {
                volume: VolumeId::parse(&running.volume_id)?,
                kind: OperationKind::from_wire(running.kind)?,
                running_ms: running.running_ms,
            })
        });
        Ok(Self {
            volumes: volumes.collect::<Result<_, Malformed>>()?,
            operations: operations.collect::<Result<_, Malformed>>()?,
            more: wire.more,
        })
    }
}

impl From<Inventory> for pb::Inventory {
    fn from(inventory: Inventory) -> Self {
        let volumes = inventory.volumes.into_iter().map(|held| pb::HeldVolume {
            volume_id: held.volume.to_string(),
            path: held.path.to_string(),
            read_only: held.read_only,
            staged: held.staged,
            by_name: held.by_name,
        });
        let operations = inventory.operations.into_iter().map(|running| pb::RunningOperation {
            volume_id: running.volume.to_string(),
            kind: running.kind.to_wire(),
            running_ms: running.running_ms,
        });
        Self { volumes: volumes.collect(), operations: operations.collect(), more: inventory.more }
    }
}

impl TryFrom<pb::Failed> for Failed {
    type Error = Malformed;

    fn try_from(wire: pb::Failed) -> Result<Self, Malformed> {
        if !(0..=ERRNO_LIMIT).contains(&wire.errno) {
            return Err(Malformed::Invalid { field: "errno" });
        }
        if !(0..=SIGNAL_LIMIT).contains(&wire.tool_signal) {
            return Err(Malformed::Invalid { field: "tool_signal" });
        }
        let byte = |number: i32| u8::try_from(number).ok().and_then(NonZeroU8::new);
        let tool = match (wire.tool_exit, byte(wire.tool_signal)) {
            (0, None) => None,
            (-1, Some(signal)) => Some(ToolEnd::Signalled(signal)),
            (status, None) => Some(ToolEnd::Exited(
                byte(status).ok_or(Malformed::Invalid { field: "tool_exit" })?,
            )),
            (_, Some(_)) => return Err(Malformed::Invalid { field: "tool_exit" }),
        };
        if wire.node.is_some_and(|node| node.mode > MODE_LIMIT) {
            return Err(Malformed::Invalid { field: "mode" });
        }
        Ok(Self {
            step: Step::from_wire(wire.step)?,
            errno: NonZeroI32::new(wire.errno),
            tool,
            node: wire.node,
        })
    }
}

impl From<Failed> for pb::Failed {
    fn from(failed: Failed) -> Self {
        let (tool_exit, tool_signal) = match failed.tool {
            None => (0, 0),
            Some(ToolEnd::Exited(status)) => (i32::from(status.get()), 0),
            Some(ToolEnd::Signalled(signal)) => (-1, i32::from(signal.get())),
        };
        Self {
            step: failed.step.to_wire(),
            errno: failed.errno.map_or(0, NonZeroI32::get),
            tool_exit,
            tool_signal,
            node: failed.node,
        }
    }
}
