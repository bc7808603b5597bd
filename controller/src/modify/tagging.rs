//! The tags of a volume that a change sets and deletes.

use ebs_csi_ec2::{Call, Ec2, Ec2ErrorKind, Volume};
use ebs_csi_parameters::tag::IOPS_PER_GIB;
use ebs_csi_proto::Failure;
use ebs_csi_wire::VolumeId;

use super::change::Change;
use crate::request::tags::Tags;

/// The most tags of one resource; those of AWS itself (`aws:`) do not count (EC2 user guide, "Tag
/// restrictions").
const MAX_TAGS: usize = 50;
/// The most characters of a key and of a value.
const MAX_LENGTHS: (usize, usize) = (128, 256);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tagging {
    set: Tags,
    delete: Vec<String>,
    /// Whether an explicit rate ends the ratio with which the volume was created.
    ends_ratio: bool,
}

impl Tagging {
    /// Returns what the change means for the tags of this volume. A tag that is also set is not
    /// deleted. An explicit rate deletes the ratio with which the volume was created, as it does in
    /// a create; otherwise the next growth would undo the rate. Nobody requested that deletion, so
    /// the change does not depend on it.
    ///
    /// # Errors
    /// Tags that EC2 does not accept, before anything is changed.
    pub(super) fn of(change: &Change, volume: &Volume) -> Result<Self, Failure> {
        let set = change.tags.clone().unwrap_or_default();
        let mut delete = change.tag_deletions.clone().unwrap_or_default();
        delete.retain(|key| !set.contains_key(key));
        delete.sort_unstable();
        delete.dedup();
        let has_ratio = volume.tags.contains_key(IOPS_PER_GIB);
        let is_requested =
            set.contains_key(IOPS_PER_GIB) || delete.iter().any(|k| k == IOPS_PER_GIB);
        let tagging =
            Self { set, delete, ends_ratio: change.iops.is_some() && has_ratio && !is_requested };
        tagging.check(volume)?;
        Ok(tagging)
    }

    fn check(&self, volume: &Volume) -> Result<(), Failure> {
        let refuse =
            |reason: String| Err(Failure::invalid("mutable_parameters.tagSpecification", reason));
        for (key, value) in &self.set {
            if key.starts_with("aws:") {
                return refuse(format!(
                    "the tag {key:?}: keys that begin with aws: are AWS's own; use another key"
                ));
            }
            if key.chars().count() > MAX_LENGTHS.0 || value.chars().count() > MAX_LENGTHS.1 {
                return refuse(format!(
                    "the tag {:?}: a key has at most {} characters and a value {}; shorten it",
                    key.chars().take(MAX_LENGTHS.0).collect::<String>(),
                    MAX_LENGTHS.0,
                    MAX_LENGTHS.1
                ));
            }
        }
        let kept = volume
            .tags
            .keys()
            .filter(|key| !key.starts_with("aws:") && !self.delete.contains(key))
            .filter(|key| !self.set.contains_key(*key));
        let total = kept.count() + self.set.len();
        if !self.set.is_empty() && total > MAX_TAGS {
            return refuse(format!(
                "volume {} would have {total} tags, and EC2 takes {MAX_TAGS}; set fewer, or delete some (tagDeletion_N)",
                volume.id
            ));
        }
        Ok(())
    }

    /// Returns how many calls change the tags that the request names.
    pub(super) fn calls(&self) -> usize {
        usize::from(!self.set.is_empty()) + usize::from(!self.delete.is_empty())
    }

    pub(super) fn has_changes(&self) -> bool {
        self.calls() > 0 || self.ends_ratio
    }

    /// Asks EC2 whether the role may change the tags, so that nothing is changed when it may not.
    ///
    /// # Errors
    /// A missing permission, by name; and EC2's errors.
    pub(super) async fn dry_run(
        &self,
        ec2: &Ec2,
        call: &Call,
        id: &VolumeId,
    ) -> Result<(), Failure> {
        ec2.may_change_tags(call, id.as_str(), &self.set, &self.delete)
            .await
            .map_err(|error| Failure::from(error).context("nothing is changed"))
    }

    pub(super) async fn carry_out(
        &self,
        ec2: &Ec2,
        call: &Call,
        id: &VolumeId,
    ) -> Result<(), Failure> {
        ec2.delete_tags(call, id.as_str(), &self.delete).await?;
        ec2.create_tags(call, id.as_str(), &self.set).await?;
        if !self.ends_ratio {
            return Ok(());
        }
        match ec2.delete_tags(call, id.as_str(), &[IOPS_PER_GIB.to_owned()]).await {
            Err(error) if error.kind == Ec2ErrorKind::Unauthorized => {
                tracing::warn!(%error, volume.id = id.as_str(), tag = IOPS_PER_GIB, "the tag stays: the next growth may change the IOPS by its ratio");
                Ok(())
            }
            deleted => Ok(deleted?),
        }
    }
}

#[cfg(test)]
mod tests {
    use ebs_csi_proto::Condition;

    use super::*;
    use crate::example::example_volume;

    fn tags(keys: &[&str]) -> Tags {
        keys.iter().map(|key| ((*key).to_owned(), "v".to_owned())).collect()
    }

    fn with(keys: &[&str]) -> Volume {
        Volume { tags: tags(keys), ..example_volume() }
    }

    /// A tag both set and deleted in one change is set. An explicit rate ends the ratio of a volume
    /// that has one.
    #[test]
    fn set_wins_over_delete_and_iops_ends_ratio() {
        let change = Change {
            tags: Some(tags(&["a"])),
            tag_deletions: Some(vec!["b".to_owned(), "a".to_owned(), "b".to_owned()]),
            iops: Some(4000),
            ..Change::default()
        };
        let tagging = Tagging::of(&change, &with(&[IOPS_PER_GIB])).unwrap();
        assert_eq!(tagging.delete, ["b"]);
        assert_eq!((tagging.set.len(), tagging.calls()), (1, 2));
        assert!(tagging.ends_ratio);
        let tagging = Tagging::of(&change, &with(&[])).unwrap();
        assert!(!tagging.ends_ratio);
        let ratio = Change { tags: Some(tags(&[IOPS_PER_GIB])), ..Change::default() };
        let tagging = Tagging::of(&ratio, &with(&[IOPS_PER_GIB])).unwrap();
        assert_eq!((tagging.delete.len(), tagging.calls()), (0, 1));
        assert!(!tagging.ends_ratio);
        let nothing = Tagging::of(&Change::default(), &with(&["x"])).unwrap();
        assert_eq!(nothing.calls(), 0);
    }

    #[test]
    fn tags_ec2_rejects_are_refused_before_any_change() {
        let many: Vec<String> = (0..49).map(|n| format!("t{n}")).collect();
        let mut full = with(&many.iter().map(String::as_str).collect::<Vec<_>>());
        full.tags.insert("aws:x".to_owned(), "y".to_owned());
        let set = |keys: &[&str]| Change { tags: Some(tags(keys)), ..Change::default() };
        assert!(Tagging::of(&set(&["new"]), &full).is_ok());
        assert!(Tagging::of(&set(&["new", "t0"]), &full).is_ok());
        let swap = Change { tag_deletions: Some(vec!["t0".to_owned()]), ..set(&["new", "newer"]) };
        assert!(Tagging::of(&swap, &full).is_ok());
        let long = "k".repeat(129);
        for (keys, words) in [
            (&["new", "newer"] as &[&str], "51 tags"),
            (&["aws:mine"], "AWS's own"),
            (&[long.as_str()], "at most 128 characters"),
        ] {
            let refused = Tagging::of(&set(keys), &full).unwrap_err();
            assert_eq!(refused.condition(), Condition::InvalidField);
            assert!(refused.text().contains(words), "{refused}");
        }
    }
}
