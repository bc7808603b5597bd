//! The tags that the driver sets on what it creates. IAM policies, look-ups and other clusters'
//! tools rely on every byte.

use std::collections::BTreeMap;

use ebs_csi_ec2::OwnTags;
use ebs_csi_parameters::tag::{
    CLUSTER, CLUSTER_NAME, IOPS_PER_GIB, RAISE_IOPS_ON_MODIFY, SNAPSHOT_NAME, VOLUME_NAME,
    is_reserved,
};
use ebs_csi_parameters::{SnapshotParameters, VolumeAttributes, VolumeParameters, render_tag};
use ebs_csi_proto::Failure;
use ebs_csi_template::{self as template, Fields, TemplateError};

/// Tags in sorted order, so that the same request has the same bytes.
pub type Tags = BTreeMap<String, String>;

/// The settings for all sets of tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TagSettings {
    /// `--extra-tags`: set on everything that is created; they override those of a class.
    pub extra: Tags,
    /// `--k8s-tag-cluster-id`.
    pub cluster_id: Option<String>,
    /// `--warn-on-invalid-tag`: omit an invalid tag instead of refusing the request.
    pub warn_on_invalid: bool,
}

impl TagSettings {
    /// Parses `--extra-tags`, `key=value,key=value`, like the Go driver: spaces around key and
    /// value are removed, and the last value of a key wins.
    ///
    /// # Errors
    /// One line that names the fault: an entry without `=` or without a key; and, unless
    /// `warn_on_invalid` has them left out, a reserved key, or a template that cannot be parsed.
    /// Whether the template fits a claim is known only when there is a claim.
    pub(crate) fn parse_extra(text: &str, warn_on_invalid: bool) -> Result<Tags, String> {
        let mut tags = Tags::new();
        for entry in text.split(',').filter(|entry| !entry.is_empty()) {
            let (key, value) = entry
                .split_once('=')
                .map(|(key, value)| (key.trim(), value.trim()))
                .ok_or_else(|| format!("{entry:?} is not key=value"))?;
            if key.is_empty() {
                return Err(format!("{entry:?} has no key"));
            }
            let checked = match is_reserved(key) {
                true => Err(format!("the tag {key:?} is the driver's own; use another key")),
                false => template::check(value).map_err(|e| format!("{entry:?}: {e}")),
            };
            match checked {
                Ok(()) => {
                    tags.insert(key.to_owned(), value.to_owned());
                }
                Err(why) if warn_on_invalid => tracing::warn!(tag = key, why, "left out"),
                Err(why) => return Err(why),
            }
        }
        Ok(tags)
    }

    /// Returns the tags that every creating request must carry, because IAM policies refuse it
    /// otherwise.
    pub(crate) fn identity(&self) -> Tags {
        let mut tags = Tags::from([(CLUSTER.to_owned(), "true".to_owned())]);
        if let Some(id) = &self.cluster_id {
            tags.insert(CLUSTER_NAME.to_owned(), id.clone());
            tags.insert(format!("kubernetes.io/cluster/{id}"), "owned".to_owned());
        }
        tags
    }

    /// Returns how the cluster's own volumes are recognized: by the cluster's tag if the cluster
    /// has an id (volumes of older releases of the Go driver have that tag too), otherwise by the
    /// tag of all volumes that this driver created, in any cluster.
    pub(crate) fn of_own_volumes(&self) -> OwnTags {
        OwnTags {
            key: VOLUME_NAME,
            owner: match &self.cluster_id {
                Some(id) => (format!("kubernetes.io/cluster/{id}"), "owned".to_owned()),
                None => (CLUSTER.to_owned(), "true".to_owned()),
            },
        }
    }

    /// Returns whether a volume or snapshot with these tags was created by this driver, or by the
    /// Go driver, for this cluster; without a cluster id, for any cluster of the account.
    pub(crate) fn are_own(&self, tags: &Tags) -> bool {
        let (key, value) = self.of_own_volumes().owner;
        let named = [VOLUME_NAME, SNAPSHOT_NAME].iter().any(|name| tags.contains_key(*name));
        named && tags.get(&key) == Some(&value)
    }

    /// Returns the tags of a volume.
    ///
    /// Later ones override earlier ones: the driver's, the cluster's, the StorageClass's, the
    /// VolumeAttributesClass's, `--extra-tags`.
    ///
    /// # Errors
    /// A tag that is not `key=value`, is reserved, or whose template fails (the last two are
    /// omitted under `--warn-on-invalid-tag`).
    pub(crate) fn of_volume(
        &self,
        name: &str,
        class: &VolumeParameters,
        attributes: &VolumeAttributes,
    ) -> Result<Tags, Failure> {
        let mut tags = self.identity();
        tags.insert(VOLUME_NAME.to_owned(), name.to_owned());
        if let Some(id) = &self.cluster_id {
            tags.insert("Name".to_owned(), format!("{id}-dynamic-{name}"));
            tags.insert("KubernetesCluster".to_owned(), id.clone());
        }
        for (key, value) in [
            ("pvc/name", &class.claim.name),
            ("pvc/namespace", &class.claim.namespace),
            ("pv/name", &class.claim.volume),
        ] {
            if !value.is_empty() {
                tags.insert(format!("kubernetes.io/created-for/{key}"), value.clone());
            }
        }
        let claim = attributes.claim.clone().or(&class.claim);
        tags.extend(self.user_tags("parameters", &class.tags, &claim)?);
        for key in &attributes.tag_deletions {
            tags.remove(key);
        }
        tags.extend(self.user_tags("mutable_parameters", &attributes.tags, &claim)?);
        for (key, value) in &self.extra {
            match template::render(value, &claim) {
                Ok(value) => {
                    tags.insert(key.clone(), value);
                }
                Err(error) => self.refuse_or_skip(key, &error)?,
            }
        }
        // An explicit rate of the VolumeAttributesClass overrides a ratio of the StorageClass.
        let per_gib = match attributes.iops {
            Some(_) => None,
            None => attributes.iops_per_gib.or(class.iops_per_gib),
        };
        let raise = attributes.raise_iops_on_modify.or(class.raise_iops_on_modify);
        tags.extend(iops_tags(per_gib, raise));
        Ok(tags)
    }

    /// Returns the tags of a snapshot, in the same order: the driver's, the cluster's, the class's,
    /// `--extra-tags` (as written: the fields of their templates are a volume's).
    pub(crate) fn of_snapshot(
        &self,
        name: &str,
        class: &SnapshotParameters,
    ) -> Result<Tags, Failure> {
        let mut tags = self.identity();
        tags.insert(SNAPSHOT_NAME.to_owned(), name.to_owned());
        if let Some(id) = &self.cluster_id {
            tags.insert("Name".to_owned(), format!("{id}-dynamic-{name}"));
        }
        tags.extend(self.user_tags("parameters", &class.tags, &class.claim)?);
        tags.extend(self.extra.clone());
        Ok(tags)
    }

    /// Returns the tags that a modification sets.
    ///
    /// # Errors
    /// As [`TagSettings::of_volume`], and strict whatever the settings, since the volume keeps its
    /// tags.
    pub(crate) fn of_modification(attributes: &VolumeAttributes) -> Result<Tags, Failure> {
        let strict = Self::default();
        let mut tags =
            strict.user_tags("mutable_parameters", &attributes.tags, &attributes.claim)?;
        tags.extend(iops_tags(attributes.iops_per_gib, attributes.raise_iops_on_modify));
        Ok(tags)
    }

    fn user_tags(
        &self,
        list: &str,
        specifications: &[String],
        fields: &dyn Fields,
    ) -> Result<Tags, Failure> {
        let mut tags = Tags::new();
        for specification in specifications {
            match render_tag(list, specification, fields) {
                Ok((key, value)) => {
                    tags.insert(key, value);
                }
                Err(failure) if self.warn_on_invalid && specification.contains('=') => {
                    tracing::warn!(tag = specification, %failure, "left out");
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(tags)
    }

    fn refuse_or_skip(&self, key: &str, error: &TemplateError) -> Result<(), Failure> {
        if self.warn_on_invalid {
            tracing::warn!(tag = key, %error, "left out");
            return Ok(());
        }
        Err(Failure::invalid("--extra-tags", format!("{key}: {error}")))
    }
}

fn iops_tags(per_gib: Option<u32>, raise: Option<bool>) -> impl Iterator<Item = (String, String)> {
    let per_gib = per_gib.map(|rate| (IOPS_PER_GIB.to_owned(), rate.to_string()));
    let raise = raise.map(|raise| (RAISE_IOPS_ON_MODIFY.to_owned(), raise.to_string()));
    per_gib.into_iter().chain(raise)
}

#[cfg(test)]
mod tests;
