//! Default mount options in an ext superblock, which the kernel applies as if the mount call had
//! given them.

use crate::facts::ExtFacts;
use crate::flag::{self, Effect};
use ebs_csi_wire::{FsType, MountFlag};

/// The kernel's `EXT4_DEFM_*` except `debug` (0x1), which floods the kernel's log: bsdgroups (0x2),
/// user_xattr, acl, uid16, the journal's mode (0x60), nobarrier (0x100), block_validity, discard,
/// nodelalloc (0x800).
const ALLOWED_BITS: u32 = 0xf7e;

/// Returns whether each default option is one that a request might ask for, or `errors=`, which
/// each mount sets itself.
#[must_use]
pub(super) fn allowed(facts: &ExtFacts) -> bool {
    facts.default_options & !ALLOWED_BITS == 0
        && facts.default_words.split(',').filter(|word| !word.is_empty()).all(is_option_allowed)
}

fn is_option_allowed(word: &str) -> bool {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    name == "errors" && value.is_some()
        || MountFlag::new(name, value).is_ok_and(|option| {
            // A request may ask for a mount without the journal's replay, a superblock may not.
            flag::rule(&option, FsType::Ext4).is_ok_and(|rule| rule.effect != Effect::NoReplay)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flag::RefusedFlag;

    /// An `errors=` option is allowed as well, since each mount sets its own value.
    #[test]
    fn only_requestable_default_mount_options_are_allowed() {
        for word in ["discard", "nodelalloc", "data=journal", "commit=30", "errors=panic"] {
            assert!(is_option_allowed(word), "{word}");
        }
        let refused = flag::REFUSED.iter().map(|RefusedFlag { name, .. }| *name);
        for word in refused.filter(|name| !name.starts_with("errors=")).chain([
            "journal_dev=2065",
            "noload",
            "norecovery",
            "errors",
            "commit",
            "DISCARD",
            "\u{fffd}",
            "=",
        ]) {
            assert!(!is_option_allowed(word), "{word}");
        }
    }

    #[test]
    fn one_unknown_bit_or_word_is_refused() {
        let facts = |default_options, default_words: &str| ExtFacts {
            default_options,
            default_words: default_words.to_owned(),
            ..ExtFacts::default()
        };
        for bit in 0..32 {
            let known = matches!(bit, 1..=6 | 8..=11);
            assert_eq!(allowed(&facts(1 << bit, "")), known, "bit {bit}");
        }
        for (words, expected) in
            [("", true), ("discard,,errors=panic", true), ("discard,debug", false)]
        {
            assert_eq!(allowed(&facts(0xc, words)), expected, "{words}");
        }
        assert!(!allowed(&facts(0x1, "discard")) && !allowed(&facts(0xc, "debug")));
    }
}
