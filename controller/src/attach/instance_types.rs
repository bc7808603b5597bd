//! What EC2 says of instance types: how many EBS cards they have, one of which an attach names when
//! there are several, and how many volumes they take.

use std::sync::Arc;
use std::time::Duration;

use ebs_csi_ec2::{Call, Ec2, ExpiringCache, InstanceType, Slots};
use tokio::sync::Mutex;

/// How long an answer of EC2 is valid: types do not change.
const ANSWER_TTL: Duration = Duration::from_hours(24);
const GUESS_TTL: Duration = Duration::from_secs(300);

/// Families whose largest sizes have two cards (EC2 instance types page), for a role that may not
/// call DescribeInstanceTypes.
const TWO_CARDS: [(&str, &[&str]); 2] = [
    ("48xlarge metal-48xl", &["c8gb", "c8gn", "m8gb", "m8gn", "r8gb", "r8gn"]),
    (
        "96xlarge metal-96xl",
        &["c8ib", "c8in", "m8ib", "m8in", "m8idb", "m8idn", "r8ib", "r8in", "r8idb", "r8idn"],
    ),
];

#[derive(Clone, Copy, Debug)]
struct Known {
    /// At least 1.
    cards: u32,
    slots: Option<Slots>,
}

impl Known {
    fn guessed(instance_type: &str) -> Self {
        Self { cards: guessed_cards(instance_type), slots: None }
    }
}

impl From<InstanceType> for Known {
    fn from(InstanceType { cards, slots, .. }: InstanceType) -> Self {
        Self { cards, slots }
    }
}

/// What is known of instance types. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct InstanceTypes {
    known: ExpiringCache<Known>,
    /// Held while EC2 is asked, so that concurrent callers find the answer.
    asking: Arc<Mutex<()>>,
}

impl InstanceTypes {
    /// Returns the number of EBS cards of a type, at least 1.
    pub(super) async fn cards(&self, ec2: &Ec2, call: &Call, instance_type: &str) -> u32 {
        self.get(ec2, call, instance_type).await.cards
    }

    /// Returns the slots for EBS volumes of a type; `None` while EC2 does not tell them.
    pub(crate) async fn slots(&self, ec2: &Ec2, call: &Call, instance_type: &str) -> Option<Slots> {
        self.get(ec2, call, instance_type).await.slots
    }

    async fn get(&self, ec2: &Ec2, call: &Call, instance_type: &str) -> Known {
        let mut known = self.known.get(instance_type);
        let _asking;
        if known.is_none() {
            _asking = self.asking.lock().await;
            known = self.known.get(instance_type);
        }
        ec2.count_cache_lookup("instance_type", known.is_some());
        if let Some(known) = known {
            return known;
        }
        let (known, ttl) = match ec2.instance_type(call, instance_type).await {
            Ok(Some(found)) => (found.into(), ANSWER_TTL),
            Ok(None) => (Known::guessed(instance_type), GUESS_TTL),
            Err(error) => {
                tracing::warn!(%error, instance_type, "EC2 does not say what this instance type takes: the number of EBS cards is taken from a table");
                // The table may be older than the type, so it is kept only where EC2 refuses to
                // answer.
                let ttl = match error.is_transient() {
                    true => Duration::ZERO,
                    false => GUESS_TTL,
                };
                (Known::guessed(instance_type), ttl)
            }
        };
        self.known.put(instance_type, known, ttl);
        known
    }
}

fn guessed_cards(instance_type: &str) -> u32 {
    let two = instance_type == "g7.48xlarge"
        || instance_type.split_once('.').is_some_and(|(family, size)| {
            TWO_CARDS.iter().any(|(sizes, families)| {
                sizes.split(' ').any(|s| s == size) && families.contains(&family)
            })
        });
    if two { 2 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ebs_card_table_lists_33_instance_types() {
        for (name, cards) in [
            ("c8gb.48xlarge", 2),
            ("r8gn.metal-48xl", 2),
            ("m8idn.96xlarge", 2),
            ("r8idb.metal-96xl", 2),
            ("g7.48xlarge", 2),
            ("c8gb.24xlarge", 1),
            ("c8gb.96xlarge", 1),
            ("m5.large", 1),
            ("", 1),
        ] {
            assert_eq!(guessed_cards(name), cards, "{name}");
        }
        let listed: usize = TWO_CARDS
            .iter()
            .map(|(sizes, families)| sizes.split(' ').count() * families.len())
            .sum();
        assert_eq!(listed + 1, 33);
    }
}
