//! Default mount options in an ext superblock, which the kernel applies as if the mount call had
//! given them.

use crate::facts::ExtFacts;
use crate::flag;
use ebs_csi_wire::{FsType, MountFlag};

/// The kernel's `EXT4_DEFM_*` except `debug`, which floods the kernel's log: bsdgroups, user_xattr,
/// acl, uid16, the journal's mode, nobarrier, block_validity, discard, nodelalloc.
const KNOWN: u32 = 0x2 | 0x4 | 0x8 | 0x10 | 0x60 | 0x100 | 0x200 | 0x400 | 0x800;

/// Returns whether each default option is one that a request might ask for, or `errors=`, which
/// each mount sets itself.
#[must_use]
pub(super) fn allowed(facts: &ExtFacts) -> bool {
    facts.default_options & !KNOWN == 0
        && facts
            .default_words
            .split(',')
            .filter(|word| !word.is_empty())
            .all(word_allowed)
}

fn word_allowed(word: &str) -> bool {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    name == "errors" && value.is_some()
        || MountFlag::new(name, value).is_ok_and(|option| flag::rule(&option, FsType::Ext4).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flag::RefusedFlag;

    /// An `errors=` option is allowed as well, since each mount sets its own value.
    #[test]
    fn only_requestable_default_mount_options_are_allowed() {
        for word in [
            "discard",
            "nodelalloc",
            "data=journal",
            "commit=30",
            "errors=panic",
        ] {
            assert!(word_allowed(word), "{word}");
        }
        let refused = flag::REFUSED.iter().map(|RefusedFlag { name, .. }| *name);
        for word in refused.filter(|name| !name.starts_with("errors=")).chain([
            "journal_dev=2065",
            "errors",
            "commit",
            "DISCARD",
            "\u{fffd}",
            "=",
        ]) {
            assert!(!word_allowed(word), "{word}");
        }
    }
}
