//! A requested change of a volume, and the call that it needs.

use ebs_csi_ec2::{ModifyVolume, Volume};
use ebs_csi_parameters::VolumeAttributes;
use ebs_csi_parameters::tag::{IOPS_PER_GIB, RAISE_IOPS_ON_MODIFY};
use ebs_csi_proto::{Failure, GiB};
use ebs_csi_wire::VolumeId;

use crate::request::parse_go_bool;
use crate::request::tags::{TagSettings, Tags};
use crate::volume::iops::IopsLimits;
use crate::volume::wanted_iops;

/// A requested change; fields that are not given stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) size: Option<GiB>,
    pub(super) kind: Option<String>,
    pub(super) iops: Option<u32>,
    pub(super) throughput: Option<u32>,
    pub(super) iops_per_gib: Option<u32>,
    pub(super) raise: Option<bool>,
    pub(super) tags: Option<Tags>,
    pub(super) tag_deletions: Option<Vec<String>>,
}

impl Change {
    pub(super) fn to_size(size: GiB) -> Self {
        Self { size: Some(size), ..Self::default() }
    }

    pub(super) fn to_attributes(attributes: VolumeAttributes) -> Result<Self, Failure> {
        let tags = TagSettings::of_modification(&attributes)?;
        Ok(Self {
            size: None,
            kind: attributes.volume_type,
            iops: attributes.iops,
            throughput: attributes.throughput,
            iops_per_gib: attributes.iops_per_gib,
            raise: attributes.raise_iops_on_modify,
            tags: Some(tags).filter(|tags| !tags.is_empty()),
            tag_deletions: Some(attributes.tag_deletions).filter(|keys| !keys.is_empty()),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn size_alone(&self) -> Self {
        Self { size: self.size, ..Self::default() }
    }

    pub(super) fn without_size(&self) -> Self {
        Self { size: None, ..self.clone() }
    }

    /// Merges the other change into this one.
    ///
    /// # Errors
    /// The name of the field for which both give different values; this change then stays
    /// unchanged.
    pub(super) fn merge(&mut self, other: &Self) -> Result<(), &'static str> {
        fn merge_field<T: Clone + PartialEq>(
            mine: &Option<T>,
            theirs: &Option<T>,
            name: &'static str,
        ) -> Result<Option<T>, &'static str> {
            match (mine, theirs) {
                (Some(mine), Some(theirs)) if mine != theirs => Err(name),
                (Some(value), _) | (None, Some(value)) => Ok(Some(value.clone())),
                (None, None) => Ok(None),
            }
        }
        *self = Self {
            size: merge_field(&self.size, &other.size, "size")?,
            kind: merge_field(&self.kind, &other.kind, "type")?,
            iops: merge_field(&self.iops, &other.iops, "iops")?,
            throughput: merge_field(&self.throughput, &other.throughput, "throughput")?,
            iops_per_gib: merge_field(&self.iops_per_gib, &other.iops_per_gib, "iopspergb")?,
            raise: merge_field(&self.raise, &other.raise, "allowautoiopsincreaseonmodify")?,
            tags: merge_field(&self.tags, &other.tags, "tags")?,
            tag_deletions: merge_field(&self.tag_deletions, &other.tag_deletions, "tag deletions")?,
        };
        Ok(())
    }

    pub(super) fn covers(&self, other: &Self) -> bool {
        let mut merged = self.clone();
        merged.merge(other).is_ok() && merged == *self
    }

    /// Returns the IOPS that the volume gets: the explicit value or the requested ratio, as in a
    /// create; otherwise the ratio of the volume's tags, if the request or the volume's tags allow
    /// a change to apply that ratio again.
    ///
    /// # Errors
    /// A tag of the volume that cannot be parsed.
    pub(super) fn wanted_iops(&self, volume: &Volume) -> Result<Option<u32>, Failure> {
        if self.iops.is_some() {
            return Ok(self.iops);
        }
        let size = self.size.unwrap_or(volume.size).max(volume.size);
        if self.iops_per_gib.is_some() {
            return wanted_iops(None, self.iops_per_gib, size);
        }
        let Some(ratio) = volume.tags.get(IOPS_PER_GIB) else {
            return Ok(None);
        };
        let raise = match (self.raise, volume.tags.get(RAISE_IOPS_ON_MODIFY)) {
            (Some(raise), _) => raise,
            (None, Some(tag)) => parse_go_bool(tag).ok_or_else(|| {
                Failure::invalid(
                    &format!("tag {RAISE_IOPS_ON_MODIFY} of {}", volume.id),
                    format!("{tag:?} is neither true nor false; correct the tag"),
                )
            })?,
            (None, None) => false,
        };
        if !raise {
            return Ok(None);
        }
        let ratio = ratio.parse().map_err(|_| {
            Failure::invalid(
                &format!("tag {IOPS_PER_GIB} of {}", volume.id),
                format!("{ratio:?} is not a whole number; correct the tag"),
            )
        })?;
        wanted_iops(None, Some(ratio), size)
    }

    pub(super) fn resulting_kind<'a>(&'a self, volume: &'a Volume) -> &'a str {
        self.kind.as_deref().unwrap_or(&volume.kind)
    }

    /// Returns the call that the change needs; `None` when the volume already is as requested. A
    /// volume never shrinks.
    pub(super) fn request(
        &self,
        volume: &Volume,
        wanted_iops: Option<u32>,
        limits: IopsLimits,
    ) -> Option<ModifyVolume> {
        let size = self.size.filter(|size| *size > volume.size);
        let kind = self.kind.clone().filter(|kind| !kind.eq_ignore_ascii_case(&volume.kind));
        let fitted = wanted_iops.map(|iops| limits.fit(iops, size.unwrap_or(volume.size), true));
        let iops = fitted.filter(|iops| Some(*iops) != volume.iops);
        let throughput =
            self.throughput.filter(|throughput| Some(*throughput) != volume.throughput);
        if size.is_none() && kind.is_none() && iops.is_none() && throughput.is_none() {
            return None;
        }
        Some(ModifyVolume { volume: volume.id.clone(), size, kind, iops, throughput })
    }
}

pub(super) fn has_values_of(volume: &Volume, sent: &ModifyVolume) -> bool {
    sent.size.is_none_or(|size| volume.size >= size)
        && sent.kind.as_deref().is_none_or(|kind| volume.kind.eq_ignore_ascii_case(kind))
        && sent.iops.is_none_or(|iops| volume.iops == Some(iops))
        && sent.throughput.is_none_or(|throughput| volume.throughput == Some(throughput))
}

/// Describes a change for its log line: the volume's id and the new values.
pub(super) fn describe_request(volume: &VolumeId, sent: &ModifyVolume) -> String {
    let mut words = Vec::new();
    if let Some(size) = sent.size {
        words.push(size.to_string());
    }
    words.extend(sent.kind.clone());
    words.extend(sent.iops.map(|iops| format!("{iops} IOPS")));
    words.extend(sent.throughput.map(|throughput| format!("{throughput} MiB/s")));
    format!("{volume} to {}", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::example_volume;
    use proptest::prelude::*;

    fn gp3() -> Volume {
        Volume { size: GiB(10), iops: Some(3000), throughput: Some(125), ..example_volume() }
    }

    fn send(change: &Change, volume: &Volume) -> Option<ModifyVolume> {
        let iops = change.wanted_iops(volume).unwrap();
        let limits = IopsLimits::of(change.resulting_kind(volume));
        change.request(volume, iops, limits)
    }

    #[test]
    fn modify_request_contains_only_changed_values() {
        // Size, type, IOPS and throughput: what is requested, and what is sent.
        let rows = [
            ((Some(10), None, None, None), None),
            ((Some(5), None, None, None), None),
            ((Some(11), None, None, None), Some((Some(11), None, None, None))),
            ((None, Some("GP3"), Some(3000), Some(125)), None),
            (
                (Some(20), Some("io2"), Some(4000), None),
                Some((Some(20), Some("io2"), Some(4000), None)),
            ),
            // Capped by size: 500 for each of 10 GiB.
            ((None, None, Some(9000), None), Some((None, None, Some(5000), None))),
            // Below the minimum: raised to the minimum, so nothing differs.
            ((None, None, Some(100), None), None),
        ];
        for ((size, kind, iops, throughput), want) in rows {
            let (size, kind) = (size.map(GiB), kind.map(str::to_owned));
            let change = Change { size, kind, iops, throughput, ..Change::default() };
            let want = want.map(|(size, kind, iops, throughput)| ModifyVolume {
                volume: gp3().id,
                size: size.map(GiB),
                kind: kind.map(str::to_owned),
                iops,
                throughput,
            });
            assert_eq!(send(&change, &gp3()), want, "{change:?}");
        }
    }

    /// A ratio in the request always applies, a ratio in a tag only with permission, and an
    /// explicit rate wins over the tag.
    #[test]
    fn iops_ratio_applies_if_request_or_volume_allows() {
        let tagged = |raise: &str, ratio: &str| {
            let mut volume = Volume { kind: "io2".to_owned(), iops: Some(100), ..gp3() };
            volume.tags.insert(RAISE_IOPS_ON_MODIFY.to_owned(), raise.to_owned());
            volume.tags.insert(IOPS_PER_GIB.to_owned(), ratio.to_owned());
            volume
        };
        let grow = Change::to_size(GiB(20));
        assert_eq!(grow.wanted_iops(&gp3()), Ok(None));
        for (raise, iops) in [
            ("true", Some(1000)),
            ("True", Some(1000)),
            ("1", Some(1000)),
            ("false", None),
            ("F", None),
        ] {
            let wanted = grow.wanted_iops(&tagged(raise, "50"));
            assert_eq!(wanted, Ok(iops), "{raise}");
        }
        assert!(grow.wanted_iops(&tagged("yes", "50")).is_err());
        assert!(grow.wanted_iops(&tagged("true", "many")).is_err());
        let explicit = Change { iops: Some(7), ..grow.clone() };
        assert_eq!(explicit.wanted_iops(&tagged("true", "50")), Ok(Some(7)));
        for raise in [None, Some(true), Some(false)] {
            let change = Change { iops_per_gib: Some(9), raise, ..Change::default() };
            assert_eq!(change.wanted_iops(&gp3()), Ok(Some(90)), "{raise:?}");
        }
        let allowed = Change { raise: Some(true), ..grow.clone() };
        assert_eq!(allowed.wanted_iops(&tagged("false", "50")), Ok(Some(1000)));
    }

    #[test]
    fn changes_merge_unless_they_contradict() {
        let mut both = Change::to_size(GiB(20));
        both.merge(&Change { iops: Some(4000), ..Change::default() }).unwrap();
        assert_eq!((both.size, both.iops), (Some(GiB(20)), Some(4000)));
        assert!(both.covers(&Change::to_size(GiB(20))) && both.covers(&Change::default()));
        assert!(!both.covers(&Change::to_size(GiB(21))));
        let before = both.clone();
        assert_eq!(
            both.merge(&Change { iops: Some(5000), throughput: Some(200), ..Change::default() }),
            Err("iops")
        );
        assert_eq!(both, before);
    }

    prop_compose! {
        fn change()(size in proptest::option::of(1u32..4), iops in proptest::option::of(1u32..4), throughput in proptest::option::of(1u32..4), kind in proptest::option::of("gp3|io2")) -> Change {
            Change { size: size.map(GiB), iops, throughput, kind, ..Change::default() }
        }
    }

    proptest! {
        #[test]
        fn merge_is_commutative_and_covers_both_changes(a in change(), b in change()) {
            let (mut ab, mut ba) = (a.clone(), b.clone());
            let (left, right) = (ab.merge(&b), ba.merge(&a));
            prop_assert_eq!(left.is_ok(), right.is_ok());
            if left.is_ok() {
                prop_assert_eq!(&ab, &ba);
                prop_assert!(ab.covers(&a) && ab.covers(&b));
            }
        }
    }
}
