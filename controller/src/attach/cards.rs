//! How many EBS cards an instance type has. An attach names a card when there are several.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ebs_csi_ec2::{Call, Ec2};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long an answer of EC2 is valid: types do not change.
const ANSWER_TTL: Duration = Duration::from_hours(24);
/// How long a guess is valid.
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

/// The card counts by instance type, each with the end of its validity.
#[derive(Clone, Debug, Default)]
pub(super) struct Cards(Arc<Mutex<HashMap<String, (u32, Instant)>>>);

impl Cards {
    /// Returns the number of cards of a type, at least 1.
    pub(super) async fn count_of(&self, ec2: &Ec2, call: &Call, instance_type: &str) -> u32 {
        // Held while EC2 is asked, so that concurrent callers find the answer.
        let mut known = self.0.lock().await;
        let now = Instant::now();
        if let Some((cards, until)) = known.get(instance_type)
            && *until > now
        {
            ec2.count_cache_lookup("instance_type", true);
            return *cards;
        }
        ec2.count_cache_lookup("instance_type", false);
        let (cards, ttl) = match ec2.instance_type(call, instance_type).await {
            Ok(Some(found)) => (found.cards, ANSWER_TTL),
            Ok(None) => (guess(instance_type), GUESS_TTL),
            Err(error) => {
                tracing::warn!(%error, instance_type, "the number of EBS cards was not learnt and is taken from a table");
                // The table may be older than the type, so it is kept only where EC2 refuses to
                // answer.
                let ttl = match error.is_transient() {
                    true => Duration::ZERO,
                    false => GUESS_TTL,
                };
                (guess(instance_type), ttl)
            }
        };
        known.insert(instance_type.to_owned(), (cards, now + ttl));
        cards
    }
}

fn guess(instance_type: &str) -> u32 {
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
            assert_eq!(guess(name), cards, "{name}");
        }
        let listed: usize = TWO_CARDS
            .iter()
            .map(|(sizes, families)| sizes.split(' ').count() * families.len())
            .sum();
        assert_eq!(listed + 1, 33);
    }
}
