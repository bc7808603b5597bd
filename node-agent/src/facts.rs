//! The facts about the instance, read before the process confines itself, and again from the node
//! facts files while a fact is missing there.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use ebs_csi_proto::keys::topology::{
    DRIVER_ZONE, OUTPOST_ACCOUNT, OUTPOST_ID, OUTPOST_PARTITION, OUTPOST_REGION, ZONE,
};
use ebs_csi_wire::InstanceId;

use node_facts_file::NodeFactsError;

pub(crate) mod dmi;
mod http_client;
pub mod imds;
pub mod live_facts;
pub(crate) mod node_facts_file;
pub(crate) mod taken_slots;

/// The operating system, in the topology.
const OS: &str = "kubernetes.io/os";

/// The facts behind `NodeGetInfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// The EC2 instance: the CSI node id.
    pub instance: InstanceId,
    /// For example `m7i.large`.
    pub instance_type: String,
    /// Availability zone.
    pub zone: String,
    /// Region, where the source knows it.
    pub region: Option<String>,
    /// Attached network interfaces, including the primary one.
    pub network_interfaces: u32,
    /// EBS volumes other than the root volume that were attached at launch.
    pub other_volumes: u32,
    /// The Outpost that the instance runs on.
    pub outpost: Option<Outpost>,
    /// The source of the facts: `imds` or `kubernetes`.
    pub source: Source,
}

impl NodeFacts {
    /// Logs what the node is, once the facts are known.
    pub(crate) fn log(&self) {
        tracing::info!(
            node.id = %self.instance,
            instance_type = self.instance_type,
            zone = self.zone,
            source = self.source.as_str(),
            "this node"
        );
    }

    /// Returns the node's location, in the keys that the scheduler and the controller compare.
    pub(crate) fn topology(&self) -> HashMap<String, String> {
        let mut segments =
            vec![(ZONE, self.zone.as_str()), (DRIVER_ZONE, &self.zone), (OS, "linux")];
        if let Some(outpost) = &self.outpost {
            segments.extend([
                (OUTPOST_REGION, outpost.region.as_str()),
                (OUTPOST_PARTITION, &outpost.partition),
                (OUTPOST_ACCOUNT, &outpost.account),
                (OUTPOST_ID, &outpost.id),
            ]);
        }
        segments.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }
}

/// An Outpost, by the parts of its ARN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outpost {
    /// `aws`, `aws-cn`, …
    pub partition: String,
    /// The Outpost's region.
    pub region: String,
    /// The account of the Outpost's owner.
    pub account: String,
    /// `op-…`.
    pub id: String,
}

impl Outpost {
    /// Parses `arn:PARTITION:outposts:REGION:ACCOUNT:outpost/ID`; returns `None` for any other
    /// text.
    pub fn parse(arn: &str) -> Option<Self> {
        let parts: Vec<&str> = arn.trim().splitn(6, ':').collect();
        let ["arn", partition, "outposts", region, account, resource] = parts[..] else {
            return None;
        };
        let id = resource.strip_prefix("outpost/")?;
        let filled = [partition, region, account, id].iter().all(|part| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        });
        filled.then(|| Self {
            partition: partition.to_owned(),
            region: region.to_owned(),
            account: account.to_owned(),
            id: id.to_owned(),
        })
    }
}

/// A source of facts, as named in `--metadata-sources`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The instance metadata service, version 2.
    Imds,
    /// The machine and the cluster: DMI, and the node facts file.
    Kubernetes,
}

impl Source {
    /// Returns the name on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Imds => "imds",
            Self::Kubernetes => "kubernetes",
        }
    }
}

/// The sources to read, and how long to wait.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The sources in their order; the first that has all facts wins.
    pub order: Vec<Source>,
    /// The metadata service; `Err` says why it must not be used.
    pub imds: Result<imds::Address, String>,
    /// The kernel's DMI strings.
    pub dmi: PathBuf,
    /// Node facts files, written by kubelet from the pod's labels and annotations.
    pub files: Vec<PathBuf>,
    /// How long to wait for sufficient files.
    pub timeout: Duration,
}

/// No source has the facts about the instance.
#[derive(Debug, thiserror::Error)]
#[error(
    "no source of --metadata-sources knows this node: {}; allow the instance metadata service (IMDSv2), or give --node-facts-file with the zone",
    .reasons.join("; ")
)]
pub struct Unknown {
    reasons: Vec<String>,
    /// A node facts file can still provide what is missing.
    may_appear: bool,
}

/// Reads the sources in their order.
///
/// # Errors
/// [`Unknown`], with what each source lacks.
pub fn read(sources: &Sources) -> Result<NodeFacts, Unknown> {
    let mut unknown = Unknown { reasons: Vec::new(), may_appear: false };
    for source in &sources.order {
        let found = match source {
            Source::Imds => match &sources.imds {
                Ok(address) => imds::read(address).map_err(|e| error_chain(&e)),
                Err(why) => Err(why.clone()),
            },
            Source::Kubernetes => {
                let read = node_facts_file::read(&sources.dmi, &sources.files, sources.timeout);
                read.map_err(|error| {
                    let missing = matches!(error, NodeFactsError::Missing { .. });
                    unknown.may_appear = missing && !sources.files.is_empty();
                    error_chain(&error)
                })
            }
        };
        match found {
            Ok(facts) => return Ok(facts),
            Err(why) => {
                tracing::warn!(source = source.as_str(), %why, "a source of node facts does not know this node");
                unknown.reasons.push(format!("{}: {why}", source.as_str()));
            }
        }
    }
    Err(unknown)
}

/// Counts as NodeFacts does; more than the largest number counts as that number.
pub(crate) fn count<T>(items: impl Iterator<Item = T>) -> u32 {
    u32::try_from(items.count()).unwrap_or(u32::MAX)
}

fn error_chain(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Returns facts for tests.
#[cfg(test)]
pub(crate) fn example() -> NodeFacts {
    NodeFacts {
        instance: InstanceId::parse("i-0123456789abcdef0").unwrap(),
        instance_type: "m7i.large".to_owned(),
        zone: "us-east-1a".to_owned(),
        region: Some("us-east-1".to_owned()),
        network_interfaces: 1,
        other_volumes: 0,
        outpost: None,
        source: Source::Imds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outpost_is_parsed_only_from_valid_arn() {
        let good = "arn:aws:outposts:us-west-2:123456789012:outpost/op-1a2b";
        assert_eq!(Outpost::parse(good).unwrap().id, "op-1a2b");
        for bad in [
            "",
            "arn:aws:outposts:us-west-2:123456789012:site/op-1",
            "arn:aws:ec2:us-west-2:123456789012:outpost/op-1",
            "arn:aws:outposts::123456789012:outpost/op-1",
            "arn:aws:outposts:us-west-2:123456789012:outpost/op 1",
            "outpost/op-1",
        ] {
            assert_eq!(Outpost::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn outpost_node_topology_has_outpost_segments() {
        let own = |pairs: &[(&str, &str)]| -> HashMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let mut wanted = own(&[(ZONE, "us-east-1a"), (DRIVER_ZONE, "us-east-1a"), (OS, "linux")]);
        assert_eq!(example().topology(), wanted);
        let arn = "arn:aws:outposts:us-west-2:123456789012:outpost/op-0123456789abcdef0";
        wanted.extend(own(&[
            (OUTPOST_REGION, "us-west-2"),
            (OUTPOST_PARTITION, "aws"),
            (OUTPOST_ACCOUNT, "123456789012"),
            (OUTPOST_ID, "op-0123456789abcdef0"),
        ]));
        let outpost = Outpost::parse(arn);
        assert_eq!(NodeFacts { outpost, ..example() }.topology(), wanted);
    }

    #[test]
    fn unknown_node_error_explains_each_failed_source() {
        let dir = tempfile::tempdir().unwrap();
        let error = read(&Sources {
            order: vec![Source::Imds, Source::Kubernetes],
            imds: Err("AWS_EC2_METADATA_DISABLED is true".to_owned()),
            dmi: dir.path().to_owned(),
            files: Vec::new(),
            timeout: Duration::ZERO,
        })
        .unwrap_err()
        .to_string();
        for words in ["imds: AWS_EC2_METADATA_DISABLED", "kubernetes: ", "--node-facts-file"] {
            assert!(error.contains(words), "{error}");
        }
    }
}
