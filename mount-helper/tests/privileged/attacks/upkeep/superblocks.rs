//! What an ext superblock makes the kernel do besides mounting.
use crate::rig::{
    Attached, MIB, Rig, assert_refused, done, reason, refusal, shell, staged, wait_until,
};
use ebs_csi_wire::{ContentState, FsType, Observation, Refusal, Refused, Signature};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Sets default mount options in words, as tune2fs does with `-E mount_opts=`, but with commas.
fn set_words(attached: &Attached, words: &str) {
    let command = format!("ssv mount_opts {words}");
    shell("debugfs", &["-w", "-R", &command, &attached.path()]);
}

/// N9: errors=panic in s_errors, in s_mount_opts and in both, then an error.
#[test]
fn errors_panic_in_superblock_does_not_panic_node() {
    let Some(rig) = Rig::start() else { return };
    for (behaviour, words, after) in [
        ("continue", "errors=panic", "remount-ro"),
        ("continue", "errors=continue,errors=panic", "remount-ro"),
        ("continue", "commit=9", "continue"),
        ("panic", "commit=9", "remount-ro"),
        ("panic", "errors=continue", "continue"),
        ("remount-ro", "commit=9", "remount-ro"),
    ] {
        let (volume, attached) = rig.formatted_disk(64 * MIB, FsType::Ext4);
        shell("tune2fs", &["-e", behaviour, &attached.path()]);
        set_words(&attached, words);
        for read_only in [true, false] {
            staged(rig.stage_with(&volume, FsType::Ext4, |request| request.read_only = read_only));
            let options = attached.options_in_force();
            assert!(
                options.lines().any(|line| line == format!("errors={after}")),
                "{behaviour} {words}: {options}"
            );
            if !read_only {
                attached.provoke_error();
                let count = format!("/sys/fs/ext4/{}/errors_count", attached.name);
                let is_counted = || fs::read_to_string(&count).map_or(true, |count| count != "0\n");
                wait_until(|| "no error is counted".to_owned(), is_counted);
            }
            done(rig.unstage(&volume));
        }
    }
}

/// N9: default mount options that no request may ask for.
#[test]
fn superblock_mount_options_outside_allowlist_are_refused() {
    let Some(rig) = Rig::start() else { return };
    for words in ["journal_dev=2065", "journal_path=/dev/sda", "noload", "dax", "made_up"] {
        let (volume, attached) = rig.formatted_disk(64 * MIB, FsType::Ext4);
        set_words(&attached, words);
        let reason = reason(rig.stage(&volume, FsType::Ext4));
        assert_eq!(reason, Refusal::SuperblockAsks, "{words}");
        assert_eq!(rig.mounts(&attached), 0);
    }
    let (volume, attached) = rig.formatted_disk(64 * MIB, FsType::Ext4);
    shell("debugfs", &["-w", "-R", "ssv default_mount_opts 0x8000", &attached.path()]);
    assert_refused(rig.stage(&volume, FsType::Ext4), Refusal::SuperblockAsks);
    // Options that administrators usually set are accepted.
    let (volume, attached) = rig.formatted_disk(64 * MIB, FsType::Ext4);
    let bits = "acl,user_xattr,journal_data_writeback";
    shell("tune2fs", &["-o", bits, &attached.path()]);
    set_words(&attached, "nodelalloc,commit=30,data=ordered");
    staged(rig.stage(&volume, FsType::Ext4));
    assert!(attached.options_in_force().contains("commit=30"));
    done(rig.unstage(&volume));
}

/// N13: an ext4 whose journal is another volume's disk, and that disk itself.
#[test]
fn an_external_journal_is_refused() {
    let Some(rig) = Rig::start() else { return };
    let (other, journal) = rig.new_disk(64 * MIB);
    let (victim, attached) = rig.new_disk(64 * MIB);
    shell("mke2fs", &["-q", "-F", "-O", "journal_dev", &journal.path()]);
    let device = format!("device={}", journal.path());
    shell("mke2fs", &["-q", "-F", "-t", "ext4", "-J", &device, &attached.path()]);
    for read_only in [false, true] {
        let reason =
            reason(rig.stage_with(&victim, FsType::Ext4, |request| request.read_only = read_only));
        assert_eq!(reason, Refusal::SuperblockAsks);
    }
    let journal_seen =
        Observation::Content { signature: Signature::ExtJournal, state: ContentState::Sound };
    let refused = Refused::because(Refusal::ForeignContent, journal_seen);
    assert_eq!(refusal(rig.stage(&other, FsType::Ext4)), refused);
    // Crafted superblocks: without the number of the internal journal, with the number of another
    // disk, and both.
    let number = fs::metadata(journal.path()).expect("device").rdev();
    let number = rustix::fs::major(number) << 8 | rustix::fs::minor(number);
    for changes in [
        vec!["ssv journal_inum 0".to_owned()],
        vec![format!("ssv journal_dev {number}")],
        vec!["ssv journal_inum 0".to_owned(), format!("ssv journal_dev {number}")],
    ] {
        let (volume, attached) = rig.formatted_disk(64 * MIB, FsType::Ext4);
        for change in &changes {
            shell("debugfs", &["-w", "-R", change, &attached.path()]);
        }
        let reason = reason(rig.stage(&volume, FsType::Ext4));
        assert_eq!(reason, Refusal::SuperblockAsks, "{changes:?}");
        assert_eq!(rig.mounts(&attached), 0);
    }
}
