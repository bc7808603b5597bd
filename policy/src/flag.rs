//! Which mount flags are allowed, and what they do.

use ebs_csi_wire::mount::MountWordError;
use ebs_csi_wire::{FsType, MountFlag, Observation, Refusal, Refused};

use crate::pattern;

/// A row of `mounts.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlagRule {
    /// The flag's name; `*` at the end stands for anything.
    pub name: &'static str,
    /// The kernel's name of the parameter.
    pub parameter: &'static str,
    /// The file systems that have it.
    pub file_systems: &'static [FsType],
    /// The value that it takes.
    pub value: ValueRule,
    /// What it does.
    pub effect: Effect,
    /// Why it is allowed.
    pub why: &'static str,
}

/// A flag that is refused on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedFlag {
    /// The flag, with its value where only that value is refused.
    pub name: &'static str,
    /// Why it is refused.
    pub why: &'static str,
}

/// The value that a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueRule {
    /// None.
    None,
    /// A decimal number, both bounds included.
    Number {
        /// The lowest.
        low: u64,
        /// The highest.
        high: u64,
    },
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// None, or anything.
    Any,
    /// A decimal number of bytes, with `k`, `m` or `g` behind it or nothing.
    Size,
    /// An SELinux label: letters, digits, `_`, `-`, `.`, `:` and `,`.
    SelinuxLabel,
}

/// What a flag does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Sets and clears attributes of this one mount, `MOUNT_ATTR_*` of mount_setattr(2).
    Attribute {
        /// Bits to set.
        set: u64,
        /// Bits to clear.
        clear: u64,
    },
    /// Sets a parameter of the file system with fsconfig(2) when the volume is staged; has no
    /// effect on a publish.
    Context,
    /// Asks for a read-only mount.
    ReadOnly,
    /// Asks for a writable mount.
    ReadWrite,
    /// Asks for a mount without the replay of the journal, which must be read-only.
    NoReplay,
    /// Has no effect.
    Nothing,
}

mod compiled {
    use super::{Effect, FlagRule, RefusedFlag, ValueRule};
    use ebs_csi_wire::FsType;
    include!(concat!(env!("OUT_DIR"), "/flags.rs"));
}

/// Every row.
pub const FLAGS: &[FlagRule] = compiled::FLAGS;

/// Every flag that is refused on purpose. A flag in neither list is refused as well.
pub const REFUSED: &[RefusedFlag] = compiled::REFUSED;

/// `MOUNT_ATTR_RDONLY` of mount_setattr(2).
const ATTRIBUTE_READ_ONLY: u64 = 1;

/// The result of a request's mount flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountPlan {
    /// `MOUNT_ATTR_*` bits to set. They include the read-only bit when [`MountPlan::read_only`] is
    /// set.
    pub set: u64,
    /// `MOUNT_ATTR_*` bits to clear.
    pub clear: u64,
    /// Parameters for fsconfig(2), in the order given: a flag without a value, or a string.
    pub context: Vec<(&'static str, Option<String>)>,
    /// Read-only, by the request or by a flag.
    pub read_only: bool,
    /// The journal is not replayed, by a flag.
    pub no_replay: bool,
}

impl FlagRule {
    /// Returns whether the rule allows this flag on this file system.
    #[must_use]
    pub fn admits(&self, flag: &MountFlag, fs: FsType) -> bool {
        pattern::matches(self.name, flag.name())
            && self.file_systems.contains(&fs)
            && match (self.value, flag.value()) {
                (ValueRule::None, None) | (ValueRule::Any, _) => true,
                (ValueRule::Size, Some(value)) => {
                    let number =
                        value.strip_suffix(['k', 'K', 'm', 'M', 'g', 'G']).unwrap_or(value);
                    (1..=10).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit())
                }
                (ValueRule::Number { low, high }, Some(value)) => {
                    value.bytes().all(|b| b.is_ascii_digit())
                        && value.parse().is_ok_and(|number| (low..=high).contains(&number))
                }
                (ValueRule::OneOf(words), Some(value)) => words.contains(&value),
                (ValueRule::SelinuxLabel, Some(value)) => value.bytes().all(|b| {
                    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b':' | b',')
                }),
                _ => false,
            }
    }
}

/// Returns the rule that allows a flag on a file system.
pub fn rule(flag: &MountFlag, fs: FsType) -> Result<&'static FlagRule, NotAllowed> {
    let found = FLAGS.iter().find(|rule| rule.admits(flag, fs));
    found.ok_or_else(|| NotAllowed::by_any_rule(flag, Some(fs)))
}

/// A flag that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the mount flag {:?} is not allowed on {}: {why}",
    .flag.to_string(), .fs.map_or("any file system", FsType::as_str)
)]
pub struct NotAllowed {
    /// The flag.
    pub flag: MountFlag,
    /// The file system that it is not allowed on; `None` when it is allowed on none.
    pub fs: Option<FsType>,
    /// Why it is not allowed.
    pub why: &'static str,
}

impl NotAllowed {
    /// Names the reason for a flag that no rule allows.
    fn by_any_rule(flag: &MountFlag, fs: Option<FsType>) -> Self {
        let text = flag.to_string();
        let row = REFUSED.iter().find(|row| row.name == flag.name() || row.name == text);
        let why = row.map_or("policy/mounts.toml lists what is allowed", |row| row.why);
        Self { flag: flag.clone(), fs, why }
    }
}

impl From<NotAllowed> for Refused {
    fn from(refused: NotAllowed) -> Self {
        Self::because(Refusal::MountFlag, Observation::MountFlag(refused.flag))
    }
}

/// Why a list of mount flags is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub enum FlagError {
    /// It is not a list of flags, or a list that is too long.
    Word(#[from] MountWordError),
    /// It has a flag that is not allowed.
    NotAllowed(#[from] NotAllowed),
}

/// Parses the strings of CSI's `mount_flags` or of a StorageClass's `mountOptions`, and checks them
/// for a mount of one of `file_systems`. Drops repeated flags and keeps the order. Fails with
/// [`FlagError`] of the first flag that is not valid, or that no file system allows.
pub fn parse(
    strings: &[String],
    file_systems: &[FsType],
    read_only: bool,
) -> Result<Vec<MountFlag>, FlagError> {
    let mut flags = Vec::new();
    for string in strings {
        for flag in MountFlag::parse_all(string)? {
            if !file_systems.iter().any(|fs| rule(&flag, *fs).is_ok()) {
                let only = file_systems.first().filter(|_| file_systems.len() == 1);
                return Err(NotAllowed::by_any_rule(&flag, only.copied()).into());
            }
            if !flags.contains(&flag) {
                flags.push(flag);
            }
        }
        MountFlag::check_list(&flags)?;
    }
    let mut plans = file_systems.iter().map(|fs| plan(&flags, *fs, read_only));
    match plans.next() {
        Some(Err(first)) if !plans.any(|plan| plan.is_ok()) => Err(first.into()),
        _ => Ok(flags),
    }
}

/// Combines all flags of a request; a later flag overrides an earlier one, as in mount(8). Fails
/// with [`NotAllowed`] for a flag that is not allowed on the file system, for `rw` on a read-only
/// request, and for a mount without replay that is not read-only.
pub fn plan(flags: &[MountFlag], fs: FsType, read_only: bool) -> Result<MountPlan, NotAllowed> {
    let mut plan = MountPlan { read_only, ..MountPlan::default() };
    let mut without_replay = None;
    for flag in flags {
        let rule = rule(flag, fs)?;
        match rule.effect {
            Effect::Attribute { set, clear } => {
                plan.set = (plan.set & !clear) | set;
                plan.clear = (plan.clear & !set) | clear;
            }
            Effect::Context => {
                plan.context.retain(|(name, _)| *name != rule.parameter);
                plan.context.push((rule.parameter, flag.value().map(str::to_owned)));
            }
            Effect::ReadOnly => plan.read_only = true,
            Effect::ReadWrite if read_only => {
                let why = "the request is read-only";
                return Err(NotAllowed { flag: flag.clone(), fs: Some(fs), why });
            }
            Effect::ReadWrite => plan.read_only = false,
            Effect::NoReplay => without_replay = Some(flag),
            Effect::Nothing => {}
        }
    }
    plan.no_replay = without_replay.is_some();
    if plan.read_only {
        plan.set |= ATTRIBUTE_READ_ONLY;
    } else if let Some(flag) = without_replay {
        let why = "without the journal's replay a mount must be read-only: add \"ro\"";
        return Err(NotAllowed { flag: flag.clone(), fs: Some(fs), why });
    }
    Ok(plan)
}
