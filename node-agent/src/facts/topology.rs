//! The node's location, in the keys that the scheduler and the controller compare.

use std::collections::HashMap;

use ebs_csi_proto::keys::topology::{
    DRIVER_ZONE, OUTPOST_ACCOUNT, OUTPOST_ID, OUTPOST_PARTITION, OUTPOST_REGION, ZONE,
};

use super::NodeFacts;

/// The operating system.
const OS: &str = "kubernetes.io/os";

/// The segments of `NodeGetInfo`.
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
    fn outpost_node_topology_has_outpost_segments() {
        let own = |pairs: &[(&str, &str)]| -> HashMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let mut wanted = own(&[(ZONE, "us-east-1a"), (DRIVER_ZONE, "us-east-1a"), (OS, "linux")]);
        assert_eq!(segments(&example()), wanted);
        let arn = "arn:aws:outposts:us-west-2:123456789012:outpost/op-0123456789abcdef0";
        wanted.extend(own(&[
            (OUTPOST_REGION, "us-west-2"),
            (OUTPOST_PARTITION, "aws"),
            (OUTPOST_ACCOUNT, "123456789012"),
            (OUTPOST_ID, "op-0123456789abcdef0"),
        ]));
        assert_eq!(segments(&NodeFacts { outpost: Outpost::parse(arn), ..example() }), wanted);
    }
}
