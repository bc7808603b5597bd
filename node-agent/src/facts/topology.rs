//! The node's location, in the keys that the scheduler and the controller compare.

use std::collections::HashMap;

use super::NodeFacts;

/// Kubernetes' own zone key.
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
/// The driver's older zone key; still sent, because existing volumes have it.
pub(crate) const DRIVER_ZONE: &str = "topology.ebs.csi.aws.com/zone";
/// The operating system.
pub(crate) const OS: &str = "kubernetes.io/os";
/// Region of an Outpost.
pub(crate) const OUTPOST_REGION: &str = "topology.ebs.csi.aws.com/region";
/// Partition (`aws`, `aws-cn`, …) of an Outpost.
pub(crate) const OUTPOST_PARTITION: &str = "topology.ebs.csi.aws.com/partition";
/// Account of an Outpost.
pub(crate) const OUTPOST_ACCOUNT: &str = "topology.ebs.csi.aws.com/account-id";
/// The Outpost.
pub(crate) const OUTPOST_ID: &str = "topology.ebs.csi.aws.com/outpost-id";

/// The segments of `NodeGetInfo`.
#[must_use]
pub(crate) fn segments(facts: &NodeFacts) -> HashMap<String, String> {
    let mut segments = HashMap::from([
        (ZONE.to_owned(), facts.zone.clone()),
        (DRIVER_ZONE.to_owned(), facts.zone.clone()),
        (OS.to_owned(), "linux".to_owned()),
    ]);
    if let Some(outpost) = &facts.outpost {
        for (key, value) in [
            (OUTPOST_REGION, &outpost.region),
            (OUTPOST_PARTITION, &outpost.partition),
            (OUTPOST_ACCOUNT, &outpost.account),
            (OUTPOST_ID, &outpost.id),
        ] {
            segments.insert(key.to_owned(), value.clone());
        }
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Outpost, example};

    #[test]
    fn regional_node_has_zone_and_os_segments() {
        let segments = segments(&example());
        assert_eq!(segments.len(), 3);
        assert_eq!(segments[ZONE], "us-east-1a");
        assert_eq!(segments[DRIVER_ZONE], "us-east-1a");
        assert_eq!(segments[OS], "linux");
    }

    #[test]
    fn outpost_node_topology_has_outpost_segments() {
        let mut facts = example();
        facts.outpost =
            Outpost::parse("arn:aws:outposts:us-west-2:123456789012:outpost/op-0123456789abcdef0");
        let segments = segments(&facts);
        assert_eq!(segments[OUTPOST_REGION], "us-west-2");
        assert_eq!(segments[OUTPOST_PARTITION], "aws");
        assert_eq!(segments[OUTPOST_ACCOUNT], "123456789012");
        assert_eq!(segments[OUTPOST_ID], "op-0123456789abcdef0");
    }
}
