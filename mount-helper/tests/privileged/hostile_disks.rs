//! Crafted disks: each one is refused, checked or mounted by rule. The helper survives, and no disk
//! that holds a byte is formatted.
//!
//! A disk is a recipe: a base that the real tools make, a mutation, a seed. The test replays the
//! recipes of `hostile_disks/corpus.txt`; `HOSTILE_SEEDS=n` also tries n seeds of each base and
//! mutation.
mod image;
mod mutation;

use crate::rig::{Random, Rig, done, staged, volume};
use ebs_csi_wire::{FsType, Outcome, Refusal};
use image::{BASES, Base, Image};
use mutation::Mutate;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// Recipes that are kept because their outcome differs from their neighbours', or because they are
/// the plain case of a rule.
const CORPUS: &str = include_str!("hostile_disks/corpus.txt");

/// Refusals that are decided before the question where a file system was made.
const BY_CONTENT: [Refusal; 5] = [
    Refusal::CopyWithoutFilesystem,
    Refusal::UnknownContent,
    Refusal::ForeignContent,
    Refusal::PartitionTable,
    Refusal::DeviceTooSmall,
];

struct Recipe {
    base: (&'static str, &'static Base),
    name: String,
    mutate: Mutate,
}

impl Recipe {
    fn parse(line: &str) -> Self {
        let words: Vec<_> = line.split_whitespace().collect();
        let &[base, mutation, seed] = words.as_slice() else { panic!("{line}: three words") };
        let (_, mutate) =
            mutation::ALL.into_iter().find(|(name, _)| *name == mutation).expect(line);
        let (base, made) = BASES.iter().find(|(name, _)| *name == base).expect(line);
        let seed: u64 = seed.parse().expect(line);
        Self { name: format!("{base} {mutation} {seed}"), base: (*base, made), mutate }
    }
}

fn recipes() -> Vec<Recipe> {
    let kept = CORPUS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut recipes: Vec<_> = kept.map(Recipe::parse).collect();
    let request = std::env::var("HOSTILE_SEEDS").ok();
    let seeds: u64 = request.map_or(0, |n| n.parse().expect("HOSTILE_SEEDS is a number"));
    for (base, _) in &BASES {
        for (mutation, _) in mutation::ALL {
            for seed in 1..=seeds {
                let name = format!("{base} {mutation} {seed}");
                if recipes.iter().all(|recipe| recipe.name != name) {
                    recipes.push(Recipe::parse(&name));
                }
            }
        }
    }
    recipes
}

/// Only a blank image may be formatted. No disk ends a part of the helper, which still stages a
/// volume afterwards.
#[test]
fn crafted_disks_are_never_formatted_or_mounted_unchecked() {
    let Some(rig) = Rig::start() else { return };
    let parts = [rig.pid(), rig.part("broker"), rig.part("directories")];
    let tools = tempfile::tempdir().expect("tempdir");
    let mut images: BTreeMap<&str, Option<Image>> = BTreeMap::new();
    let mut tally: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for recipe in recipes() {
        let (base, made) = recipe.base;
        let made = images.entry(base).or_insert_with(|| made.make(tools.path()));
        // Not every machine has the tool that makes this base; `make` has reported that once.
        let Some(image) = made else { continue };
        let mut image = image.clone();
        let name = &recipe.name;
        (recipe.mutate)(&mut image, &mut Random::of(name));
        let how = run(&rig, &recipe, &image);
        println!("{name}: {how}");
        *tally.entry((base, how)).or_default() += 1;
        let now = [rig.pid(), rig.part("broker"), rig.part("directories")];
        assert_eq!(now, parts, "{name}: a part of the helper ended");
    }
    for ((base, how), count) in &tally {
        println!("{base:<14} {how:<28} {count}");
    }
    // The helper still works.
    let (volume, _attached) = rig.new_disk(64 << 20);
    assert!(staged(rig.stage(&volume, FsType::Ext4)).formatted);
    done(rig.unstage(&volume));
}

/// Stages the disk as ext4 or as XFS, whichever it resembles, and compares the outcome with the
/// rules.
fn run(rig: &Rig, recipe: &Recipe, image: &Image) -> &'static str {
    let name = &recipe.name;
    let volume = volume();
    image.write(&rig.image(&volume));
    let attached = rig.attach_image(rig.image(&volume));
    let fs = if recipe.base.0 == "xfs" { FsType::Xfs } else { FsType::Ext4 };
    let mut outcome = rig.stage_copy(&volume, fs);
    // A copy is never formatted. A refusal because of the content applies to each volume, so the
    // stage is repeated with a blank origin: nothing is mounted unchecked.
    if matches!(&outcome, Outcome::Refused(refused) if BY_CONTENT.contains(&refused.reason)) {
        outcome = rig.stage(&volume, fs);
    }
    let how = match &outcome {
        Outcome::Refused(refused) => refused.reason.as_str(),
        // A failed stage mounted nothing, and a repeated request tries again.
        Outcome::Failed(failed) => failed.step.as_str(),
        Outcome::Staged(staged) if staged.formatted => {
            assert!(image.is_blank(), "{name}: formatted over what was there");
            "formatted, was blank"
        }
        Outcome::Staged(staged) => {
            assert!(staged.checked, "{name}: mounted unchecked");
            "checked and mounted"
        }
        other => panic!("{name}: {other:?}"),
    };
    if matches!(outcome, Outcome::Staged(_)) {
        done(rig.unstage(&volume));
        let fresh = rig.path("outside/fresh");
        image.write(&fresh);
        // A mount rewrites some fields of the first XFS superblock alone. A checker that found
        // nothing before the mount reports that difference.
        let as_it_came = fs == FsType::Xfs && sound(&fresh, fs);
        assert!(as_it_came || sound(&attached.image, fs), "{name}: what was mounted is damaged");
    }
    assert_eq!(rig.mounts(&attached), 0, "{name}");
    how
}

/// Returns whether an unconfined checker finds the file system sound.
fn sound(image: &Path, fs: FsType) -> bool {
    let (tool, arguments) = match fs {
        FsType::Xfs => ("xfs_repair", ["-n", "-f"]),
        FsType::Ext3 | FsType::Ext4 => ("e2fsck", ["-f", "-n"]),
    };
    let output = Command::new(tool).args(arguments).arg(image).stdin(Stdio::null()).output();
    output.expect(tool).status.success()
}

#[test]
fn same_seed_mutates_disk_image_identically() {
    let mut image = Image::blank(4 << 20);
    image.put(0, &[7; 70_000]);
    for (name, mutate) in mutation::ALL {
        let (mut first, mut second) = (image.clone(), image.clone());
        mutate(&mut first, &mut Random::of("a"));
        mutate(&mut second, &mut Random::of("a"));
        assert_eq!(first, second, "{name}");
        assert_ne!(first, image, "{name}: changed nothing");
    }
}
