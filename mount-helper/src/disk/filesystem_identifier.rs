//! The identifier (UUID) of the file systems that this driver makes, which holds the volume's id.
use ebs_csi_wire::VolumeId;

/// Returns the identifier of the file system that a format of this volume makes: a UUID of version
/// 8 (RFC 9562) that contains the volume's digits, so that an interrupted format can be recognised
/// as this volume's own.
pub fn identifier(volume: &VolumeId) -> [u8; 16] {
    let digits = volume.as_str().strip_prefix("vol-").unwrap_or_default();
    // 32 hexadecimal digits: twelve that are constant, the version, three of the volume's, the
    // variant, fifteen more of the volume's.
    let padded = format!("{digits:0>18}");
    let (first, rest) = padded.split_at(3);
    let text = format!("ebc51d000000{}{first}{}{rest}", '8', '8');
    u128::from_str_radix(&text, 16).unwrap_or(0).to_be_bytes()
}

/// Returns the volume whose identifier a file system has; None for an identifier that no format of
/// this driver wrote.
pub fn volume_of(identifier: [u8; 16]) -> Option<VolumeId> {
    let text = format!("{:032x}", u128::from_be_bytes(identifier));
    let digits = format!("{}{}", &text[13..16], &text[17..]);
    // Older volume ids have eight digits, the others seventeen.
    [digits.get(10..), digits.get(1..)]
        .into_iter()
        .flatten()
        .filter_map(|digits| VolumeId::parse(&format!("vol-{digits}")).ok())
        .find(|volume| self::identifier(volume) == identifier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filesystem_uuid_is_version_8_encoding_volume_id() {
        let volume = VolumeId::parse("vol-0123456789abcdef0").expect("id");
        assert_eq!(
            identifier(&volume),
            [0xeb, 0xc5, 0x1d, 0, 0, 0, 0x80, 0x01, 0x82, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0]
        );
        let short = VolumeId::parse("vol-1a2b3c4d").expect("id");
        assert_ne!(identifier(&volume), identifier(&short));
        assert_eq!(identifier(&short)[12..], [0x1a, 0x2b, 0x3c, 0x4d]);
        for volume in [volume, short] {
            assert_eq!(volume_of(identifier(&volume)), Some(volume));
        }
        for other in [[0; 16], [0xeb; 16]] {
            assert_eq!(volume_of(other), None);
        }
    }
}
