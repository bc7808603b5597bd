//! How a volume is published at a node. Another publish of the same attachment that asks for
//! something else fails with the difference.
//!
//! EC2 does not store the options, so only the process that saw the first publish can compare. Each
//! entry is bound to one attachment by the time at which EC2 accepted the attachment: the entry
//! says nothing about a later attachment, whoever detached in between.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ebs_csi_ec2::Timestamp;
use ebs_csi_proto::{AccessType, Condition, Failure, lock};
use tokio::time::Instant;

use crate::request::{Pair, PublishOptions};

/// The most attachments that are remembered; nothing is known about further ones.
const MAX_ATTACHMENTS: usize = 20_000;

/// Returns the field in which two publishes contradict each other. Mount flags cannot contradict:
/// they are a matter of the node.
fn difference(first: &PublishOptions, other: &PublishOptions) -> Option<&'static str> {
    let file_systems = match (&first.capability.kind, &other.capability.kind) {
        (AccessType::Block, AccessType::Block) => None,
        (AccessType::Mount { fs_type: a, .. }, AccessType::Mount { fs_type: b, .. }) => {
            Some((a, b))
        }
        _ => return Some("volume_capability.access_type"),
    };
    if file_systems.is_some_and(|(a, b)| !a.is_empty() && !b.is_empty() && a != b) {
        return Some("volume_capability.mount.fs_type");
    }
    if first.capability.needs_multi_attach() != other.capability.needs_multi_attach()
        || first.capability.is_read_only() != other.capability.is_read_only()
    {
        return Some("volume_capability.access_mode");
    }
    (first.read_only != other.read_only).then_some("readonly")
}

#[derive(Clone, Debug, Default)]
pub(super) struct KnownPublishOptions(Arc<Mutex<HashMap<Pair, Published>>>);

#[derive(Clone, Debug)]
struct Published {
    /// When EC2 accepted the attach.
    attached: Timestamp,
    known_since: Instant,
    options: PublishOptions,
}

impl KnownPublishOptions {
    /// Compares the options with those of the first publish of the attachment, or remembers them as
    /// the first.
    ///
    /// # Errors
    /// [`Condition::Incompatible`], naming the field in which the two differ.
    pub(super) fn check_or_remember(
        &self,
        pair: &Pair,
        options: &PublishOptions,
        since: Option<Timestamp>,
    ) -> Result<(), Failure> {
        let Some(since) = since else {
            return Ok(());
        };
        let mut known = lock(&self.0);
        let same = known.get(pair).filter(|published| published.attached == since);
        if let Some(field) = same.and_then(|first| difference(&first.options, options)) {
            return Err(Failure::new(
                Condition::Incompatible,
                format!(
                    "{field}: {pair} is published with another value already; unpublish it there first"
                ),
            ));
        }
        if same.is_none() && (known.len() < MAX_ATTACHMENTS || known.contains_key(pair)) {
            let known_since = Instant::now();
            let published = Published { attached: since, known_since, options: options.clone() };
            known.insert(pair.clone(), published);
        }
        Ok(())
    }

    /// Returns the attach time of the attachment that this process published, and since when this
    /// process has known that attachment.
    pub(super) fn published(&self, pair: &Pair) -> Option<(Timestamp, Instant)> {
        lock(&self.0).get(pair).map(|published| (published.attached, published.known_since))
    }

    pub(super) fn remove(&self, pair: &Pair) {
        lock(&self.0).remove(pair);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::tests::{attach_time, pair};
    use ebs_csi_proto::{AccessMode, Capability};

    fn options(kind: AccessType, mode: AccessMode, read_only: bool) -> PublishOptions {
        PublishOptions { capability: Capability { mode, kind }, read_only }
    }

    fn mount(fs_type: &str, flags: &[&str]) -> AccessType {
        AccessType::Mount {
            fs_type: fs_type.to_owned(),
            flags: flags.iter().map(|f| (*f).to_owned()).collect(),
        }
    }

    #[test]
    fn second_publish_must_not_contradict_first() {
        use AccessMode::{
            MultiNodeMultiWriter, SingleNodeMultiWriter, SingleNodeReaderOnly, SingleNodeWriter,
        };
        let first = options(mount("ext4", &["noatime"]), SingleNodeWriter, false);
        let rows = [
            (first.clone(), None),
            (options(mount("", &[]), SingleNodeMultiWriter, false), None),
            (options(mount("xfs", &[]), SingleNodeWriter, false), Some("fs_type")),
            (options(AccessType::Block, SingleNodeWriter, false), Some("access_type")),
            (options(mount("ext4", &[]), SingleNodeReaderOnly, false), Some("access_mode")),
            (options(mount("ext4", &[]), MultiNodeMultiWriter, false), Some("access_mode")),
            (options(mount("ext4", &[]), SingleNodeWriter, true), Some("readonly")),
        ];
        let publish_options = KnownPublishOptions::default();
        for _ in 0..2 {
            publish_options.check_or_remember(&pair(), &first, attach_time(1)).unwrap();
            for (other, field) in &rows {
                match (publish_options.check_or_remember(&pair(), other, attach_time(1)), field) {
                    (Ok(()), None) => {}
                    (Err(failure), Some(field)) => {
                        assert_eq!(failure.condition(), Condition::Incompatible);
                        assert!(failure.text().contains(field), "{failure}");
                    }
                    (got, _) => panic!("{other:?}: {got:?}"),
                }
            }
        }
    }

    #[test]
    fn new_attachment_ignores_previous_publish_capability() {
        let publish_options = KnownPublishOptions::default();
        let block = options(AccessType::Block, AccessMode::SingleNodeWriter, false);
        let mounted = options(mount("ext4", &[]), AccessMode::SingleNodeWriter, false);
        publish_options.check_or_remember(&pair(), &block, attach_time(1)).unwrap();
        publish_options.check_or_remember(&pair(), &mounted, attach_time(2)).unwrap();
        assert!(publish_options.check_or_remember(&pair(), &block, attach_time(2)).is_err());
        publish_options.check_or_remember(&pair(), &block, None).unwrap();
        publish_options.remove(&pair());
        publish_options.check_or_remember(&pair(), &block, attach_time(2)).unwrap();
        assert_eq!(lock(&publish_options.0).len(), 1);
    }
}
