//! The latest modification of each volume.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ebs_csi_wire::VolumeId;
use tokio::time::Instant;

use super::by_id::ById;
use super::page::filter;
use super::poller::Source;
use super::{Described, describe_by_ids, describe_every_page, to_strings};
use crate::calls::Action;
use crate::error::Ec2Error;
use crate::error::code::Ec2ErrorKind;
use crate::expiring_cache::ExpiringCache;
use crate::model::LookResult;
use crate::model::modification::Modification;
use crate::sdk::call::{Core, Tries};

/// Modifications by volume; a volume that was never modified is absent.
///
/// A call by id fails for each volume that was never modified, and of a hundred new volumes EC2's
/// error names one at a time. So volumes of which no modification was seen are asked for by filter.
/// That is cheap: modifications are few, and none is older than a month.
#[derive(Clone)]
pub(crate) struct Modifications {
    core: Arc<Core>,
    by_id: ById,
    /// Volumes of which a modification was seen.
    modified: ExpiringCache<()>,
}

/// How long a modification is remembered; EC2 keeps it for longer.
const MODIFIED_TTL: Duration = Duration::from_secs(24 * 3600);

impl Modifications {
    pub(crate) fn new(core: Arc<Core>, by_id: ById) -> Self {
        Self { core, by_id, modified: ExpiringCache::default() }
    }

    async fn describe_known(
        &self,
        keys: &[VolumeId],
        deadline: Instant,
    ) -> BTreeMap<VolumeId, LookResult<Modification>> {
        describe_by_ids(&self.core, &self.by_id, keys, deadline).await
    }
}

/// Returns the modification that began last, for each volume.
pub(super) fn latest(found: Vec<Modification>) -> Vec<Modification> {
    let mut latest: BTreeMap<VolumeId, Modification> = BTreeMap::new();
    for modification in found {
        match latest.get(&modification.volume) {
            Some(known) if known.started > modification.started => {}
            _ => {
                latest.insert(modification.volume.clone(), modification);
            }
        }
    }
    latest.into_values().collect()
}

impl Source for Modifications {
    type Key = VolumeId;
    type Value = Modification;
    const ACTION: Action = Modification::ACTION;

    async fn fetch(
        &self,
        keys: &[VolumeId],
        deadline: Instant,
    ) -> Result<BTreeMap<VolumeId, LookResult<Modification>>, Ec2Error> {
        let (modified, others): (Vec<_>, Vec<_>) =
            keys.iter().cloned().partition(|key| self.modified.get(key.as_str()).is_some());
        let (mut answers, found) = tokio::join!(self.describe_known(&modified, deadline), async {
            match others.is_empty() {
                true => Ok(Vec::new()),
                false => {
                    let filters = [filter("volume-id", to_strings(&others))];
                    describe_every_page(&self.core, &filters, deadline, Tries::One).await
                }
            }
        });
        match found {
            Ok(found) => answers.extend(latest(found).into_iter().map(|modification| {
                (modification.volume.clone(), LookResult::Present(modification))
            })),
            // EC2 fails a call without ids while any zone is impaired.
            Err(error) if error.kind == Ec2ErrorKind::ServerError => {
                answers.extend(self.describe_known(&others, deadline).await);
            }
            Err(error) => {
                answers.extend(
                    others.into_iter().map(|key| (key, LookResult::Unknown(error.clone()))),
                );
            }
        }
        for (key, result) in &answers {
            if matches!(result, LookResult::Present(_)) {
                self.modified.put(key.as_str(), (), MODIFIED_TTL);
            }
        }
        Ok(answers)
    }
}
