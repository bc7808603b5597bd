//! A StorageClass's parameters: CreateVolume's `parameters`.

use std::collections::HashMap;

use ebs_csi_policy::format_option::storage_class_rows;
use ebs_csi_proto::Failure;

use crate::row::{Class, Form, Row, Store, read, rows};
use crate::{Claim, FormatKeys, refuse_both_iops};

/// The key of the volume context that makes a publish wait for a restored volume's blocks.
pub const WAIT_UNTIL_INITIALIZED: &str = "blockattachuntilinitialized";

/// The key of a tag, in StorageClasses and VolumeAttributesClasses.
pub(crate) const TAG_SPECIFICATION: Row = Row {
    key: "tagSpecification_N",
    form: Form::Text("`key=value`; the value is a [template](#tag-templates)"),
    example: "team={{ .PVCNamespace }}",
    meaning: "Sets a tag. `N` is any text, and letter case counts.",
    ..Row::NONE
};

const TABLE: &[(Row, Store<VolumeParameters>)] = &[
    (
        Row {
            key: "type",
            form: Form::Text("a volume type of EC2"),
            default: "gp3",
            example: "io2",
            meaning: "The volume type.",
            ..Row::NONE
        },
        |class, given| {
            class.volume_type = given.text();
            Ok(())
        },
    ),
    (
        Row {
            key: "iops",
            form: Form::NUMBER,
            default: "EC2's of the type",
            go_driver: "not lowered where the size allows less than the type's minimum",
            example: "4000",
            meaning: "The IOPS, lowered to the most that type, size and zone allow; not with `iopsPerGB`.",
            ..Row::NONE
        },
        |class, given| given.number().map(|it| class.iops = it),
    ),
    (
        Row {
            key: "iopsPerGB",
            form: Form::NUMBER,
            go_driver: "a product above 2147483647 wraps; not lowered where the size allows less than the type's minimum",
            example: "50",
            meaning: "The IOPS for each GiB of the size; a tag keeps the ratio for later growth.",
            ..Row::NONE
        },
        |class, given| given.number().map(|it| class.iops_per_gib = it),
    ),
    (
        Row {
            key: "allowAutoIOPSPerGBIncrease",
            form: Form::Switch,
            default: "false",
            example: "true",
            meaning: "Raises IOPS below the type's minimum to the minimum.",
            ..Row::NONE
        },
        |class, given| given.switch().map(|it| class.raise_iops = it),
    ),
    (
        Row {
            key: "allowAutoIOPSIncreaseOnModify",
            form: Form::Switch,
            example: "true",
            meaning: "Whether growth raises the IOPS by the ratio of `iopsPerGB`; kept in a tag.",
            ..Row::NONE
        },
        |class, given| given.switch().map(|it| class.raise_iops_on_modify = Some(it)),
    ),
    (
        Row {
            key: "throughput",
            form: Form::number("MiB/s"),
            default: "EC2's of the type",
            example: "250",
            meaning: "The throughput, for types that take one.",
            ..Row::NONE
        },
        |class, given| given.number().map(|it| class.throughput = it),
    ),
    (
        Row {
            key: "encrypted",
            form: Form::Switch,
            default: "false; a restore or copy as its source",
            go_driver: "always sent, so EC2 refuses to restore an encrypted snapshot; copies are as their source",
            example: "true",
            meaning: "Whether the volume is encrypted.",
            ..Row::NONE
        },
        |class, given| given.switch().map(|it| class.encrypted = Some(it)),
    ),
    (
        Row {
            key: "kmsKeyId",
            form: Form::Text("a KMS key: ARN, id or alias"),
            default: "the account's key for EBS",
            go_driver: "a copy has the key of its source, another one is refused",
            example: "arn:aws:kms:us-east-1:111122223333:key/0123abcd",
            meaning: "The key that encrypts the volume; encrypts without `encrypted` too.",
            ..Row::NONE
        },
        |class, given| {
            class.kms_key = given.text();
            Ok(())
        },
    ),
    (
        Row {
            key: "volumeInitializationRate",
            form: Form::number("MiB/s"),
            default: "EC2 loads blocks as they are read",
            example: "200",
            meaning: "How fast EC2 loads a restored volume; EC2 takes 100 to 300, for restores alone.",
            ..Row::NONE
        },
        |class, given| given.number().map(|it| class.initialization_rate = it),
    ),
    (
        Row {
            key: "blockAttachUntilInitialized",
            form: Form::Switch,
            default: "false",
            example: "true",
            meaning: "Whether the attach of a restored volume waits until all its blocks are loaded.",
            ..Row::NONE
        },
        |class, given| given.switch().map(|it| class.wait_until_initialized = it),
    ),
    (
        Row {
            key: "fsType",
            form: Form::Ignored,
            example: "xfs",
            meaning: "external-provisioner reads the key; write `csi.storage.k8s.io/fstype` instead.",
            ..Row::NONE
        },
        |_, given| {
            warn_of_no_effect(given.key);
            Ok(())
        },
    ),
    (
        Row {
            key: "blockExpress",
            form: Form::Ignored,
            example: "true",
            meaning: "EC2 has Block Express without it.",
            ..Row::NONE
        },
        |_, given| {
            warn_of_no_effect(given.key);
            Ok(())
        },
    ),
];

fn warn_of_no_effect(parameter: &str) {
    tracing::warn!(
        parameter,
        "has no effect any more; the file system is csi.storage.k8s.io/fstype"
    );
}

/// The parameters of a StorageClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct VolumeParameters {
    /// `type`; EC2 decides whether the type exists.
    pub volume_type: Option<String>,
    /// `iops`.
    pub iops: Option<u32>,
    /// `iopsPerGB`.
    pub iops_per_gib: Option<u32>,
    /// `allowAutoIOPSPerGBIncrease`: raise a rate below the type's minimum.
    pub raise_iops: bool,
    /// `allowAutoIOPSIncreaseOnModify`, when given.
    pub raise_iops_on_modify: Option<bool>,
    /// `throughput` in MiB/s.
    pub throughput: Option<u32>,
    /// `encrypted`, when given.
    pub encrypted: Option<bool>,
    /// `kmsKeyId`.
    pub kms_key: Option<String>,
    /// `volumeInitializationRate` in MiB/s.
    pub initialization_rate: Option<u32>,
    /// `blockAttachUntilInitialized`.
    pub wait_until_initialized: bool,
    /// The formatting keys.
    pub format: FormatKeys,
    /// The claim that the volume is for.
    pub claim: Claim,
    /// Values of `tagSpecification_N`, in the order of their keys.
    pub tags: Vec<String>,
}

impl Class for VolumeParameters {
    const LIST: &'static str = "parameters";
    const ANY_CASE: bool = true;
    const AND: &'static str = ", and ";

    fn table() -> impl Iterator<Item = (Row, Store<Self>)> {
        let format = storage_class_rows().map(|option| {
            let store: Store<Self> = |class, given| {
                class.format.accept(&given.row.key.to_ascii_lowercase(), given.value).map(drop)
            };
            (Row::of_format_option(option), store)
        });
        let tag: Store<Self> = |class, given| given.tag().map(|tag| class.tags.push(tag));
        let claim: Store<Self> = |class, given| {
            class.claim.store(given);
            Ok(())
        };
        TABLE
            .iter()
            .copied()
            .chain(format)
            .chain([(TAG_SPECIFICATION, tag)])
            .chain(Claim::ROWS.map(|row| (row, claim)))
    }
}

impl VolumeParameters {
    /// Returns the row of each key.
    #[must_use]
    pub fn rows() -> Vec<Row> {
        rows::<Self>()
    }

    /// Reads the parameters.
    ///
    /// # Errors
    /// An unknown key, a key given in two spellings, or an invalid value; the text names the key.
    pub fn parse(parameters: &HashMap<String, String>) -> Result<Self, Failure> {
        let parsed = read::<Self>(parameters)?;
        refuse_both_iops(Self::LIST, parsed.iops, parsed.iops_per_gib)?;
        Ok(parsed)
    }

    /// Returns the entries of the volume context, which a publish and the node read.
    pub fn volume_context(&self) -> HashMap<String, String> {
        let wait = self.wait_until_initialized.then_some((WAIT_UNTIL_INITIALIZED, "true"));
        self.format
            .entries()
            .chain(wait)
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebs_csi_proto::Condition;
    use proptest::prelude::*;

    fn parse(entries: &[(&str, &str)]) -> Result<VolumeParameters, Failure> {
        let map = entries.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        VolumeParameters::parse(&map)
    }

    #[test]
    fn storage_class_keys_parse_in_mixed_case() {
        let parsed = parse(&[
            ("TYPE", "io2"),
            ("iopsPerGB", "10"),
            ("AllowAutoIOPSPerGBIncrease", "true"),
            ("allowautoiopsincreaseonmodify", "false"),
            ("throughput", "250"),
            ("Encrypted", "true"),
            ("kmsKeyID", "arn:aws:kms:us-east-1:111122223333:key/k"),
            ("volumeInitializationRate", "200"),
            ("blockAttachUntilInitialized", "true"),
            ("blockSize", "4096"),
            ("inodeSize", "512"),
            ("bytesPerInode", "8192"),
            ("numberOfInodes", "100000"),
            ("ext4BigAlloc", "true"),
            ("ext4ClusterSize", "16384"),
            ("ext4EncryptionSupport", "true"),
            ("fsType", "xfs"),
            ("blockExpress", "true"),
            ("csi.storage.k8s.io/pvc/name", "data"),
            ("csi.storage.k8s.io/pvc/namespace", "shop"),
            ("csi.storage.k8s.io/pv/name", "pvc-1"),
            ("tagSpecification_2", "b=2"),
            ("tagSpecification_1", "a=1"),
        ])
        .unwrap();
        assert_eq!(parsed.volume_type.as_deref(), Some("io2"));
        assert_eq!((parsed.iops, parsed.iops_per_gib), (None, Some(10)));
        assert!(parsed.raise_iops && parsed.wait_until_initialized);
        assert_eq!(parsed.raise_iops_on_modify, Some(false));
        assert_eq!((parsed.throughput, parsed.initialization_rate), (Some(250), Some(200)));
        assert_eq!(parsed.encrypted, Some(true));
        assert_eq!(parsed.claim.namespace, "shop");
        assert_eq!(parsed.tags, ["a=1", "b=2"]);
        let context = parsed.volume_context();
        let mut keys: Vec<_> = context.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(
            keys,
            [
                "blockattachuntilinitialized",
                "blocksize",
                "bytesperinode",
                "ext4bigalloc",
                "ext4clustersize",
                "ext4encryptionsupport",
                "inodesize",
                "numberofinodes"
            ]
        );
        assert_eq!(context["blocksize"], "4096");
    }

    #[test]
    fn invalid_parameter_is_refused_with_key_or_reason() {
        let rows: [(&[(&str, &str)], &str); 18] = [
            (&[("sype", "gp3")], "parameters: \"sype\" is not a parameter of this driver"),
            (&[("sype", "gp3")], ", and tagSpecification_N"),
            (&[("iops", "many")], "iops"),
            (&[("iops", "-1")], "-1"),
            (&[("throughput", "9999999999")], "throughput"),
            (&[("iops", "100"), ("iopsPerGB", "2")], "iopsPerGB"),
            (&[("Type", "gp3"), ("type", "io2")], "twice"),
            (&[("blockSize", "4k!")], "blocksize"),
            (&[("encrypted", "True")], "encrypted: \"True\" is neither \"true\" nor \"false\""),
            (&[("encrypted", "yes")], "encrypted"),
            (&[("encrypted", "1")], "encrypted"),
            (&[("blockAttachUntilInitialized", "TRUE")], "blockAttachUntilInitialized"),
            (&[("allowAutoIOPSPerGBIncrease", "t")], "allowAutoIOPSPerGBIncrease"),
            (&[("allowAutoIOPSIncreaseOnModify", "False")], "allowAutoIOPSIncreaseOnModify"),
            (&[("ext4BigAlloc", "on")], "ext4bigalloc"),
            (&[("TagSpecification_1", "a=b")], "TagSpecification_1"),
            (
                &[("tagSpecification_7", "team")],
                "tagSpecification_7: \"team\" is not a tag; write it as key=value",
            ),
            (&[("tagSpecification", "=x")], "key=value"),
        ];
        for (entries, word) in rows {
            let failure = parse(entries).unwrap_err();
            assert_eq!(failure.condition(), Condition::InvalidField);
            assert!(failure.text().contains(word), "{entries:?}: {failure}");
        }
    }

    #[test]
    fn iops_0_is_unset_and_empty_boolean_false() {
        let parsed = parse(&[("iops", "0"), ("iopsPerGB", "3"), ("encrypted", "")]).unwrap();
        assert_eq!((parsed.iops, parsed.iops_per_gib), (None, Some(3)));
        assert_eq!(parsed.encrypted, Some(false));
    }

    proptest! {
        #[test]
        fn parsing_arbitrary_parameters_never_panics(entries in proptest::collection::hash_map("(type|iops|Iops|throughput|blockSize|tagSpecification_1|[a-zA-Z]{1,6})", ".{0,12}", 0..6)) {
            let _ = VolumeParameters::parse(&entries);
        }
    }
}
