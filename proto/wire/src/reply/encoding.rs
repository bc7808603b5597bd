//! Conversion of replies to wire messages and back.

use std::num::{NonZeroI32, NonZeroU8};

use super::{
    Done, ERRNO_LIMIT, Expanded, Failed, HeldVolume, INVENTORY_LIMIT, Inventory, LogPage, Node,
    OperationKind, Outcome, Reply, RunningOperation, Staged, ToolEnd, Usage, Welcome,
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
            Wire::Welcome(answer) => Outcome::Welcome(answer.try_into()?),
            Wire::Staged(answer) => Outcome::Staged(Staged {
                already: answer.already,
                formatted: answer.formatted,
                checked: answer.checked,
                repaired: answer.repaired,
                grown: answer.grown,
                device_bytes: answer.device_bytes,
                untold: answer.untold,
                replayed: answer.replayed,
            }),
            Wire::Done(answer) => {
                Outcome::Done(Done { already: answer.already, copied: answer.copied })
            }
            Wire::Expanded(answer) => Outcome::Expanded(Expanded {
                device_bytes: answer.device_bytes,
                filesystem_bytes: answer.filesystem_bytes,
            }),
            Wire::Usage(answer) => Outcome::Usage(Usage {
                block: answer.block,
                total_bytes: answer.total_bytes,
                used_bytes: answer.used_bytes,
                available_bytes: answer.available_bytes,
                total_inodes: answer.total_inodes,
                used_inodes: answer.used_inodes,
                available_inodes: answer.available_inodes,
                turned_read_only: answer.turned_read_only,
                shut_down: answer.shut_down,
                errors: answer.errors,
            }),
            Wire::LogPage(answer) => {
                bounded(answer.page.len(), LOG_PAGE_LIMIT, "page")?;
                Outcome::LogPage(LogPage { page: answer.page })
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
            Outcome::Welcome(answer) => Wire::Welcome(pb::Welcome {
                version: answer.version,
                release: answer.release,
                policy_digest: answer.policy_digest,
                sandbox: answer.sandbox,
                landlock: answer.landlock,
            }),
            Outcome::Staged(answer) => Wire::Staged(pb::Staged {
                already: answer.already,
                formatted: answer.formatted,
                checked: answer.checked,
                repaired: answer.repaired,
                grown: answer.grown,
                device_bytes: answer.device_bytes,
                untold: answer.untold,
                replayed: answer.replayed,
            }),
            Outcome::Done(answer) => {
                Wire::Done(pb::Done { already: answer.already, copied: answer.copied })
            }
            Outcome::Expanded(answer) => Wire::Expanded(pb::Expanded {
                device_bytes: answer.device_bytes,
                filesystem_bytes: answer.filesystem_bytes,
            }),
            Outcome::Usage(answer) => Wire::Usage(pb::Usage {
                block: answer.block,
                total_bytes: answer.total_bytes,
                used_bytes: answer.used_bytes,
                available_bytes: answer.available_bytes,
                total_inodes: answer.total_inodes,
                used_inodes: answer.used_inodes,
                available_inodes: answer.available_inodes,
                turned_read_only: answer.turned_read_only,
                shut_down: answer.shut_down,
                errors: answer.errors,
            }),
            Outcome::LogPage(answer) => Wire::LogPage(pb::LogPage { page: answer.page }),
            Outcome::Inventory(answer) => Wire::Inventory(answer.into()),
            Outcome::Refused(answer) => Wire::Refused(answer.into()),
            Outcome::Failed(answer) => Wire::Failed(answer.into()),
            Outcome::Pending => Wire::Pending(pb::Pending {}),
            Outcome::Challenge(answer) => Wire::Challenge(answer.into()),
        };
        Self { id: reply.id, result: Some(result) }
    }
}

impl TryFrom<pb::Welcome> for Welcome {
    type Error = Malformed;

    fn try_from(wire: pb::Welcome) -> Result<Self, Malformed> {
        bounded(wire.release.len(), RELEASE_LIMIT, "release")?;
        if wire.release.is_empty() || !wire.release.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(Malformed::Invalid { field: "release" });
        }
        let hexadecimal = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        if wire.policy_digest.len() != DIGEST_LENGTH || !wire.policy_digest.bytes().all(hexadecimal)
        {
            return Err(Malformed::Invalid { field: "policy_digest" });
        }
        if wire.version == 0 {
            return Err(Malformed::Invalid { field: "version" });
        }
        Ok(Self {
            version: wire.version,
            release: wire.release,
            policy_digest: wire.policy_digest,
            sandbox: wire.sandbox,
            landlock: wire.landlock,
        })
    }
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
        Self {
            volumes: inventory
                .volumes
                .into_iter()
                .map(|held| pb::HeldVolume {
                    volume_id: held.volume.to_string(),
                    path: held.path.to_string(),
                    read_only: held.read_only,
                    staged: held.staged,
                    by_name: held.by_name,
                })
                .collect(),
            operations: inventory
                .operations
                .into_iter()
                .map(|running| pb::RunningOperation {
                    volume_id: running.volume.to_string(),
                    kind: running.kind.to_wire(),
                    running_ms: running.running_ms,
                })
                .collect(),
            more: inventory.more,
        }
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
        let node = match wire.node {
            Some(node) if node.mode > MODE_LIMIT => {
                return Err(Malformed::Invalid { field: "mode" });
            }
            node => node.map(|pb::Node { uid, gid, mode }| Node { uid, gid, mode }),
        };
        Ok(Self {
            step: Step::from_wire(wire.step)?,
            errno: NonZeroI32::new(wire.errno),
            tool,
            node,
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
            node: failed.node.map(|Node { uid, gid, mode }| pb::Node { uid, gid, mode }),
        }
    }
}
