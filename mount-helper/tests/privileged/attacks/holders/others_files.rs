//! A scripted broker that has the socket of the directories process.
use crate::rig::{Rig, copy_descriptor, descriptors};
use ebs_csi_mount_helper::channel;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::io::Errno;
use std::fs;
use std::path::Path;

const MAKE_DIRECTORY: u8 = 1;
const REMOVE_DIRECTORY: u8 = 3;
const REMOVE_FILE: u8 = 4;

/// A second descriptor of the broker's end of the socket.
struct Broker(OwnedFd);

impl Broker {
    /// Finds the broker's socket on which a request makes a directory.
    fn of(rig: &Rig) -> Self {
        let broker = rig.part("broker");
        let pods = directory(&rig.path("kubelet/pods"));
        let open = descriptors(broker).into_iter();
        for (number, _) in open.filter(|(_, to)| to.starts_with("socket:")) {
            let socket = Self(copy_descriptor(broker, &number).expect("a copy"));
            if socket.call(MAKE_DIRECTORY, "probe", &pods) == Some(Ok(())) {
                assert!(rig.path("kubelet/pods/probe").is_dir());
                return socket;
            }
        }
        panic!("no socket to the directories process");
    }

    fn call(&self, act: u8, name: &str, parent: &OwnedFd) -> Option<Result<(), Errno>> {
        let request = [&[act], name.as_bytes()].concat();
        channel::send(&self.0, &request, &[parent.as_fd()]).ok()?;
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        if poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&second)) != Ok(1) {
            return None;
        }
        let (reply, _) = channel::receive(&self.0).ok()?;
        let errno = i32::from_le_bytes(reply.try_into().ok()?);
        Some(match errno {
            0 => Ok(()),
            errno => Err(Errno::from_raw_os_error(errno)),
        })
    }
}

fn directory(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).expect("directory")
}

/// N16: a broker has files, links, pipes and sockets beneath kubelet's directory removed.
#[test]
fn only_empty_root_owned_entries_are_removed() {
    let Some(rig) = Rig::start() else { return };
    let broker = Broker::of(&rig);
    let place = rig.path("kubelet/pods/victims");
    fs::create_dir(&place).expect("mkdir");
    let at = |name: &str| place.join(name);
    fs::write(at("etc-hosts"), "127.0.0.1 localhost\n").expect("write");
    fs::write(at("of-another"), "").expect("write");
    std::os::unix::fs::chown(at("of-another"), Some(1000), Some(1000)).expect("chown");
    fs::write(at("linked"), "").expect("write");
    fs::hard_link(at("linked"), at("linked-too")).expect("link");
    std::os::unix::fs::symlink("etc-hosts", at("link")).expect("symlink");
    mknodat(CWD, at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("mkfifo");
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).expect("bind");
    fs::create_dir_all(at("full/kept")).expect("mkdir");
    // The visible file at this name is empty, and the file beneath the mount is not.
    fs::write(at("covered"), "kept").expect("write");
    fs::write(at("cover"), "").expect("write");
    let text = |name: &str| at(name).to_str().expect("utf-8").to_owned();
    rig.within(&["mount", "--bind", &text("cover"), &text("covered")]);
    let parent = directory(&rig.inside("pods/victims"));
    let names = "etc-hosts of-another linked linked-too link pipe socket full covered";
    for name in names.split(' ') {
        for act in [REMOVE_FILE, REMOVE_DIRECTORY] {
            let answer = broker.call(act, name, &parent).expect("an answer");
            assert!(answer.is_err(), "{name} {act}");
        }
        assert!(at(name).symlink_metadata().is_ok(), "{name}");
    }
    rig.within(&["umount", &text("covered")]);
    // Empty files and directories, as the helper makes them.
    fs::write(at("target"), "").expect("write");
    assert_eq!(broker.call(REMOVE_FILE, "target", &parent), Some(Ok(())));
    fs::create_dir(at("mount")).expect("mkdir");
    assert_eq!(broker.call(REMOVE_DIRECTORY, "mount", &parent), Some(Ok(())));
    assert!(!at("target").exists() && !at("mount").exists());
}
