//! How many volumes EC2 says that an instance takes, as node-lifecycle writes it for the
//! node-agent.

use std::fmt;

use ebs_csi_wire::InstanceId;

/// Annotation of a node-agent's pod: an [`AttachLimit`]. node-lifecycle writes it.
pub const ATTACH_LIMIT: &str = "ebs.csi.aws.com/attach-limit";

/// The most slots that count as a limit. EC2's largest types have 128.
const MOST: u32 = 1000;

/// The attachment slots of one instance of one type, as EC2 says. An instance keeps its id when its
/// type is changed, so both are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachLimit {
    /// The number of slots, that of the root volume included: 1 to 1000.
    limit: u32,
    /// Network interfaces also use these slots.
    pub shared: bool,
    /// The instance type.
    pub instance_type: String,
    /// The instance.
    pub instance: InstanceId,
}

impl AttachLimit {
    /// Returns the limit of an instance; `None` when the number is none that counts as a limit.
    pub fn new(
        limit: u32,
        shared: bool,
        instance_type: &str,
        instance: InstanceId,
    ) -> Option<Self> {
        let instance_type = instance_type.to_owned();
        (1..=MOST).contains(&limit).then_some(Self { limit, shared, instance_type, instance })
    }

    /// Parses exactly what [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (limit, kind) = (words.next()?, words.next()?);
        let (instance_type, instance) = (words.next()?, words.next()?);
        let instance = InstanceId::parse(instance).ok()?;
        let found = Self::new(limit.parse().ok()?, kind == SHARED, instance_type, instance)?;
        // Refuses other kinds, signs and leading zeros, too.
        (found.to_string() == text).then_some(found)
    }

    /// Returns the number of slots: 1 to 1000.
    pub const fn limit(&self) -> u32 {
        self.limit
    }
}

const SHARED: &str = "shared";

impl fmt::Display for AttachLimit {
    /// Writes `LIMIT KIND TYPE INSTANCE`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, shared, instance_type, instance } = self;
        let kind = if *shared { SHARED } else { "dedicated" };
        write!(f, "{limit} {kind} {instance_type} {instance}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "i-0123456789abcdef0";

    #[test]
    fn hostile_annotation_is_no_limit() {
        let good = format!("100 dedicated z9.large {ID}");
        let found = AttachLimit::parse(&good).unwrap();
        assert_eq!((found.limit(), found.shared), (100, false));
        let bad_limits = "0|-1|1001|1000000000|4294967296|99999999999999999999|+5|05|1e3|0x10|| 5|5.0|\u{665}|all";
        for limit in bad_limits.split('|') {
            let text = format!("{limit} dedicated z9.large {ID}");
            assert_eq!(AttachLimit::parse(&text), None, "{text:?}");
        }
        for text in [
            "",
            "100",
            "100 dedicated",
            "100 dedicated z9.large",
            "100 dedicated z9.large i-",
            "100 dedicated z9.large I-0123456789ABCDEF0",
            "100 Shared z9.large i-0123456789abcdef0",
            "100 both z9.large i-0123456789abcdef0",
            "100 dedicated  z9.large i-0123456789abcdef0",
            " 100 dedicated z9.large i-0123456789abcdef0",
            "100 dedicated z9.large i-0123456789abcdef0\n",
            "100 dedicated z9.large i-0123456789abcdef0 more",
            "100\tdedicated z9.large i-0123456789abcdef0",
        ] {
            assert_eq!(AttachLimit::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn limit_is_1_to_1000() {
        let limit = |limit| AttachLimit::new(limit, true, "m5.large", ID.parse().unwrap());
        for (number, is_limit) in [(0, false), (1, true), (1000, true), (1001, false)] {
            assert_eq!(limit(number).is_some(), is_limit, "{number}");
        }
    }

    proptest! {
        #[test]
        fn parsed_limit_is_in_bounds_and_round_trips(
            text in "(\\PC{0,40}|[+-]?[0-9]{1,6} (shared|dedicated|x) [a-z0-9.-]{0,12} i-[0-9a-f]{8,17})",
        ) {
            if let Some(found) = AttachLimit::parse(&text) {
                prop_assert!((1..=1000).contains(&found.limit()));
                prop_assert_eq!(found.to_string(), text);
            }
        }

        #[test]
        fn written_limit_is_read_as_same(
            limit in any::<u32>(), shared in any::<bool>(), instance_type in "[a-z0-9-]{1,9}\\.[a-z0-9-]{1,9}",
        ) {
            let written = AttachLimit::new(limit, shared, &instance_type, ID.parse().unwrap());
            prop_assert_eq!(written.is_some(), (1..=1000).contains(&limit));
            if let Some(written) = written {
                prop_assert_eq!(AttachLimit::parse(&written.to_string()), Some(written));
            }
        }
    }
}
