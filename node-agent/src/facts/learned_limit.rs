//! The attachment limit of this instance as EC2 says: node-lifecycle writes it onto the agent's
//! pod, and kubelet into the node facts files.

use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use ebs_csi_proto::keys::{ATTACH_LIMIT, AttachLimit};
use ebs_csi_proto::lock;

use super::{NodeFacts, node_facts_file};
use crate::deadline::Deadline;

/// The longest wait of the process for a limit that has not come yet.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two reads of the files.
const PAUSE: Duration = Duration::from_millis(200);
/// What is left of a call's time for its answer.
const FOR_THE_ANSWER: Duration = Duration::from_secs(1);
/// The most characters of an annotation in the log.
const MAX_SHOWN: usize = 100;

/// Reads the limit, anew each time.
#[derive(Debug, Default)]
pub(crate) struct LearnedLimit {
    files: Vec<PathBuf>,
    awaited_since: OnceLock<Instant>,
    last_logged: Mutex<Option<String>>,
}

impl LearnedLimit {
    pub(crate) fn new(files: Vec<PathBuf>) -> Self {
        Self { files, ..Self::default() }
    }

    /// Returns the limit that the files have now. Logs it, or why it does not count, once.
    pub(crate) fn read(&self, facts: &NodeFacts) -> Option<AttachLimit> {
        let text = node_facts_file::entries(&self.files).remove(ATTACH_LIMIT);
        let text = text.filter(|text| !text.is_empty())?;
        let limit = of_this_instance(&text, facts);
        let mut last_logged = lock(&self.last_logged);
        if last_logged.as_ref() != Some(&text) {
            let shown: String = text.chars().take(MAX_SHOWN).collect();
            match &limit {
                Ok(_) => tracing::info!(limit = shown, "EC2 says how many volumes the node takes"),
                Err(why) => {
                    tracing::warn!(annotation = ATTACH_LIMIT, given = ?shown, why, "an attachment limit is ignored");
                }
            }
            *last_logged = Some(text);
        }
        limit.ok()
    }

    /// Returns the limit; waits for it at most ten seconds in the life of the process, and no
    /// longer than the call has time.
    pub(crate) async fn wait(&self, facts: &NodeFacts, deadline: Deadline) -> Option<AttachLimit> {
        if self.files.is_empty() {
            return None;
        }
        let since = *self.awaited_since.get_or_init(Instant::now);
        loop {
            let limit = self.read(facts);
            let is_late = deadline.left() <= FOR_THE_ANSWER || since.elapsed() >= PATIENCE;
            if limit.is_some() || is_late {
                return limit;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Parses the annotation.
///
/// # Errors
/// Why it does not count here.
fn of_this_instance(text: &str, facts: &NodeFacts) -> Result<AttachLimit, &'static str> {
    let limit = AttachLimit::parse(text)
        .ok_or("it is not `LIMIT KIND TYPE INSTANCE` with a limit from 1 to 1000")?;
    match limit.instance == facts.instance && limit.instance_type == facts.instance_type {
        true => Ok(limit),
        false => Err("it is of another instance, or of another type of this one"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::example;

    const LIMIT: &str = "100 dedicated m7i.large i-0123456789abcdef0";

    fn annotated(value: &str) -> (tempfile::TempDir, LearnedLimit) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("annotations");
        std::fs::write(&file, format!("{ATTACH_LIMIT}={value:?}\n")).unwrap();
        (dir, LearnedLimit::new(vec![file]))
    }

    #[test]
    fn limit_of_other_instance_or_form_is_ignored() {
        let rows = [
            (LIMIT, Some(100)),
            ("1000 shared m7i.large i-0123456789abcdef0", Some(1000)),
            ("100 dedicated m7i.large i-0fedcba9876543210", None),
            ("100 dedicated m7i.xlarge i-0123456789abcdef0", None),
            ("0 dedicated m7i.large i-0123456789abcdef0", None),
            ("-1 dedicated m7i.large i-0123456789abcdef0", None),
            ("1000000000 dedicated m7i.large i-0123456789abcdef0", None),
            ("100", None),
            ("many", None),
            ("", None),
        ];
        for (value, want) in rows {
            let (_dir, learned) = annotated(value);
            let found = learned.read(&example()).map(|limit| limit.limit());
            assert_eq!(found, want, "{value}");
        }
        assert_eq!(LearnedLimit::default().read(&example()), None);
    }

    #[tokio::test]
    async fn limit_is_awaited_until_it_comes() {
        let (dir, learned) = annotated("");
        let file = dir.path().join("annotations");
        let write = async {
            tokio::time::sleep(PAUSE * 2).await;
            std::fs::write(&file, format!("{ATTACH_LIMIT}=\"{LIMIT}\"\n")).unwrap();
        };
        let facts = example();
        let deadline = Deadline::after(Duration::from_secs(60));
        let (found, ()) = tokio::join!(learned.wait(&facts, deadline), write);
        assert_eq!(found.map(|limit| limit.limit()), Some(100));
    }

    /// Neither a call's own limit nor the patience of the process is exceeded.
    #[tokio::test]
    async fn wait_without_limit_ends() {
        let began = Instant::now();
        let long = || Deadline::after(Duration::from_secs(60));
        assert_eq!(LearnedLimit::default().wait(&example(), long()).await, None);
        let (_dir, learned) = annotated("");
        let short = Deadline::after(FOR_THE_ANSWER);
        assert_eq!(learned.wait(&example(), short).await, None);
        let (_dir, mut learned) = annotated("");
        learned.awaited_since = OnceLock::from(began.checked_sub(PATIENCE).unwrap());
        assert_eq!(learned.wait(&example(), long()).await, None);
        assert!(began.elapsed() < PATIENCE / 2);
    }
}
