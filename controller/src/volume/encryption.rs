//! The encryption that a request asks for, and whether a volume has it.

use ebs_csi_ec2::Volume;
use ebs_csi_parameters::VolumeParameters;

use crate::request::{CreateVolume, Source};

/// What a call asks of EC2: `Encrypted` and `KmsKeyId`.
pub(super) type Encryption = (Option<bool>, Option<String>);

pub(super) fn is_wanted(class: &VolumeParameters) -> bool {
    class.encrypted == Some(true) || class.kms_key.is_some()
}

/// Returns the value of `Encrypted` of a new volume. EC2 compares a token's parameters as they were
/// sent, so the value is the Go driver's, which always sends one: a create that one driver began is
/// the same create for the other. The exception is a class that says nothing about a snapshot that
/// may be encrypted: EC2 refuses "not encrypted" there.
pub(super) fn of_create(class: &VolumeParameters, from_encrypted: bool) -> Option<bool> {
    match is_wanted(class) {
        false if class.encrypted.is_none() && from_encrypted => None,
        is_wanted => Some(is_wanted),
    }
}

/// Returns the encryption of a copy. A copy has its source's encryption and key; the call names
/// them only where the class asks for others, as the Go driver's calls never do.
pub(super) fn of_copy(class: &VolumeParameters, source: &Volume) -> Encryption {
    match is_wanted(class) && difference_of_copy(class, source, Alias::Differs).is_some() {
        true => (Some(true), class.kms_key.clone()),
        false => (None, None),
    }
}

/// Returns the difference between the encryption of a volume and what the request asks for. The
/// keys of copies alone are compared: EC2 documents that a new volume has the requested key, and
/// does not for the copy of an encrypted volume.
pub(super) fn difference(request: &CreateVolume, volume: &Volume) -> Option<String> {
    let class = &request.class;
    match &request.source {
        Some(Source::Volume(_)) => difference_of_copy(class, volume, Alias::Fits),
        _ => (is_wanted(class) && !volume.encrypted).then(|| not_encrypted(volume)),
    }
}

/// What an alias means, whose key only KMS can tell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Alias {
    Fits,
    Differs,
}

fn difference_of_copy(class: &VolumeParameters, volume: &Volume, alias: Alias) -> Option<String> {
    if is_wanted(class) && !volume.encrypted {
        return Some(not_encrypted(volume));
    }
    let wanted = class.kms_key.as_deref()?;
    let shown = match volume.kms_key_id.as_deref() {
        Some(shown) if !is_same_key(wanted, shown).unwrap_or(alias == Alias::Fits) => shown,
        None if alias == Alias::Differs => "a key that EC2 does not show",
        _ => return None,
    };
    Some(format!("{} is encrypted with {shown}, {wanted} is asked for", volume.id))
}

fn not_encrypted(volume: &Volume) -> String {
    format!("{} is not encrypted", volume.id)
}

/// Returns whether the two name one key; `None` for an alias. EC2 takes an ARN, an id or an alias,
/// and shows the ARN.
fn is_same_key(wanted: &str, shown: &str) -> Option<bool> {
    let id = |key: &str| key.rsplit('/').next().map(str::to_owned);
    match wanted {
        _ if wanted.contains("alias/") => None,
        _ if wanted.starts_with("arn:") && shown.starts_with("arn:") => Some(wanted == shown),
        _ => Some(id(wanted) == id(shown)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::example_volume;
    use crate::volume::adopt::tests::request;
    use ebs_csi_wire::VolumeId;

    const ID: &str = "1234abcd-12ab-34cd-56ef-1234567890ab";
    const ARN: &str = "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab";
    const OTHER: &str =
        "arn:aws:kms:us-west-2:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab";
    const ALIAS: &str = "alias/prod";

    fn volume(encrypted: bool, key: Option<&str>) -> Volume {
        Volume { encrypted, kms_key_id: key.map(str::to_owned), ..example_volume() }
    }

    fn copy(encrypted: Option<bool>, key: Option<&str>) -> CreateVolume {
        let source = VolumeId::parse("vol-0123456789abcdef0").ok().map(Source::Volume);
        let mut request = CreateVolume { source, ..request(1) };
        request.class.encrypted = encrypted;
        request.class.kms_key = key.map(str::to_owned);
        request
    }

    #[test]
    fn create_sends_encrypted_as_go_driver_where_possible() {
        for (class, key, from_encrypted, sent) in [
            (None, None, false, Some(false)),
            (Some(false), None, false, Some(false)),
            (Some(true), None, false, Some(true)),
            (None, Some(ARN), false, Some(true)),
            (Some(false), Some(ARN), false, Some(true)),
            (None, None, true, None),
            (Some(false), None, true, Some(false)),
            (Some(true), None, true, Some(true)),
            (None, Some(ARN), true, Some(true)),
        ] {
            let class = copy(class, key).class;
            assert_eq!(of_create(&class, from_encrypted), sent, "{class:?} {from_encrypted}");
        }
    }

    #[test]
    fn copy_names_encryption_only_if_source_differs() {
        let yes = Some(true);
        for (encrypted, key, source, sent) in [
            (None, None, volume(false, None), None),
            (None, None, volume(true, Some(ARN)), None),
            (yes, None, volume(false, None), Some(None)),
            (yes, None, volume(true, Some(ARN)), None),
            (yes, Some(ARN), volume(false, None), Some(Some(ARN))),
            (None, Some(ARN), volume(false, None), Some(Some(ARN))),
            (yes, Some(ARN), volume(true, Some(ARN)), None),
            (yes, Some(ID), volume(true, Some(ARN)), None),
            (yes, Some(OTHER), volume(true, Some(ARN)), Some(Some(OTHER))),
            (yes, Some(ALIAS), volume(true, Some(ARN)), Some(Some(ALIAS))),
            (yes, Some(ARN), volume(true, None), Some(Some(ARN))),
        ] {
            let want = match sent {
                None => (None, None),
                Some(key) => (Some(true), key.map(str::to_owned)),
            };
            assert_eq!(of_copy(&copy(encrypted, key).class, &source), want, "{key:?} {source:?}");
        }
    }

    #[test]
    fn copy_with_other_encryption_or_key_differs() {
        for (key, made, fits) in [
            (None, volume(true, Some(ARN)), true),
            (None, volume(false, None), false),
            (Some(ARN), volume(true, Some(ARN)), true),
            (Some(ARN), volume(true, None), true),
            (Some(ID), volume(true, Some(ARN)), true),
            (Some(OTHER), volume(true, Some(ARN)), false),
            (Some("other"), volume(true, Some(ARN)), false),
            (Some(ALIAS), volume(true, Some(ARN)), true),
            (Some(ALIAS), volume(false, None), false),
        ] {
            let difference = difference(&copy(Some(true), key), &made);
            assert_eq!(difference.is_none(), fits, "{key:?}: {difference:?}");
        }
    }
}
