//! Each row about tools: the command lines that the row gives, and those that it does not give.

use std::collections::BTreeSet;

use ebs_csi_policy::format_option::{FormatOptions, ROWS, find};
use ebs_csi_policy::tool::{Arguments, DISK, DeviceAccess, Meaning, Purpose, TOOLS, ToolId};
use ebs_csi_wire::{FormatOption, FsType};

const UUID: [u8; 16] = [
    0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0x4d, 0xef, 0x81, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
];
const UUID_TEXT: &str = "12345678-9abc-4def-8123-456789abcdef";

fn line(id: ToolId, fs: FsType, given: &[FormatOption]) -> Vec<String> {
    let format = FormatOptions::check(given, fs).expect("within the ranges");
    let tool = id.tool().expect("a row");
    tool.command_line(&Arguments { fs, format: &format, uuid: UUID })
}

/// Returns the words of the command line without a format option.
fn plain(id: ToolId, fs: FsType) -> Vec<String> {
    line(id, fs, &[])
}

#[test]
fn tool_ids_and_table_rows_match() {
    for id in ToolId::ALL.iter().copied() {
        assert!(id.tool().is_some(), "{id:?}");
        assert_eq!(ToolId::from_number(id.number()), Some(id));
    }
    assert_eq!(TOOLS.len(), ToolId::ALL.len());
    let beyond = u8::try_from(ToolId::ALL.len()).expect("few");
    assert_eq!(ToolId::from_number(beyond), None);
    assert_eq!(ToolId::from_number(255), None);
}

/// The words are those of e2fsck 1.47 and xfs_repair 6.1.
#[test]
fn only_checkers_can_lack_a_feature() {
    for tool in TOOLS {
        let said = match tool.path {
            "/usr/sbin/e2fsck" => "x has unsupported feature(s): FEATURE_C15\ne2fsck: Get a newer",
            "/usr/sbin/xfs_repair" => "is recommended.\nFound unsupported filesystem features.  Ex",
            _ => "",
        };
        assert_eq!(tool.lacks_feature(said), tool.purpose == Purpose::Check, "{}", tool.key);
        assert!(!tool.lacks_feature("x: clean, 11/64 files, 1/64 blocks"), "{}", tool.key);
    }
}

#[test]
fn format_without_options_uses_tool_defaults() {
    let ids = format!("-U {UUID_TEXT} -E hash_seed={UUID_TEXT},nodiscard");
    assert_eq!(
        plain(ToolId::Mke2fs, FsType::Ext4).join(" "),
        format!("/usr/sbin/mke2fs -t ext4 {ids} -F -q -m 0 -e remount-ro {DISK}")
    );
    assert_eq!(
        plain(ToolId::MkfsXfs, FsType::Xfs).join(" "),
        format!("/usr/sbin/mkfs.xfs -m uuid={UUID_TEXT} -K -f -q {DISK}")
    );
    assert_eq!(plain(ToolId::Mke2fs, FsType::Ext3)[2], "ext3");
}

#[test]
fn format_options_become_mkfs_arguments() {
    let line = |fs, given: &[(&str, u64)]| {
        let given = given.iter().map(|(key, value)| find(key).expect(key).with(*value));
        line(ToolId::formats(fs), fs, &given.collect::<Vec<_>>())
    };
    let both = [("blockSize", 4096), ("inodeSize", 512), ("legacyXfs", 1)];
    let only_ext4 = [
        ("bytesPerInode", 16384),
        ("numberOfInodes", 1000),
        ("ext4BigAlloc", 1),
        ("ext4ClusterSize", 65536),
        ("ext4EncryptionSupport", 1),
    ];
    let ext = line(FsType::Ext4, &[&both[..], &only_ext4].concat());
    let tail = plain(ToolId::Mke2fs, FsType::Ext4).len() - 3;
    assert_eq!(
        ext[3..ext.len() - tail].join(" "),
        "-b 4096 -I 512 -i 16384 -N 1000 -O bigalloc,encrypt -C 65536"
    );
    let metadata = format!("bigtime=0,inobtcount=0,reflink=0,uuid={UUID_TEXT}");
    assert_eq!(
        line(FsType::Xfs, &both)[1..].join(" "),
        format!("-b size=4096 -i size=512,nrext64=0 -m {metadata} -K -f -q {DISK}")
    );
}

/// A flag that comes twice is one whose values are joined: of others, the tool may use the last.
#[test]
fn every_flag_of_a_format_comes_once() {
    for fs in FsType::ALL.iter().copied() {
        let tool = ToolId::formats(fs);
        let rows = || ROWS.iter().filter(|row| row.on(fs).is_some());
        let examples: Vec<_> = rows().map(|row| row.with(row.example)).collect();
        let line = line(tool, fs, &examples);
        let flags: Vec<_> = line.iter().filter(|word| word.starts_with('-')).collect();
        assert_eq!(flags.iter().collect::<BTreeSet<_>>().len(), flags.len(), "{line:?}");
        let lists = tool.tool().expect("a row").lists;
        for row in rows() {
            for (flag, value) in row.on(fs).expect("supported").arguments {
                let value = value.replace("{value}", &row.example.to_string());
                let at = line.iter().position(|word| word == flag).expect(flag);
                let given = format!(",{},", line[at + 1]);
                let whole = if lists.contains(flag) {
                    given.contains(&format!(",{value},"))
                } else {
                    line[at + 1] == value
                };
                assert!(whole, "{flag} {value} in {line:?}");
            }
        }
    }
}

#[test]
fn checkers_get_no_format_options() {
    let block = find("blockSize").expect("a row").with(1024);
    for tool in TOOLS.iter().filter(|tool| tool.purpose != Purpose::Format) {
        let id = ToolId::parse(tool.key).expect("an id");
        let fs = tool.file_systems[0];
        assert_eq!(line(id, fs, &[block]), plain(id, fs));
    }
}

#[test]
fn tool_arguments_fill_placeholders_and_end_with_disk() {
    for id in ToolId::ALL.iter().copied() {
        for fs in id.tool().expect("a row").file_systems {
            let line = plain(id, *fs);
            assert_eq!(line.last().map(String::as_str), Some(DISK));
            assert!(line.iter().all(|word| !word.contains(['{', '}'])), "{line:?}");
        }
    }
}

#[test]
fn exit_status_unlisted_in_row_means_failure() {
    let meaning = |id: ToolId, status| id.tool().expect("a row").meaning(status);
    for id in [ToolId::E2fsck, ToolId::E2fsckFull] {
        for (statuses, expected) in [
            (&[0][..], Some(Meaning::Clean)),
            (&[1, 2], Some(Meaning::Repaired)),
            (&[4], Some(Meaning::Uncorrectable)),
            (&[5, 8, 16, 32], None),
        ] {
            assert!(statuses.iter().all(|one| meaning(id, *one) == expected), "{statuses:?}");
        }
    }
    for id in [ToolId::Mke2fs, ToolId::MkfsXfs, ToolId::Resize2fs] {
        assert_eq!(meaning(id, 0), Some(Meaning::Done));
        assert_eq!(meaning(id, 1), None);
    }
    for id in [ToolId::XfsRepair, ToolId::XfsRepairMany] {
        assert_eq!(meaning(id, 1), Some(Meaning::Uncorrectable));
        assert_eq!(meaning(id, 2), None);
    }
    assert_eq!(meaning(ToolId::XfsRepairLog, 1), Some(Meaning::Uncorrectable));
    assert_eq!(meaning(ToolId::XfsRepairLog, 2), Some(Meaning::Unreplayed));
    assert_eq!(meaning(ToolId::E2fsckLook, 1), None);
    assert_eq!(meaning(ToolId::E2fsckLook, 12), Some(Meaning::Uncorrectable));
}

#[test]
fn every_tool_has_deadline_and_memory_limits() {
    for tool in TOOLS {
        assert!(tool.deadline.as_secs() >= 60 && tool.deadline.as_secs() <= 3600, "{}", tool.key);
        assert!(tool.data > 0 && tool.data <= tool.address_space, "{}", tool.key);
        // One thread for each of 192 processors, and the read-ahead threads.
        assert!(tool.stack >= 1 << 20 && 192 * tool.stack <= tool.data, "{}", tool.key);
        assert!(tool.path.starts_with("/usr/sbin/"), "{}", tool.key);
        assert!(tool.why.len() > 10);
        // Tools of XFS that may write fail without ioctl commands that are answered without being
        // executed.
        let pretended = ["mkfs-xfs", "xfs-repair-log"].contains(&tool.key);
        assert_eq!(!tool.pretended.is_empty(), pretended, "{}", tool.key);
    }
}

#[test]
fn xfs_above_64_groups_is_checked_without_prefetch() {
    let arguments = |groups| plain(ToolId::checks_xfs(groups), FsType::Xfs).join(" ");
    let ahead = format!("/usr/sbin/xfs_repair -n {DISK}");
    let alone = format!("/usr/sbin/xfs_repair -n -P {DISK}");
    for (groups, expected) in [(1, &ahead), (64, &ahead), (65, &alone), (u32::MAX, &alone)] {
        assert_eq!(&arguments(groups), expected, "{groups}");
    }
    // 17 threads for each group, 32 more, and one for each of 192 processors.
    let tool = ToolId::XfsRepair.tool().expect("a row");
    assert!((64 * 17 + 32 + 192) * tool.stack < tool.data);
}

#[test]
fn read_only_tools_run_in_no_modify_mode() {
    for tool in TOOLS.iter().filter(|tool| tool.device == DeviceAccess::ReadOnly) {
        // Of the look at the log, all writes fail.
        assert!(tool.tail.contains(&"-n") || tool.key == "xfs-repair-log", "{}", tool.key);
        assert_eq!(tool.purpose, Purpose::Check);
    }
}

#[test]
fn each_file_system_has_1_format_tool() {
    for fs in FsType::ALL {
        let makers: BTreeSet<_> = TOOLS
            .iter()
            .filter(|tool| tool.purpose == Purpose::Format && tool.file_systems.contains(fs))
            .map(|tool| tool.key)
            .collect();
        assert_eq!(makers, BTreeSet::from([ToolId::formats(*fs).as_str()]));
    }
}
