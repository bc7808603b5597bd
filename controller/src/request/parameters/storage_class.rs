//! A StorageClass's parameters: CreateVolume's `parameters`.

use std::collections::HashMap;

use ebs_csi_proto::Failure;

use super::{
    Claim, FormatKeys, TAG_SPECIFICATION, check_tag, parse_boolean, parse_number, refuse_both_iops,
    sorted, unknown_key,
};

const LIST: &str = "parameters";
/// The key of the volume context that makes a publish wait for a restored volume's blocks.
pub(crate) const WAIT_UNTIL_INITIALIZED: &str = "blockattachuntilinitialized";
const KNOWN: &str = "type, iops, iopsPerGB, allowAutoIOPSPerGBIncrease, allowAutoIOPSIncreaseOnModify, throughput, encrypted, kmsKeyId, \
                     volumeInitializationRate, blockAttachUntilInitialized, blockSize, inodeSize, bytesPerInode, numberOfInodes, ext4BigAlloc, \
                     ext4ClusterSize, ext4EncryptionSupport, ext4Stride, ext4StripeWidth, and tagSpecification_N";

/// The parameters of a StorageClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct VolumeParameters {
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

impl VolumeParameters {
    /// Reads the parameters.
    ///
    /// # Errors
    /// An unknown key, a key given in two spellings, or an invalid value; the text names the key.
    pub(crate) fn parse(parameters: &HashMap<String, String>) -> Result<Self, Failure> {
        let mut parsed = Self::default();
        let mut seen_keys: Vec<String> = Vec::new();
        for (key_as_written, value) in sorted(parameters) {
            // Only tag keys are matched as written: `TAGSPECIFICATION_1` has never been a tag key.
            if key_as_written.starts_with(TAG_SPECIFICATION) {
                parsed.tags.push(check_tag(LIST, key_as_written, value)?);
                continue;
            }
            let key = key_as_written.to_ascii_lowercase();
            if seen_keys.contains(&key) {
                return Err(Failure::invalid(
                    LIST,
                    format!("{key} is given twice, in different spellings; keep one"),
                ));
            }
            parsed.accept(key_as_written, &key, value)?;
            seen_keys.push(key);
        }
        refuse_both_iops(LIST, parsed.iops, parsed.iops_per_gib)?;
        Ok(parsed)
    }

    fn accept(&mut self, key_as_written: &str, key: &str, value: &str) -> Result<(), Failure> {
        match key {
            "type" => self.volume_type = Some(value.to_owned()).filter(|v| !v.is_empty()),
            "iops" => self.iops = parse_number(LIST, key_as_written, value)?,
            "iopspergb" => self.iops_per_gib = parse_number(LIST, key_as_written, value)?,
            "allowautoiopspergbincrease" => {
                self.raise_iops = parse_boolean(LIST, key_as_written, value)?;
            }
            "allowautoiopsincreaseonmodify" => {
                self.raise_iops_on_modify = Some(parse_boolean(LIST, key_as_written, value)?);
            }
            "throughput" => self.throughput = parse_number(LIST, key_as_written, value)?,
            "encrypted" => self.encrypted = Some(parse_boolean(LIST, key_as_written, value)?),
            "kmskeyid" => self.kms_key = Some(value.to_owned()).filter(|v| !v.is_empty()),
            "volumeinitializationrate" => {
                self.initialization_rate = parse_number(LIST, key_as_written, value)?;
            }
            "blockattachuntilinitialized" => {
                self.wait_until_initialized = parse_boolean(LIST, key_as_written, value)?;
            }
            "fstype" | "blockexpress" => {
                tracing::warn!(
                    parameter = key_as_written,
                    "has no effect any more; the file system is csi.storage.k8s.io/fstype"
                );
            }
            _ if self.claim.accept(key, value) => {}
            _ if self.format.accept(key, value)? => {}
            _ => return Err(unknown_key(LIST, key_as_written, KNOWN)),
        }
        Ok(())
    }

    /// Returns the entries of the volume context, which a publish and the node read.
    pub(crate) fn volume_context(&self) -> HashMap<String, String> {
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
        let rows: [(&[(&str, &str)], &str); 17] = [
            (&[("sype", "gp3")], "sype"),
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
