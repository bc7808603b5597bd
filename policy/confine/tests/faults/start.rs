//! The first step of a `main`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::IntoRawFd;
use std::path::{Path, PathBuf};

use ebs_csi_confine::start;

use super::{Case, refuse};

pub(super) const CASES: &[(&str, Case)] = &[
    ("inherited_descriptors_are_closed_but_for_those_that_are_kept", || {
        start::close_inherited_descriptors(&[]).map_err(text)?;
        let mut opened = Vec::new();
        for _ in 0..5 {
            // No value owns this descriptor, like a descriptor that a parent process left open.
            opened.push(File::open("/dev/null").map_err(text)?.into_raw_fd());
        }
        start::close_inherited_descriptors(&[opened[0], opened[2], opened[3]]).map_err(text)?;
        let left = [0, 1, 2].into_iter().chain(opened).map(is_open);
        let left: Vec<bool> = left.collect();
        if left == [true, true, true, true, false, true, true, false] {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    }),
    ("a_closed_standard_descriptor_becomes_dev_null", || {
        start::close_inherited_descriptors(&[]).map_err(text)?;
        start::close_inherited_descriptors(&[3]).map_err(text)?;
        if is_open(3) {
            return Err("/dev/null was opened without a need".to_owned());
        }
        // Rust opens standard descriptors before `main`. Here fcntl(2) says of each that it is
        // closed, and the first free number is 3.
        refuse(libc::SYS_fcntl, libc::EBADF);
        start::close_inherited_descriptors(&[3]).map_err(text)?;
        match fs::read_link(descriptor(3)).map_err(text)? {
            sink if sink == Path::new("/dev/null") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }),
    ("descriptors_that_cannot_be_closed_are_an_error", || {
        refuse(libc::SYS_close_range, libc::ENOSYS);
        match start::close_inherited_descriptors(&[]) {
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }),
    ("only_the_variables_that_are_asked_for_stay", || {
        start::keep_environment(&["CONFINE_TEST_KE"]).map_err(text)?;
        let left: BTreeMap<String, String> = std::env::vars().collect();
        if left.keys().collect::<Vec<_>>() == ["CONFINE_TEST_KEPT"] {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    }),
];

fn text(error: io::Error) -> String {
    error.to_string()
}

fn descriptor(number: i32) -> PathBuf {
    format!("/proc/self/fd/{number}").into()
}

fn is_open(number: i32) -> bool {
    fs::symlink_metadata(descriptor(number)).is_ok()
}
