//! Each row about format options: values that the row accepts and values that the row refuses.

use ebs_csi_policy::format_option::{
    FormatError, FormatOptions, GivenBy, OptionKind, ROWS, find, parse_number, storage_class_rows,
};
use ebs_csi_wire::{FormatOption, FsType};

const FILE_SYSTEMS: [FsType; 3] = [FsType::Ext4, FsType::Ext3, FsType::Xfs];

fn option(key: &str, value: u64) -> FormatOption {
    find(key).expect(key).with(value)
}

fn check(fs: FsType, given: &[(&str, u64)]) -> Result<FormatOptions, FormatError> {
    let given: Vec<_> = given.iter().map(|(key, value)| option(key, *value)).collect();
    FormatOptions::check(&given, fs)
}

/// Returns whether ext4, ext3 and XFS accept the options.
fn accepted_by(given: &[(&str, u64)]) -> [bool; 3] {
    FILE_SYSTEMS.map(|fs| check(fs, given).is_ok())
}

#[test]
fn no_format_options_suit_every_file_system() {
    for fs in FsType::ALL {
        assert_eq!(check(*fs, &[]), Ok(FormatOptions::default()));
        let zeros: Vec<_> = ROWS.iter().map(|row| row.with(0)).collect();
        assert_eq!(FormatOptions::check(&zeros, *fs), Ok(FormatOptions::default()));
    }
}

#[test]
fn rows_accept_their_range_and_nothing_else() {
    for row in ROWS {
        let with = |value| {
            let switch = row.requires.map(|switch| option(switch, 1));
            switch.into_iter().chain([row.with(value)]).collect::<Vec<_>>()
        };
        for fs in FsType::ALL.iter().copied() {
            let accepts = |value| FormatOptions::check(&with(value), fs).is_ok();
            let Some(support) = row.on(fs) else {
                let ignored = row.given_by != GivenBy::StorageClass;
                assert_eq!(accepts(row.example), ignored, "{} on {fs}", row.key);
                continue;
            };
            assert!(accepts(row.example), "{} on {fs}", row.key);
            let checked = FormatOptions::check(&with(row.example), fs).expect("accepted");
            assert_eq!(checked.to_wire(), with(row.example), "{} on {fs}", row.key);
            match support.range {
                None => assert!(row.kind == OptionKind::Switch && !accepts(2), "{}", row.key),
                Some(range) => {
                    // The tools' block size is 4096.
                    let most = range.most.min(4096 / range.block_parts.unwrap_or(1));
                    let most = if range.block_parts.is_some() { most } else { range.most };
                    assert!(
                        row.kind == OptionKind::Number && accepts(range.least) && accepts(most)
                    );
                    let below = range.least - 1;
                    assert!(!accepts(most + 1) && (below == 0 || !accepts(below)), "{}", row.key);
                    assert_eq!(accepts(range.least + 1), !range.power_of_two, "{}", row.key);
                    assert!(range.words.contains(&range.least.to_string()), "{}", row.key);
                }
            }
        }
    }
}

#[test]
fn format_option_outside_range_is_refused() {
    for (key, good, bad) in [
        ("blockSize", 4096, &[256, 4095, 131_072][..]),
        ("inodeSize", 512, &[64, 300]),
        ("bytesPerInode", 5000, &[1023]),
        ("numberOfInodes", 1, &[1 << 32]),
    ] {
        assert!(check(FsType::Ext4, &[(key, good)]).is_ok(), "{good}");
        assert!(bad.iter().all(|n| check(FsType::Ext4, &[(key, *n)]).is_err()), "{bad:?}");
    }
    let error = check(FsType::Ext4, &[("blockSize", 3000)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "blockSize is 3000, it must be a power of two from 1024 to 65536"
    );
}

/// As mke2fs 1.47.0 and mkfs.xfs 6.1 refuse them.
#[test]
fn inode_size_fits_block_of_file_system() {
    for (block, inode, ext, xfs) in [
        (0, 256, true, false),
        (0, 512, true, true),
        (0, 2048, true, true),
        (0, 4096, true, false),
        (0, 8192, false, false),
        (1024, 512, true, true),
        (1024, 1024, true, false),
        (1024, 2048, false, false),
    ] {
        let accepted = accepted_by(&[("blockSize", block), ("inodeSize", inode)]);
        assert_eq!(accepted, [ext, ext, xfs], "{block} {inode}");
    }
}

#[test]
fn number_may_have_suffix_and_is_positive() {
    for (text, number) in [
        ("4096", Some(4096)),
        ("4k", Some(4096)),
        ("1M", Some(1 << 20)),
        ("2g", Some(2 << 30)),
        ("0", None),
        ("", None),
        ("k", None),
        ("-1", None),
        ("4 k", None),
        ("18446744073709551615k", None),
    ] {
        assert_eq!(parse_number(text), number, "{text:?}");
    }
}

#[test]
fn ext4_cluster_size_needs_bigalloc() {
    let error = check(FsType::Ext4, &[("ext4ClusterSize", 65_536)]).unwrap_err();
    assert_eq!(error.to_string(), "ext4ClusterSize needs ext4BigAlloc to be true");
    assert!(check(FsType::Ext4, &[("ext4ClusterSize", 65_536), ("ext4BigAlloc", 1)]).is_ok());
}

#[test]
fn options_are_offered_per_file_system() {
    for (key, value, offered) in [
        ("numberOfInodes", 1000, [true, true, false]),
        ("bytesPerInode", 4096, [true, true, false]),
        ("ext4BigAlloc", 1, [true, false, false]),
        ("ext4EncryptionSupport", 1, [true, false, false]),
        ("legacyXfs", 1, [true, true, true]),
    ] {
        assert_eq!(accepted_by(&[(key, value)]), offered, "{key}");
    }
    assert!(storage_class_rows().all(|row| row.key != "legacyXfs"));
    assert_eq!(
        check(FsType::Xfs, &[("ext4BigAlloc", 1)]).unwrap_err().to_string(),
        "ext4BigAlloc is not an option of xfs: leave it out or choose another file system"
    );
}

#[test]
fn unknown_or_repeated_option_is_refused() {
    let unknown = FormatOption { number: 9999, value: 1 };
    assert_eq!(
        FormatOptions::check(&[unknown], FsType::Ext4),
        Err(FormatError::Unknown { number: 9999 })
    );
    assert_eq!(
        check(FsType::Ext4, &[("blockSize", 1024), ("blockSize", 4096)]),
        Err(FormatError::GivenTwice { key: "blockSize" })
    );
}
