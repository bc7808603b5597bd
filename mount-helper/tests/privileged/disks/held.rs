//! What the helper answers about who holds a volume, and the promises that it keeps.
use crate::rig::{
    Elsewhere, LONG, MIB, Rig, assert_refused, claim, disk, done, holding, make_filesystem,
    retry_refused, shell, staged, target, unstaged, volume,
};
use ebs_csi_wire::{
    AttachedAt, Disk, FsType, Held, Holder, Holding, Operation, Outcome, Promise, Refusal, VolumeId,
};
use std::time::Duration;

fn attached(seconds: u32) -> AttachedAt {
    AttachedAt::parse(&format!("2026-01-01T00:00:{seconds:02}Z")).expect("a time")
}

fn held_request(volume: &VolumeId, seconds: u32, question: u64) -> Operation {
    let (volume, attached_at) = (volume.clone(), Some(attached(seconds)));
    Operation::Held(Held { volume, attached_at, question })
}

#[track_caller]
fn held(rig: &Rig, volume: &VolumeId) -> Holding {
    holding(rig.call(held_request(volume, 1, 7)))
}

#[track_caller]
fn assert_held(rig: &Rig, volume: &VolumeId, holder: Holder) {
    assert_eq!(held(rig, volume), Holding { holder, question: 7, promised: false });
    // What holds a volume also keeps the node from a promise.
    let is_free = matches!(holder, Holder::Nothing | Holder::NoDisk);
    assert!(is_free || promise(rig, volume) == Outcome::from(Refusal::StillHeld));
}

fn promise(rig: &Rig, volume: &VolumeId) -> Outcome {
    let volume = volume.clone();
    rig.call(Operation::Promise(Promise { volume, attached_at: attached(1) }))
}

fn disk_attached(volume: &VolumeId, seconds: Option<u32>) -> Disk {
    Disk { attached_at: seconds.map(attached), ..disk(volume) }
}

#[test]
fn look_names_what_holds_the_disk() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(512 * MIB);
    assert_held(&rig, &volume, Holder::Nothing);
    staged(rig.stage(&volume, FsType::Ext4));
    assert_held(&rig, &volume, Holder::Mount);
    done(rig.publish(&volume, "one"));
    // Kubelet forgets a mount; the kernel does not.
    done(rig.unpublish(&volume, &target(&volume, "one")));
    assert_held(&rig, &volume, Holder::Mount);
    done(rig.unstage(&volume));
    assert_held(&rig, &volume, Holder::Nothing);

    done(rig.publish_block(&volume, "one"));
    assert_held(&rig, &volume, Holder::Publication);
    done(rig.unpublish_block(&volume, "one"));
    let claimed = claim(attached.path());
    assert_held(&rig, &volume, Holder::Claim);
    drop(claimed);
    let over = shell("losetup", &["--find", "--show", &attached.path()]);
    let seen = held(&rig, &volume).holder;
    shell("losetup", &["-d", &over]);
    assert_eq!(seen, Holder::BlockDevice);
    make_filesystem(FsType::Ext4, &attached.path());
    let elsewhere = Elsewhere::mount(&attached.path(), "rw");
    assert_held(&rig, &volume, Holder::Claim);
    drop(elsewhere);
    retry_refused(|| promise(&rig, &volume));

    let gone = self::volume();
    assert!(!rig.image(&gone).exists());
    assert_eq!(held(&rig, &gone).holder, Holder::NoDisk);
}

/// A mount where no volume is staged.
#[test]
fn mount_at_another_place_holds_the_volume() {
    let Some(rig) = Rig::start() else { return };
    let (volume, attached) = rig.made_disk(64 * MIB, FsType::Ext4);
    let place = rig.path("elsewhere");
    std::fs::create_dir(&place).expect("a directory");
    let place = place.display().to_string();
    rig.within(&["mount", &attached.path(), &place]);
    let seen = held(&rig, &volume).holder;
    rig.within(&["umount", &place]);
    assert_eq!(seen, Holder::MountElsewhere);
}

/// The look waits for the volume's other operation, and is busy while that takes longer.
#[test]
fn look_is_busy_during_stage() {
    let Some(rig) = Rig::start_held("stage-found") else { return };
    let (volume, _attached) = rig.new_disk(64 * MIB);
    let _client = rig.call_until("stage-found", rig.stage_operation(&volume, FsType::Ext4));
    for wait in [Duration::ZERO, Duration::from_millis(100)] {
        let answer = rig.client().call(held_request(&volume, 1, 1), wait);
        assert_eq!(answer, Refusal::Busy.into());
    }
    // Other volumes are not affected.
    let (other, _attached) = rig.new_disk(64 * MIB);
    assert_held(&rig, &other, Holder::Nothing);
}

/// Files that are open in another namespace keep a file system that is read-only: such a volume may
/// be detached (ADR 13), until it is staged again.
#[test]
fn volume_released_beside_copy_is_free_until_staged() {
    let Some(rig) = Rig::start() else { return };
    let (volume, _attached) = rig.staged_disk(512 * MIB, FsType::Ext4);
    let open = rig.open_copy(&volume);
    assert!(unstaged(rig.unstage(&volume)).copied);
    assert_held(&rig, &volume, Holder::Nothing);
    staged(rig.stage(&volume, FsType::Ext4));
    assert_held(&rig, &volume, Holder::Mount);
    assert!(unstaged(rig.unstage(&volume)).copied);
    assert_held(&rig, &volume, Holder::Nothing);
    drop(open);
}

/// The promise forbids stage and raw publication of this attachment, across a restart, and no
/// other attachment.
#[test]
fn promised_volume_is_refused_until_attached_anew() {
    let Some(mut rig) = Rig::start() else { return };
    let (volume, attached) = rig.new_disk(64 * MIB);
    assert!(!done(promise(&rig, &volume)));
    assert!(done(promise(&rig, &volume)), "asked for again");
    for restarted in [false, true] {
        if restarted {
            rig.restart(&[]);
        }
        assert!(held(&rig, &volume).promised);
        for seconds in [Some(1), Some(2), None] {
            // Another time of the same disk is the same attachment.
            let requested = disk_attached(&volume, seconds);
            let publish = rig.publish_disk(&requested, "one", false);
            let stage = rig.stage_with(&volume, FsType::Ext4, |request| request.disk = requested);
            for outcome in [stage, publish] {
                assert_refused(outcome, Refusal::Promised);
            }
        }
        let free = Holding { holder: Holder::Nothing, question: 7, promised: true };
        assert_eq!(held(&rig, &volume), free);
        let other = holding(rig.call(held_request(&volume, 2, 8)));
        assert!(!other.promised && other.question == 8);
    }
    let attached = rig.reattach(attached);
    for seconds in [Some(2), None] {
        // The annotation lists the former attachment for a while.
        assert!(done(promise(&rig, &volume)));
        let requested = disk_attached(&volume, seconds);
        staged(rig.stage_with(&volume, FsType::Ext4, |request| request.disk = requested));
        done(rig.unstage(&volume));
    }
    drop(attached);
}

/// A promise without a disk binds the attachment by its time.
#[test]
fn promise_without_disk_forbids_disk_that_appears() {
    let Some(rig) = Rig::start() else { return };
    let volume = volume();
    assert!(!done(promise(&rig, &volume)));
    let _attached = rig.attach(&volume, 64 * MIB);
    for seconds in [Some(1), None] {
        let requested = disk_attached(&volume, seconds);
        let stage = rig.stage_with(&volume, FsType::Ext4, |request| request.disk = requested);
        assert_refused(stage, Refusal::Promised);
    }
    let later = disk_attached(&volume, Some(2));
    staged(rig.stage_with(&volume, FsType::Ext4, |request| request.disk = later));
    done(rig.unstage(&volume));
}

/// Many questions of one connection are answered one by one.
#[test]
fn repeated_looks_have_their_own_numbers() {
    let Some(rig) = Rig::start() else { return };
    let (volume, _attached) = rig.new_disk(64 * MIB);
    let mut client = rig.client();
    for question in 0..50 {
        let answer = holding(client.call(held_request(&volume, 1, question), LONG));
        assert_eq!(answer.question, question);
    }
}
