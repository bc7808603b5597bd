//! The facts while the process serves. Facts that no source had at the start are read again from
//! the node facts files, which kubelet rewrites when the pod's labels or annotations change. The
//! files also have the attachment limit of this instance as EC2 says, which may change:
//! node-lifecycle writes it onto the agent's pod.

use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use ebs_csi_proto::keys::{ATTACH_LIMIT, AttachLimit};
use ebs_csi_proto::{Condition, Failure, lock};
use ebs_csi_wire::InstanceId;

use super::dmi::Machine;
use super::{NodeFacts, Sources, Unknown, node_facts_file};
use crate::deadline::Deadline;

/// Pause between two reads of the files while a call waits for them.
const PAUSE: Duration = Duration::from_millis(200);
/// The longest wait of the process for a limit that has not come yet.
const PATIENCE: Duration = Duration::from_secs(10);
/// What is left of a call's time for its answer.
const FOR_THE_ANSWER: Duration = Duration::from_secs(1);
/// The most characters of an annotation in the log.
const MAX_SHOWN: usize = 100;

/// The facts, or where the missing ones will appear. Facts that are known do not change.
#[derive(Debug, Default)]
pub struct LiveFacts {
    known: OnceLock<NodeFacts>,
    machine: Machine,
    files: Vec<PathBuf>,
    limit_awaited_since: OnceLock<Instant>,
    last_logged_limit: Mutex<Option<String>>,
}

impl From<NodeFacts> for LiveFacts {
    fn from(facts: NodeFacts) -> Self {
        Self::known(facts, Vec::new())
    }
}

impl LiveFacts {
    /// Returns facts that are known; the files may still tell the attachment limit.
    pub fn known(facts: NodeFacts, files: Vec<PathBuf>) -> Self {
        Self { known: OnceLock::from(facts), files, ..Self::default() }
    }

    /// Returns facts that the node facts files are expected to provide later.
    ///
    /// # Errors
    /// The given [`Unknown`], when no such file can provide what is missing.
    pub fn awaited(sources: &Sources, unknown: Unknown) -> Result<Self, Unknown> {
        if !unknown.may_appear {
            return Err(unknown);
        }
        Ok(Self {
            machine: Machine::read(&sources.dmi),
            files: sources.files.clone(),
            ..Self::default()
        })
    }

    /// Returns the instance, which may be known before the other facts.
    pub(crate) fn instance(&self) -> Option<&InstanceId> {
        let known = self.known.get().map(|facts| &facts.instance);
        known.or(self.machine.instance.as_ref())
    }

    /// Returns the facts; waits for the files to provide them.
    ///
    /// # Errors
    /// UNAVAILABLE with the fact that is still missing at the deadline.
    pub(crate) async fn wait(&self, deadline: Deadline) -> Result<&NodeFacts, Failure> {
        loop {
            if let Some(facts) = self.known.get() {
                return Ok(facts);
            }
            let entries = node_facts_file::entries(&self.files);
            match node_facts_file::facts(&self.machine, &entries) {
                Ok(facts) => {
                    facts.log();
                    let _ = self.known.set(facts);
                }
                Err(missing) if deadline.left() <= PAUSE => {
                    return Err(Failure::new(
                        Condition::FactsUnknown,
                        format!(
                            "{missing}; node-lifecycle writes it where the Node has it, and the log of \
                             this process says why no other source of --metadata-sources knows it"
                        ),
                    ));
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Returns the attachment limit that the files have now for the known instance. Logs it, or why
    /// it does not count, once.
    pub(crate) fn limit(&self) -> Option<AttachLimit> {
        let facts = self.known.get()?;
        let text = node_facts_file::entries(&self.files).remove(ATTACH_LIMIT);
        let text = text.filter(|text| !text.is_empty())?;
        let limit = of_this_instance(&text, facts);
        let mut last_logged = lock(&self.last_logged_limit);
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

    /// Returns the attachment limit; waits for it at most ten seconds in the life of the process,
    /// and no longer than the call has time.
    pub(crate) async fn wait_for_limit(&self, deadline: Deadline) -> Option<AttachLimit> {
        if self.files.is_empty() {
            return None;
        }
        let since = *self.limit_awaited_since.get_or_init(Instant::now);
        loop {
            let limit = self.limit();
            let is_late = deadline.left() <= FOR_THE_ANSWER || since.elapsed() >= PATIENCE;
            if limit.is_some() || is_late {
                return limit;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Parses the annotation of the attachment limit.
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
    use std::path::Path;

    use tonic::Code;

    use super::*;
    use crate::facts::{self, Source, example};

    const WHOLE: &str = "ebs.csi.aws.com/zone=\"eu-west-1a\"\n\
        ebs.csi.aws.com/instance-type=\"m5.large\"\n\
        ebs.csi.aws.com/instance-id=\"i-0fedcba9876543210\"\n";

    fn sources(directory: &Path, files: Vec<PathBuf>) -> Sources {
        Sources {
            order: vec![Source::Kubernetes, Source::Imds],
            imds: Err("not here".to_owned()),
            dmi: directory.to_owned(),
            files,
            timeout: Duration::ZERO,
        }
    }

    fn awaited(sources: &Sources) -> Result<LiveFacts, Unknown> {
        LiveFacts::awaited(sources, facts::read(sources).unwrap_err())
    }

    #[tokio::test]
    async fn call_waits_until_file_has_facts() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("annotations");
        let live = awaited(&sources(dir.path(), vec![file.clone()])).unwrap();
        let failure = live.wait(Deadline::after(Duration::ZERO)).await;
        let failure = failure.unwrap_err();
        assert_eq!(failure.condition().code(), Code::Unavailable);
        for words in ["the instance id", "ebs.csi.aws.com/instance-id"] {
            assert!(failure.to_string().contains(words), "{failure}");
        }
        std::fs::write(&file, WHOLE.lines().next().unwrap()).unwrap();
        let write = async {
            tokio::time::sleep(PAUSE * 2).await;
            std::fs::write(&file, WHOLE).unwrap();
        };
        let (found, ()) = tokio::join!(live.wait(Deadline::after(Duration::from_secs(30))), write);
        assert_eq!(found.unwrap().zone, "eu-west-1a");
        assert_eq!(live.instance().unwrap().as_str(), "i-0fedcba9876543210");
        // The facts that were found stay, whatever becomes of the file.
        std::fs::remove_file(&file).unwrap();
        assert!(live.wait(Deadline::after(Duration::ZERO)).await.is_ok());
    }

    #[tokio::test]
    async fn dmi_names_instance_before_zone_is_known() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("board_asset_tag"), "i-0123456789abcdef0").unwrap();
        let live = awaited(&sources(dir.path(), vec![dir.path().join("none")])).unwrap();
        assert_eq!(live.instance().unwrap().as_str(), "i-0123456789abcdef0");
        assert_eq!(LiveFacts::from(example()).instance(), live.instance());
    }

    /// Waiting helps neither without a file nor where the file belongs to another node.
    #[test]
    fn facts_are_not_awaited_without_usable_file() {
        let dir = tempfile::tempdir().unwrap();
        assert!(awaited(&sources(dir.path(), Vec::new())).is_err());
        let file = dir.path().join("annotations");
        std::fs::write(&file, WHOLE).unwrap();
        std::fs::write(dir.path().join("board_asset_tag"), "i-0123456789abcdef0").unwrap();
        let error = awaited(&sources(dir.path(), vec![file])).unwrap_err();
        assert!(error.to_string().contains("another node"), "{error}");
    }

    const LIMIT: &str = "100 dedicated m7i.large i-0123456789abcdef0";

    fn annotated(value: &str) -> (tempfile::TempDir, LiveFacts) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("annotations");
        std::fs::write(&file, format!("{ATTACH_LIMIT}={value:?}\n")).unwrap();
        (dir, LiveFacts::known(example(), vec![file]))
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
            let (_dir, live) = annotated(value);
            let found = live.limit().map(|limit| limit.limit());
            assert_eq!(found, want, "{value}");
        }
        assert_eq!(LiveFacts::from(example()).limit(), None);
    }

    #[tokio::test]
    async fn limit_is_awaited_until_it_comes() {
        let (dir, live) = annotated("");
        let file = dir.path().join("annotations");
        let write = async {
            tokio::time::sleep(PAUSE * 2).await;
            std::fs::write(&file, format!("{ATTACH_LIMIT}=\"{LIMIT}\"\n")).unwrap();
        };
        let deadline = Deadline::after(Duration::from_secs(60));
        let (found, ()) = tokio::join!(live.wait_for_limit(deadline), write);
        assert_eq!(found.map(|limit| limit.limit()), Some(100));
    }

    /// Neither a call's own limit nor the patience of the process is exceeded.
    #[tokio::test]
    async fn wait_without_limit_ends() {
        let began = Instant::now();
        let long = || Deadline::after(Duration::from_secs(60));
        assert_eq!(LiveFacts::from(example()).wait_for_limit(long()).await, None);
        let (_dir, live) = annotated("");
        let short = Deadline::after(FOR_THE_ANSWER);
        assert_eq!(live.wait_for_limit(short).await, None);
        let (_dir, mut live) = annotated("");
        live.limit_awaited_since = OnceLock::from(began.checked_sub(PATIENCE).unwrap());
        assert_eq!(live.wait_for_limit(long()).await, None);
        assert!(began.elapsed() < PATIENCE / 2);
    }
}
