//! A VolumeAttributesClass's parameters: `mutable_parameters` of CreateVolume and of
//! ControllerModifyVolume, with the same meaning in both.

use std::collections::HashMap;

use ebs_csi_proto::Failure;

use super::{
    Claim, TAG_DELETION, TAG_SPECIFICATION, check_tag, parse_boolean, parse_number,
    refuse_both_iops, sorted, unknown_key,
};
use crate::tag_key;

const LIST: &str = "mutable_parameters";
const KNOWN: &str = "type, volumeType, iops, throughput, iopspergb, allowautoiopsincreaseonmodify, tagSpecification_N and tagDeletion_N";

/// The parameters of a VolumeAttributesClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct VolumeAttributes {
    /// `type`, or its deprecated name `volumeType`.
    pub volume_type: Option<String>,
    /// `iops`.
    pub iops: Option<u32>,
    /// `throughput` in MiB/s.
    pub throughput: Option<u32>,
    /// `iopspergb`.
    pub iops_per_gib: Option<u32>,
    /// `allowautoiopsincreaseonmodify`, when given.
    pub raise_iops_on_modify: Option<bool>,
    /// Values of `tagSpecification_N`, in the order of their keys.
    pub tags: Vec<String>,
    /// Values of `tagDeletion_N`: keys of tags to delete.
    pub tag_deletions: Vec<String>,
    /// The claim, for tag templates.
    pub claim: Claim,
}

impl VolumeAttributes {
    /// Reads the parameters. Letter case matters.
    ///
    /// # Errors
    /// An unknown key, an invalid value, or the deletion of a reserved tag; the text names the key.
    pub fn parse(parameters: &HashMap<String, String>) -> Result<Self, Failure> {
        let mut parsed = Self::default();
        let mut old_name = None;
        for (key, value) in sorted(parameters) {
            match key {
                "type" => parsed.volume_type = Some(value.to_owned()).filter(|v| !v.is_empty()),
                "volumeType" => old_name = Some(value.to_owned()).filter(|v| !v.is_empty()),
                "iops" => parsed.iops = parse_number(LIST, key, value)?,
                "throughput" => parsed.throughput = parse_number(LIST, key, value)?,
                "iopspergb" => parsed.iops_per_gib = parse_number(LIST, key, value)?,
                "allowautoiopsincreaseonmodify" => {
                    parsed.raise_iops_on_modify = Some(parse_boolean(LIST, key, value)?);
                }
                _ if key.starts_with(TAG_SPECIFICATION) => {
                    parsed.tags.push(check_tag(LIST, key, value)?)
                }
                _ if key.starts_with(TAG_DELETION) => {
                    if tag_key::is_reserved(value) {
                        return Err(Failure::invalid(
                            &format!("{LIST}.{key}"),
                            format!("the tag {value:?} is the driver's own and stays"),
                        ));
                    }
                    parsed.tag_deletions.push(value.to_owned());
                }
                _ if parsed.claim.accept(key, value) => {}
                _ => return Err(unknown_key(LIST, key, KNOWN)),
            }
        }
        parsed.volume_type = parsed.volume_type.or(old_name);
        refuse_both_iops(LIST, parsed.iops, parsed.iops_per_gib)?;
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(entries: &[(&str, &str)]) -> Result<VolumeAttributes, Failure> {
        let map = entries.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        VolumeAttributes::parse(&map)
    }

    #[test]
    fn attributes_parse_and_type_overrides_volume_type() {
        let parsed = parse(&[
            ("volumeType", "io1"),
            ("type", "gp3"),
            ("iopspergb", "5"),
            ("throughput", "153"),
            ("allowautoiopsincreaseonmodify", "false"),
            ("tagSpecification_1", "a=b"),
            ("tagDeletion_1", "old"),
            ("csi.storage.k8s.io/pvc/name", "data"),
        ])
        .unwrap();
        assert_eq!(parsed.volume_type.as_deref(), Some("gp3"));
        assert_eq!((parsed.iops_per_gib, parsed.throughput), (Some(5), Some(153)));
        assert_eq!(parsed.raise_iops_on_modify, Some(false));
        assert_eq!((parsed.tags.len(), parsed.tag_deletions.len()), (1, 1));
        assert_eq!(parsed.claim.name, "data");
        assert_eq!(parse(&[("volumeType", "io1")]).unwrap().volume_type.as_deref(), Some("io1"));
        assert_eq!(parse(&[("iops", "3014"), ("throughput", "153")]).unwrap().iops, Some(3014));
    }

    #[test]
    fn invalid_attribute_is_refused_with_key_or_reason() {
        let rows: [(&[(&str, &str)], &str); 8] = [
            (&[("Type", "gp3")], "Type"),
            (&[("iopsPerGB", "1")], "iopsPerGB"),
            (&[("iops", "1"), ("iopspergb", "1")], "exclude"),
            (&[("iops", "-5")], "-5"),
            (&[("allowautoiopsincreaseonmodify", "yes")], "neither \"true\" nor \"false\""),
            (&[("tagDeletion_1", "CSIVolumeName")], "CSIVolumeName"),
            (&[("encrypted", "true")], "encrypted"),
            (
                &[("tagSpecification_1", "team")],
                "tagSpecification_1: \"team\" is not a tag; write it as key=value",
            ),
        ];
        for (entries, word) in rows {
            let failure = parse(entries).unwrap_err();
            assert!(failure.text().contains(word), "{entries:?}: {failure}");
        }
    }
}
