//! Passes on to the mount-helper which attachments the node is to leave alone: those in the
//! annotation that node-lifecycle writes onto the agent's pod and kubelet into the node facts file.
//!
//! A promise ends a minute after it was last asked for, so the helper is asked again and again.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ebs_csi_proto::keys::LEAVING;
use ebs_csi_wire::{AttachedAt, Promise, Refusal, VolumeId};
use tokio::time::Instant;

use crate::deadline::Deadline;
use crate::facts::node_facts_file;
use crate::helper::{Helper, HelperError};

/// Pause between two reads of the files.
const PAUSE: Duration = Duration::from_millis(500);
/// A promise that was made is asked for again after this time.
const AGAIN: Duration = Duration::from_secs(5);
/// How long the helper may take.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Most attachments of one annotation that are read. A node has fewer volumes.
const MOST: usize = 256;

/// Runs for ever.
pub(super) async fn run(helper: Arc<Helper>, files: Vec<PathBuf>) {
    let mut asked: Vec<(Promise, Instant)> = Vec::new();
    loop {
        let wanted = leaving(&files);
        asked.retain(|(promise, at)| at.elapsed() < AGAIN && wanted.contains(promise));
        for promise in wanted {
            if asked.iter().any(|(known, _)| *known == promise) {
                continue;
            }
            let volume = promise.volume.clone();
            match helper.send(promise.clone(), Deadline::after(TIMEOUT)).await {
                Ok(done) => {
                    if !done.already {
                        tracing::info!(volume.id = %volume, "the node promises to leave the volume alone until its detach");
                    }
                    asked.push((promise, Instant::now()));
                }
                // What uses the volume ends first.
                Err(HelperError::Refused(refused)) if refused.reason == Refusal::StillHeld => {}
                Err(error) => {
                    tracing::debug!(volume.id = %volume, %error, "no promise was made");
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns what the annotation lists now; nothing while it cannot be read.
fn leaving(files: &[PathBuf]) -> Vec<Promise> {
    let entries = node_facts_file::entries(files);
    entries.get(LEAVING).map(|text| parse(text)).unwrap_or_default()
}

/// Parses the annotation. An entry of another form is left out.
fn parse(text: &str) -> Vec<Promise> {
    let words: BTreeSet<&str> = text.split(',').map(str::trim).take(MOST).collect();
    let promise = |word: &str| {
        let (volume, attached_at) = word.split_once('@')?;
        let volume = VolumeId::parse(volume).ok()?;
        Some(Promise { volume, attached_at: AttachedAt::parse(attached_at).ok()? })
    };
    words.into_iter().filter_map(promise).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotation_lists_attachments_and_other_words_are_dropped() {
        let text = "vol-0123456789abcdef0@2026-01-01T00:00:00Z, vol-1a2b3c4d@2026-01-01T00:00:01Z,\
                    vol-1a2b3c4d,vol-xyz@2026-01-01T00:00:00Z,vol-1a2b3c4d@now,@,";
        let found: Vec<String> = parse(text)
            .iter()
            .map(|promise| format!("{}@{}", promise.volume, promise.attached_at))
            .collect();
        assert_eq!(
            found,
            ["vol-0123456789abcdef0@2026-01-01T00:00:00Z", "vol-1a2b3c4d@2026-01-01T00:00:01Z",]
        );
        assert!(parse("").is_empty());
        let many = "vol-1a2b3c4d@2026-01-01T00:00:01Z,".repeat(100_000);
        assert_eq!(parse(&many).len(), 1);
    }

    #[test]
    fn file_without_annotation_asks_for_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("annotations");
        assert!(leaving(std::slice::from_ref(&file)).is_empty());
        std::fs::write(&file, "other=\"x\"\n").unwrap();
        assert!(leaving(std::slice::from_ref(&file)).is_empty());
        let line = "ebs.csi.aws.com/leaving=\"vol-1a2b3c4d@2026-01-01T00:00:01Z\"\n";
        std::fs::write(&file, line).unwrap();
        assert_eq!(leaving(&[file]).len(), 1);
    }
}
