//! A VolumeAttributesClass's parameters: `mutable_parameters` of CreateVolume and of
//! ControllerModifyVolume, with the same meaning in both.

use std::collections::HashMap;

use ebs_csi_proto::Failure;

use crate::row::{Class, Form, Row, Store, read, rows};
use crate::storage_class::TAG_SPECIFICATION;
use crate::{Claim, refuse_both_iops, tag};

const TABLE: &[(Row, Store<VolumeAttributes>)] = &[
    (
        Row {
            key: "type",
            form: Form::Text("a volume type of EC2"),
            default: "stays",
            example: "io2",
            meaning: "The volume type; for a new volume, instead of the StorageClass's.",
            ..Row::NONE
        },
        |class, given| {
            class.volume_type = given.text();
            Ok(())
        },
    ),
    (
        Row {
            key: "volumeType",
            form: Form::Text("a volume type of EC2"),
            example: "io2",
            meaning: "The former name of `type`, which wins.",
            ..Row::NONE
        },
        |class, given| {
            // Keys are read in their order: `type` before this one.
            class.volume_type = class.volume_type.take().or_else(|| given.text());
            Ok(())
        },
    ),
    (
        Row {
            key: "iops",
            form: Form::NUMBER,
            default: "stays",
            go_driver: "with `iopsPerGB` of the StorageClass, refused for a new volume; the tag stays",
            example: "4000",
            meaning: "The IOPS; ends a ratio, whose tag is deleted.",
            ..Row::NONE
        },
        |class, given| given.number().map(|it| class.iops = it),
    ),
    (
        Row {
            key: "throughput",
            form: Form::number("MiB/s"),
            default: "stays",
            example: "250",
            meaning: "The throughput, for types that take one.",
            ..Row::NONE
        },
        |class, given| given.number().map(|it| class.throughput = it),
    ),
    (
        Row {
            key: "iopspergb",
            form: Form::NUMBER,
            go_driver: "refused for a new volume; at once only where growth raises IOPS",
            example: "50",
            meaning: "The IOPS for each GiB, at once and for later growth; not with `iops`.",
            ..Row::NONE
        },
        |class, given| given.number().map(|it| class.iops_per_gib = it),
    ),
    (
        Row {
            key: "allowautoiopsincreaseonmodify",
            form: Form::Switch,
            go_driver: "refused for a new volume",
            example: "true",
            meaning: "Whether growth raises the IOPS by the ratio; kept in a tag.",
            ..Row::NONE
        },
        |class, given| given.switch().map(|it| class.raise_iops_on_modify = Some(it)),
    ),
    (TAG_SPECIFICATION, |class, given| given.tag().map(|tag| class.tags.push(tag))),
    (
        Row {
            key: "tagDeletion_N",
            form: Form::Text("the key of a tag"),
            go_driver: "refused for a new volume",
            example: "team",
            meaning: "Deletes a tag that is not the driver's own.",
            ..Row::NONE
        },
        |class, given| {
            if tag::is_reserved(given.value) {
                return Err(given
                    .invalid(format!("the tag {:?} is the driver's own and stays", given.value)));
            }
            class.tag_deletions.push(given.value.to_owned());
            Ok(())
        },
    ),
];

/// The parameters of a VolumeAttributesClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct VolumeAttributes {
    /// `type`, or its former name `volumeType`.
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

impl Class for VolumeAttributes {
    const LIST: &'static str = "mutable_parameters";
    const ANY_CASE: bool = false;

    fn table() -> impl Iterator<Item = (Row, Store<Self>)> {
        let claim: Store<Self> = |class, given| {
            class.claim.store(given);
            Ok(())
        };
        TABLE.iter().copied().chain(Claim::ROWS.map(|row| (row, claim)))
    }
}

impl VolumeAttributes {
    /// Returns the row of each key.
    #[must_use]
    pub fn rows() -> Vec<Row> {
        rows::<Self>()
    }

    /// Reads the parameters. Letter case matters.
    ///
    /// # Errors
    /// An unknown key, an invalid value, or the deletion of a reserved tag; the text names the key.
    pub fn parse(parameters: &HashMap<String, String>) -> Result<Self, Failure> {
        let parsed = read::<Self>(parameters)?;
        refuse_both_iops(Self::LIST, parsed.iops, parsed.iops_per_gib)?;
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
            (
                &[("Type", "gp3")],
                "\"Type\" is not a parameter of this driver; known are type, volume",
            ),
            (&[("iopsPerGB", "1")], "iopsPerGB"),
            (&[("iops", "1"), ("iopspergb", "1")], "exclude"),
            (&[("iops", "-5")], "-5"),
            (&[("allowautoiopsincreaseonmodify", "yes")], "neither \"true\" nor \"false\""),
            (&[("tagDeletion_1", "CSIVolumeName")], "CSIVolumeName"),
            (&[("encrypted", "true")], "onmodify, tagSpecification_N and tagDeletion_N"),
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
