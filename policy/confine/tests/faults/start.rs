//! The first step of a `main`.

use std::fs::{self, File};
use std::io;
use std::os::fd::IntoRawFd;
use std::path::{Path, PathBuf};

use ebs_csi_confine::start;

use super::{Case, expect, refuse};

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
    ("only_the_variables_that_are_asked_for_stay", || {
        start::keep_environment(&["CONFINE_TEST_KE"])?;
        let left: Vec<_> = std::env::vars().map(|(name, _)| name).collect();
        expect(left == ["CONFINE_TEST_KEPT"], &left)
    }),
];

fn descriptor(number: i32) -> PathBuf {
    format!("/proc/self/fd/{number}").into()
}

fn is_open(number: i32) -> bool {
    fs::symlink_metadata(descriptor(number)).is_ok()
}
