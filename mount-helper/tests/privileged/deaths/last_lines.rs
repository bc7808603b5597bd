//! The journal of processes that die: their lines pass through a pipe to the supervisor.
use crate::rig::{AGENT, Rig, children, connect, role, send_signal, status, wait_until};
use rustix::process::Signal;
use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

/// Sends what is no frame; returns whether the helper closed the connection, which it logs before.
fn is_cut_off(rig: &Rig) -> bool {
    let mut stream = connect(&rig.socket(), AGENT);
    stream.set_read_timeout(Some(Duration::from_secs(2))).expect("timeout");
    let _ = stream.write_all(&[0xff; 4]);
    match stream.read(&mut [0]) {
        Ok(read) => read == 0,
        Err(e) => e.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn line_of_part_that_died_is_not_lost() {
    let Some(mut rig) = Rig::start() else { return };
    let broker = rig.part("broker");
    send_signal(rig.pid(), Signal::STOP);
    assert!(is_cut_off(&rig));
    send_signal(broker, Signal::KILL);
    wait_until(|| "the broker lives".to_owned(), || status(broker, "State").starts_with('Z'));
    assert!(!rig.journal().contains("peer-cut-off"), "the supervisor was to be stopped");
    send_signal(rig.pid(), Signal::CONT);
    assert_ne!(rig.ended(), Some(0));
    rig.wait_for(" broker peer-cut-off ");
}

#[test]
fn killed_supervisor_leaves_no_part_at_full_pipe() {
    let Some(mut rig) = Rig::start() else { return };
    let parts = children(rig.pid());
    send_signal(rig.pid(), Signal::STOP);
    // 64 KiB fit into the pipe.
    let sent = (0..2000).take_while(|_| is_cut_off(&rig)).count();
    assert!((100..2000).contains(&sent), "{sent} lines fit");
    send_signal(rig.pid(), Signal::KILL);
    rig.ended();
    for part in parts {
        wait_until(|| format!("{} is left", role(part)), || role(part) == "gone");
    }
}
