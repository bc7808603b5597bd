//! Identifiers of the form that EC2 issues.

use std::fmt;

/// An identifier that EC2 cannot have issued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not a {kind}: expected {shape}")]
pub struct IdError {
    kind: &'static str,
    shape: &'static str,
    given: String,
}

/// Returns the text, or an error that names the kind of text and its form.
fn checked(
    valid: bool,
    given: &str,
    kind: &'static str,
    shape: &'static str,
) -> Result<Box<str>, IdError> {
    // Bounded, because it is echoed into logs and statuses.
    let start = || given.chars().take(64).collect();
    if valid { Ok(given.into()) } else { Err(IdError { kind, shape, given: start() }) }
}

/// Returns whether EC2 can have issued the id. EC2 has issued resource ids with 8 digits (until
/// 2018) and 17 digits since; both are in use.
fn issued(given: &str, prefix: &str) -> bool {
    given.strip_prefix(prefix).is_some_and(|digits| {
        matches!(digits.len(), 8 | 17)
            && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Defines a text of a checked form.
macro_rules! checked_text {
    ($(#[$attribute:meta])* $name:ident) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Box<str>);

        impl $name {
            /// Returns the text as EC2 writes it.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;

            fn from_str(given: &str) -> Result<Self, IdError> {
                Self::parse(given)
            }
        }
    };
}

checked_text!(
    /// An EBS volume, `vol-…`: the CSI volume handle.
    VolumeId
);
checked_text!(
    /// An EBS snapshot, `snap-…`: the CSI snapshot handle.
    SnapshotId
);
checked_text!(
    /// An EC2 instance, `i-…`: the CSI node id.
    InstanceId
);
checked_text!(
    /// The device name that EC2 was given at attach (`/dev/xvdba`), with `/dev/`. On the node it is
    /// a hint for a disk with a serial; it identifies only a disk without one.
    DeviceName
);

checked_text!(
    /// When EC2 accepted an attach, as the controller wrote it (RFC 3339). It distinguishes one
    /// attachment of a volume to an instance from the next; it is only compared.
    AttachedAt
);

impl AttachedAt {
    /// Checks the form: 20 to 35 characters of an RFC 3339 time.
    pub fn parse(given: &str) -> Result<Self, IdError> {
        let plain = |b: u8| matches!(b, b'0'..=b'9' | b'-' | b':' | b'.' | b'+' | b'T' | b'Z');
        let is_time = (20..=35).contains(&given.len())
            && given.bytes().all(plain)
            && given.as_bytes().get(10) == Some(&b'T');
        checked(is_time, given, "time of an attach", "a time of RFC 3339").map(Self)
    }
}

impl VolumeId {
    /// Checks the form: `vol-` and 8 or 17 lower-case hexadecimal digits.
    pub fn parse(given: &str) -> Result<Self, IdError> {
        let shape = "vol- and 8 or 17 hexadecimal digits in lower case";
        checked(issued(given, "vol-"), given, "volume id", shape).map(Self)
    }

    /// Returns the serial number that the volume's NVMe controller reports: the id without its
    /// hyphen.
    pub fn serial(&self) -> String {
        self.0.replacen('-', "", 1)
    }
}

impl SnapshotId {
    /// Checks the form: `snap-` and 8 or 17 lower-case hexadecimal digits.
    pub fn parse(given: &str) -> Result<Self, IdError> {
        let shape = "snap- and 8 or 17 hexadecimal digits in lower case";
        checked(issued(given, "snap-"), given, "snapshot id", shape).map(Self)
    }
}

impl InstanceId {
    /// Checks the form: `i-` and 8 or 17 lower-case hexadecimal digits. Fails with [`IdError`] for
    /// a text that EC2 cannot have issued. For SageMaker HyperPod's `hyperpod-…` node ids, the
    /// error says that they are not supported.
    pub fn parse(given: &str) -> Result<Self, IdError> {
        let shape = if given.starts_with("hyperpod-") {
            "an EC2 instance, i- and 8 or 17 hexadecimal digits; SageMaker HyperPod nodes are not supported"
        } else {
            "i- and 8 or 17 hexadecimal digits in lower case"
        };
        checked(issued(given, "i-"), given, "instance id", shape).map(Self)
    }
}

impl DeviceName {
    /// Checks the form of EC2's device names: `/dev/sd` or `/dev/xvd`, one or two letters, and at
    /// most two digits.
    pub fn parse(given: &str) -> Result<Self, IdError> {
        let plausible = ["/dev/xvd", "/dev/sd"]
            .iter()
            .find_map(|prefix| given.strip_prefix(prefix))
            .is_some_and(|rest| {
                let letters = rest.bytes().take_while(u8::is_ascii_lowercase).count();
                let digits = &rest.as_bytes()[letters..];
                matches!(letters, 1 | 2)
                    && digits.len() <= 2
                    && digits.iter().all(u8::is_ascii_digit)
            });
        let shape = "/dev/xvd or /dev/sd, one or two letters and at most two digits";
        checked(plausible, given, "device name", shape).map(Self)
    }

    /// Returns the last component, for a lookup beneath an open `/dev`.
    pub fn file_name(&self) -> &str {
        self.0.strip_prefix("/dev/").unwrap_or(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_both_lengths_are_accepted() {
        for good in ["vol-0123456789abcdef0", "vol-1a2b3c4d"] {
            assert_eq!(VolumeId::parse(good).unwrap().as_str(), good);
        }
        assert!(SnapshotId::parse("snap-0123456789abcdef0").is_ok());
        assert!(InstanceId::parse("i-0123456789abcdef0").is_ok());
    }

    #[test]
    fn ids_that_ec2_cannot_have_issued_are_refused() {
        for bad in [
            "",
            "vol-",
            "vol-0123456789ABCDEF0",
            "vol-0123456789abcdef",
            "vol-0123456789abcdef01",
            "vol-1a2b3c4g",
            "snap-1a2b3c4d",
            " vol-1a2b3c4d",
            "vol-1a2b3c4d\n",
            "vol-../../etc",
            "VOL-1a2b3c4d",
        ] {
            assert!(VolumeId::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_serial_is_the_id_without_its_hyphen() {
        let volume = VolumeId::parse("vol-0123456789abcdef0").unwrap();
        assert_eq!(volume.serial(), "vol0123456789abcdef0");
    }

    #[test]
    fn attach_times_are_short_plain_rfc3339_texts() {
        for good in ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123456789+00:00"] {
            assert_eq!(AttachedAt::parse(good).unwrap().as_str(), good);
        }
        let long = format!("2026-01-01T00:00:00.{}Z", "0".repeat(20));
        for bad in ["", "2026-01-01", "2026-01-01 00:00:00Z", "2026-01-01T00:00:00Z\n", &*long] {
            assert!(AttachedAt::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn hyperpod_instance_id_error_names_hyperpod() {
        let error = InstanceId::parse("hyperpod-abc-i-0123456789abcdef0").unwrap_err();
        assert!(error.to_string().contains("HyperPod"), "{error}");
    }

    #[test]
    fn only_sd_and_xvd_device_names_are_accepted() {
        for good in ["/dev/xvdba", "/dev/xvdz", "/dev/sdb", "/dev/sda1", "/dev/xvdaa"] {
            assert!(DeviceName::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "/dev/",
            "/dev/xvd",
            "/dev/xvdabc",
            "/dev/xvdb/../sda",
            "/dev/nvme0n1",
            "xvdba",
            "/dev/sdB",
            "/dev/sda123",
            "/dev/sdé",
        ] {
            assert!(DeviceName::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(DeviceName::parse("/dev/xvdba").unwrap().file_name(), "xvdba");
    }

    #[test]
    fn id_parse_error_stays_below_300_bytes() {
        let error = VolumeId::parse(&"x".repeat(100_000)).unwrap_err();
        assert!(error.to_string().len() < 300);
    }
}
