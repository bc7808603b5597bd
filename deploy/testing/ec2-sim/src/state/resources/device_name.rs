//! Device names that EC2 accepts on instances with hardware virtualization.

/// Returns whether EC2 accepts the name: `/dev/sd[a-z]`, `/dev/sda1`, `/dev/sda2`, `/dev/xvd[a-z]`,
/// `/dev/xvd[a-c][a-z]`, `/dev/xvdd[a-x]`.
pub(crate) fn valid(name: &str) -> bool {
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    if matches!(name, "sda1" | "sda2") {
        return true;
    }
    let lower = |b: &u8| b.is_ascii_lowercase();
    if let Some(rest) = name.strip_prefix("xvd") {
        return match rest.as_bytes() {
            [a] => lower(a),
            [b'a'..=b'c', b] => lower(b),
            [b'd', b'a'..=b'x'] => true,
            _ => false,
        };
    }
    matches!(name.strip_prefix("sd").map(str::as_bytes), Some([a]) if lower(a))
}

/// Returns the name without its prefix, so that spellings compare equal: `sdb` and `xvdb` collide,
/// and so do `sda1` and `xvda1`.
pub(crate) fn suffix(name: &str) -> &str {
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    name.strip_prefix("xvd").or_else(|| name.strip_prefix("sd")).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_device_names_are_valid_others_refused() {
        for good in
            "/dev/sda1 /dev/sda2 /dev/sdb /dev/sdz /dev/xvdb /dev/xvdaa /dev/xvdcz /dev/xvdda \
                     /dev/xvddx xvdba"
                .split(' ')
        {
            assert!(valid(good), "{good}");
        }
        for bad in
            "/dev/sdk1,/dev/xvddy,/dev/xvdea,/dev/xvdb1,/dev/nvme1n1,/dev/sdaa,,/dev/,/dev/xvd"
                .split(',')
        {
            assert!(!valid(bad), "{bad:?}");
        }
    }

    #[test]
    fn sd_and_xvd_names_share_device_slot() {
        assert_eq!(suffix("/dev/sdb"), suffix("/dev/xvdb"));
        assert_ne!(suffix("/dev/xvdb"), suffix("/dev/xvdba"));
    }
}
