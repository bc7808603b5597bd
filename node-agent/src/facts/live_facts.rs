//! The facts while the process serves. Facts that no source had at the start are read again from
//! the node facts files, which kubelet rewrites when the pod's labels or annotations change.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire::InstanceId;

use super::dmi::Machine;
use super::learned_limit::LearnedLimit;
use super::{NodeFacts, Sources, Unknown, node_facts_file};
use crate::deadline::Deadline;

/// Pause between two reads of the files while a call waits for them.
const PAUSE: Duration = Duration::from_millis(200);

/// The facts, or where the missing ones will appear. Facts that are known do not change.
#[derive(Debug)]
pub struct LiveFacts {
    known: OnceLock<NodeFacts>,
    machine: Machine,
    files: Vec<PathBuf>,
    /// What EC2 says of the instance, which may change.
    pub(crate) limit: LearnedLimit,
}

impl From<NodeFacts> for LiveFacts {
    fn from(facts: NodeFacts) -> Self {
        Self::known(facts, Vec::new())
    }
}

impl LiveFacts {
    /// Returns facts that are known; the files may still tell the attachment limit.
    pub fn known(facts: NodeFacts, files: Vec<PathBuf>) -> Self {
        let limit = LearnedLimit::new(files.clone());
        Self { known: OnceLock::from(facts), machine: Machine::default(), files, limit }
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
            known: OnceLock::new(),
            machine: Machine::read(&sources.dmi),
            files: sources.files.clone(),
            limit: LearnedLimit::new(sources.files.clone()),
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
}
