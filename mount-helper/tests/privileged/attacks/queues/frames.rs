//! Connections that are silent or slow, and what the journal says about them.
use crate::rig::{AGENT, Client, LONG, Rig, assert_refused, connect, volume, wait_until};
use ebs_csi_wire::{Inspect, KubeletPath, Operation, Refusal, Request, Unpublish, frame};
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

/// More connections than the helper keeps.
const SILENT: usize = 300;

/// N22: One byte arrives each second, and the frame never reaches its declared length.
#[test]
fn slowly_sent_frame_closes_connection() {
    let Some(rig) = Rig::start() else { return };
    let mut client = rig.client();
    let request = Request {
        id: 2,
        wait: Duration::ZERO,
        operation: Operation::Inspect(Inspect { first: u32::MAX }),
    };
    let mut bytes = frame::framed(&request.encode()).expect("frame");
    bytes[..4].copy_from_slice(&1000_u32.to_le_bytes());
    let stream = &mut client.stream;
    stream.set_read_timeout(Some(Duration::from_secs(1))).expect("timeout");
    let end = Instant::now() + LONG;
    let mut sent = 0_usize;
    loop {
        assert!(Instant::now() < end, "still connected after {sent} bytes");
        if stream.write_all(&bytes[sent.min(7)..=sent.min(7)]).is_err() {
            break;
        }
        sent += 1;
        match stream.read(&mut [0]) {
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            _ => break,
        }
    }
    rig.wait_for("peer-cut-off");
}

/// N22: 300 connections that say nothing, and one that asks.
#[test]
fn silent_connections_yield_to_new_ones() {
    let Some(rig) = Rig::start() else { return };
    let mut silent: Vec<_> = (0..SILENT).map(|_| connect(&rig.socket(), AGENT)).collect();
    let mut client = Client::new(connect(&rig.socket(), AGENT));
    client.stream.set_read_timeout(Some(LONG)).expect("timeout");
    client.greet();
    // The helper closed the oldest connections and serves the youngest.
    let mut youngest = Client::new(silent.pop().expect("a connection"));
    youngest.greet();
    assert!(matches!(silent[0].read(&mut [0]), Ok(0) | Err(_)));
}

/// N22: 2,000 broken frames and 10,000 refused requests.
#[test]
fn journal_suppresses_but_counts_flooding_events() {
    const BROKEN: usize = 2_000;
    const REFUSED: usize = 10_000;
    let Some(rig) = Rig::start() else { return };
    for _ in 0..BROKEN {
        let mut stream = connect(&rig.socket(), AGENT);
        // The helper may close the connection before this side has written.
        let _ = stream.write_all(&[0xff; 4]);
        let _ = stream.read(&mut [0]);
    }
    let mut client = rig.client();
    let outside = Operation::Unpublish(Unpublish {
        volume: volume(),
        target: KubeletPath::parse("/etc/x").expect("path"),
    });
    for _ in 0..REFUSED {
        assert_refused(client.call(outside.clone(), LONG), Refusal::PathOutside);
    }
    rig.wait_for(" suppressed ");
    let lines = rig.journal().lines().count();
    assert!(lines < (BROKEN + REFUSED) / 3, "{lines} lines");
    let counted = || {
        let journal = rig.journal();
        let suppressed = journal.lines().filter(|line| line.contains(" suppressed "));
        let counts =
            suppressed.filter_map(|line| line.split("lines=").nth(1)?.parse::<usize>().ok());
        let whole = journal.matches(" peer-cut-off ").count()
            + journal.matches("reason=path-outside").count();
        whole + counts.sum::<usize>()
    };
    wait_until(|| format!("{} are counted", counted()), || counted() >= BROKEN + REFUSED);
}
