//! The first step of a `main`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd};
use std::path::{Path, PathBuf};

use ebs_csi_confine::{Entering, Fault, start};
use ebs_csi_policy::profile::environment::KEPT;
use ebs_csi_policy::profile::{self, Profile};

use super::{Case, TestResult, expect, refuse};

pub(super) const CASES: &[(&str, Case)] = &[
    ("inherited_descriptors_are_closed_but_for_those_that_are_kept", || {
        start::close_inherited_descriptors(&[])?;
        let mut opened = Vec::new();
        for _ in 0..5 {
            // No value owns this descriptor, like a descriptor that a parent process left open.
            opened.push(File::open("/dev/null")?.into_raw_fd());
        }
        start::close_inherited_descriptors(&[opened[0], opened[2], opened[3]])?;
        let left: Vec<bool> = [0, 1, 2].into_iter().chain(opened).map(is_open).collect();
        expect(left == [true, true, true, true, false, true, true, false], &left)
    }),
    ("a_closed_standard_descriptor_becomes_dev_null", || {
        start::close_inherited_descriptors(&[])?;
        start::close_inherited_descriptors(&[3])?;
        expect(!is_open(3), &"/dev/null was opened without a need")?;
        // Rust opens standard descriptors before `main`. Here fcntl(2) says of each that it is
        // closed, and the first free number is 3.
        refuse(libc::SYS_fcntl, libc::EBADF);
        start::close_inherited_descriptors(&[3])?;
        let sink = fs::read_link(descriptor(3))?;
        expect(sink == Path::new("/dev/null"), &sink)
    }),
    ("descriptors_that_cannot_be_closed_are_an_error", || {
        refuse(libc::SYS_close_range, libc::ENOSYS);
        let error = start::close_inherited_descriptors(&[]).err();
        let errno = error.as_ref().and_then(io::Error::raw_os_error);
        expect(errno == Some(libc::ENOSYS), &error)
    }),
    ("no_number_of_a_kept_descriptor_stays_free", || {
        start::close_inherited_descriptors(&[])?;
        let kept = i32::try_from(profile::OPENER.kept_descriptors)?;
        let output = io::stdout();
        let beyond = rustix::io::fcntl_dupfd_cloexec(&output, kept)?;
        let entering = Entering::begin(profile::OPENER)?;
        let refused = entering.keep_descriptors(&[beyond.as_fd()]).err();
        let is_right = matches!(refused, Some(Fault::Descriptor(number)) if number == kept);
        expect(is_right, &refused)?;
        drop(beyond);
        let entering = Entering::begin(profile::OPENER)?.keep_descriptors(&[output.as_fd()])?;
        let free: Vec<i32> = (0..kept).filter(|number| !is_open(*number)).collect();
        expect(free.is_empty(), &free)?;
        // The step before the filter does it once more, and leaves nothing open beyond them.
        let entering = entering.keep_descriptors(&[])?;
        let next = File::open("/dev/null")?.as_raw_fd();
        drop(entering);
        expect(next == kept, &next)
    }),
];

/// Returns the names that some row keeps, and their neighbours.
pub(super) fn variables() -> BTreeSet<String> {
    let begins = KEPT.iter().flat_map(|row| row.begins);
    let near = begins.flat_map(|begin| {
        let shorter = begin.get(..begin.len() - 1).unwrap_or_default();
        [(*begin).to_owned(), shorter.to_owned(), format!("{begin}X"), format!("X{begin}")]
    });
    near.chain(["LD_PRELOAD_NOT".to_owned()]).collect()
}

/// Removes the variables that a profile does not keep, in a process that has [`variables`] alone,
/// and a descriptor that a parent process left open.
pub(super) fn keeps_variables(profile: &Profile) -> TestResult {
    let inherited = File::open("/dev/null")?.into_raw_fd();
    start::clean(profile)?;
    expect(!is_open(inherited), &inherited)?;
    let left: BTreeSet<String> = std::env::vars().map(|(name, _)| name).collect();
    let rows = KEPT.iter().filter(|row| row.profiles.contains(&profile.name));
    let begins: Vec<_> = rows.flat_map(|row| row.begins).collect();
    let is_kept = |name: &String| begins.iter().any(|begin| name.starts_with(**begin));
    let wanted: BTreeSet<String> = variables().into_iter().filter(is_kept).collect();
    let is_some = begins.is_empty() == wanted.is_empty() && wanted.len() < variables().len();
    expect(is_some && left == wanted, &(left, wanted))
}

fn descriptor(number: i32) -> PathBuf {
    format!("/proc/self/fd/{number}").into()
}

fn is_open(number: i32) -> bool {
    fs::symlink_metadata(descriptor(number)).is_ok()
}
