//! A helper that also listens at a vsock port. The peers are in the same machine (CID 1), which
//! needs the kernel's vsock_loopback; the virtual machine has it.
use crate::rig::{
    Client, HELPER, LONG, Rig, able, check_profiles, children, copy_descriptor, descriptors, done,
    inventory, role, send_signal, set_mode, staged, staging, status, text, wait_until,
};
use ebs_csi_wire::{
    Challenge, FsType, Hello, Inspect, Key, KeyStep, Nonce, Operation, Outcome, PROTOCOL_WITH_KEY,
    Proof, Request, Side, Transcript, frame,
};
use rustix::net::AddressFamily;
use rustix::net::sockopt::{socket_acceptconn, socket_domain};
use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PORT: u32 = 5000;
/// VMADDR_CID_LOCAL.
const LOCAL: u32 = 1;
const AGENT: Nonce = Nonce([1; 32]);

/// Returns whether a program here can connect to another one by CID 1, and prints the reason if
/// not.
fn able_to_connect() -> bool {
    if !able() {
        return false;
    }
    if let Err(why) = vsock::VsockListener::bind_with_cid_port(LOCAL, PORT - 1) {
        println!("skipped: no vsock_loopback in this kernel: {why}");
        return false;
    }
    true
}

/// Bytes that stand nowhere in a program.
const KEY: [u8; 32] = *b"7bXq0.ZsVy1-mK3wLr8/pTf5Hc9+Ng2d";

fn key() -> Key {
    Key::new(&KEY).expect("a key")
}

fn key_file(directory: &tempfile::TempDir) -> PathBuf {
    let path = directory.path().join("key");
    fs::write(&path, KEY).expect("write");
    set_mode(&path, 0o400);
    path
}

/// Starts a helper that lets these machines connect at the port.
fn rig(peers: &str) -> Option<(Rig, tempfile::TempDir)> {
    if !able_to_connect() {
        return None;
    }
    let directory = tempfile::tempdir().expect("tempdir");
    let file = key_file(&directory);
    let listen = format!("vsock://{LOCAL}:{PORT}");
    let flags = ["--listen", &listen, "--vsock-key-file", text(&file), "--vsock-peers", peers];
    Some((Rig::start_with(&flags)?, directory))
}

fn connect() -> Client {
    let stream = vsock::VsockStream::connect_with_cid_port(LOCAL, PORT).expect("connect");
    // Reading, writing and time limits are the same calls for each kind of socket.
    Client::new(UnixStream::from(OwnedFd::from(stream)))
}

/// Sends the nonce of an agent, and returns what both sides have said then.
fn challenged(client: &mut Client) -> (Transcript, Proof) {
    match client.call(nonce(), Duration::ZERO) {
        Outcome::Challenge(Challenge { nonce, proof }) => {
            let said = Transcript { port: PORT, agent: AGENT, helper: nonce };
            (said, proof)
        }
        other => panic!("{other:?}"),
    }
}

fn prove(client: &mut Client, proof: Proof) {
    let hello = Hello::with_key(KeyStep::Proof(proof));
    client.send(Operation::Hello(hello), Duration::ZERO);
}

/// Connects as an agent does, and returns the proof that it gave.
fn greeted() -> (Client, Proof) {
    let mut client = connect();
    let (said, proof) = challenged(&mut client);
    assert!(key().verifies(Side::Helper, &said, &proof));
    let own = key().prove(Side::Agent, &said);
    prove(&mut client, own);
    match client.receive() {
        Some(Outcome::Welcome(welcome)) => assert_eq!(welcome.version, PROTOCOL_WITH_KEY),
        other => panic!("{other:?}"),
    }
    (client, own)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[test]
fn proved_peer_stages_as_unix_peer_does() {
    let Some((rig, _directory)) = rig("1") else { return };
    let (volume, _attached) = rig.new_disk(64 << 20);
    let (mut over_vsock, _) = greeted();
    let mut over_unix = rig.client();
    let stage = rig.stage_operation(&volume, FsType::Ext4);
    let unstage = rig.unstage_operation(&volume, &staging(&volume));
    assert!(staged(over_vsock.call(stage.clone(), LONG)).formatted);
    assert_eq!(inventory(&mut over_unix).volumes.len(), 1);
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..11 {
        for (client, times) in [&mut over_vsock, &mut over_unix].into_iter().zip(&mut times) {
            done(client.call(unstage.clone(), LONG));
            let started = Instant::now();
            assert!(!staged(client.call(stage.clone(), LONG)).already);
            times.push(started.elapsed());
        }
    }
    done(over_vsock.call(unstage, LONG));
    let [vsock, unix] = times.map(median);
    println!("a stage took {vsock:?} over vsock and {unix:?} over unix (medians of 11)");
}

/// Sends something without knowledge of the key; gets the proof of an earlier connection, too.
type Attack = fn(&mut Client, Proof);

const WRONG: &str = "a wrong proof of the key";

/// What a peer without the key does, and the helper's reason to cut it off.
const ATTACKS: [(&str, Attack, &str); 12] = [
    ("request first", |peer, _| peer.send(inspect(), LONG), "a request before hello"),
    (
        "hello without key",
        |peer, _| peer.send(Operation::Hello(Hello::OURS), LONG),
        "a hello of a version without a key",
    ),
    ("proof first", prove, "a proof of the key before a nonce"),
    ("wrong proof", |peer, _| prove_by(peer, |_, _| Proof([0; 32])), WRONG),
    ("other key", |peer, _| prove_by(peer, |said, _| other_key().prove(Side::Agent, said)), WRONG),
    ("replayed proof", |peer, earlier| prove_by(peer, |_, _| earlier), WRONG),
    ("helper's own proof", |peer, _| prove_by(peer, |_, helpers| helpers), WRONG),
    ("second nonce", |peer, _| send_challenged(peer, nonce()), "a second nonce"),
    ("request after nonce", |peer, _| send_challenged(peer, inspect()), "a request before hello"),
    ("silent", |_, _| (), "no proof of the key in time"),
    (
        "half a frame",
        |peer, _| {
            let request = Request { id: 1, wait: LONG, operation: nonce() };
            let whole = frame::framed(&request.encode()).expect("frame");
            peer.stream.write_all(&whole[..9]).expect("write");
        },
        "no proof of the key in time",
    ),
    ("no frame", |peer, _| drop(peer.stream.write_all(&[0xff; 65536])), "a frame of"),
];

/// Sends a proof that may depend on what was said and on the helper's own proof.
fn prove_by(peer: &mut Client, proof: impl FnOnce(&Transcript, Proof) -> Proof) {
    let (said, helpers) = challenged(peer);
    prove(peer, proof(&said, helpers));
}

fn send_challenged(peer: &mut Client, operation: Operation) {
    challenged(peer);
    peer.send(operation, LONG);
}

fn other_key() -> Key {
    Key::new(&[8; 32]).expect("a key")
}

fn inspect() -> Operation {
    Operation::Inspect(Inspect::default())
}

fn nonce() -> Operation {
    Operation::Hello(Hello::with_key(KeyStep::Nonce(AGENT)))
}

#[test]
fn unproved_peer_is_cut_off_and_journalled() {
    let Some((rig, _directory)) = rig("1,2") else { return };
    let (mut steady, earlier) = greeted();
    // The next agent is served, and the one before still is.
    let mut check_agents = || {
        inventory(&mut greeted().0);
        inventory(&mut steady);
    };
    for (what, attack, why) in ATTACKS {
        let times = rig.journal().matches(why).count();
        let mut peer = connect();
        attack(&mut peer, earlier);
        peer.check_cut_off();
        rig.wait_for_more(why, times);
        check_agents();
        println!("{what}: cut off");
    }
    // A peer may also leave by itself.
    drop(connect());
    check_agents();
}

/// More connections than may be unproved, and each stays until it is cut off.
#[test]
fn silent_peers_do_not_displace_agents() {
    let Some((rig, _directory)) = rig("1") else { return };
    let mut over_unix = rig.client();
    let silent: Vec<Client> = (0..40).map(|_| connect()).collect();
    inventory(&mut over_unix);
    drop(greeted());
    drop(silent);
}

#[test]
fn peer_of_other_machine_is_refused() {
    let Some((rig, _directory)) = rig("2") else { return };
    connect().check_cut_off();
    rig.wait_for("peer-refused cid=1");
}

/// Returns for each socket of vsock that a process has whether it is a listener.
fn vsock_listeners(pid: u32) -> Vec<bool> {
    let open = descriptors(pid).into_iter();
    let copies = open.filter_map(|(number, _)| copy_descriptor(pid, &number).ok());
    let sockets = copies.filter(|copy| socket_domain(copy) == Ok(AddressFamily::VSOCK));
    sockets.map(|copy| socket_acceptconn(&copy).expect("a socket")).collect()
}

/// Returns whether the memory that a process can write to contains these bytes.
fn has_in_memory(pid: u32, bytes: &[u8]) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
    let memory = fs::File::open(format!("/proc/{pid}/mem")).expect("memory");
    maps.lines().filter(|line| line.contains(" rw")).any(|line| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let (start, end) = range.expect("a range");
        let number = |hex| u64::from_str_radix(hex, 16).expect("a number");
        let mut found = vec![0; (number(end) - number(start)) as usize];
        memory.read_exact_at(&mut found, number(start)).expect("its memory");
        found.windows(bytes.len()).any(|window| window == bytes)
    })
}

#[test]
fn only_relay_has_vsock_port_and_key() {
    let Some((rig, _directory)) = rig("1") else { return };
    let (mut client, _) = greeted();
    inventory(&mut client);
    let relay = rig.part("relay");
    let users = status(relay, "Uid");
    assert_eq!(users.replace('\t', " "), "65523 65523 65523 65523");
    assert_eq!(vsock_listeners(relay), [true]);
    assert_eq!(vsock_listeners(rig.part("broker")), [false]);
    for pid in children(rig.pid()).into_iter().chain([rig.pid()]) {
        assert_eq!(has_in_memory(pid, &KEY), pid == relay, "{}", role(pid));
    }
    check_profiles(rig.pid());
}

/// The peer has sent its proof when the relay ends, and the relay has not read it.
#[test]
fn killed_relay_ends_helper_and_half_proved_peer() {
    let Some((mut rig, _directory)) = rig("1") else { return };
    let mut client = connect();
    let (said, _) = challenged(&mut client);
    let (relay, parts) = (rig.part("relay"), children(rig.pid()));
    send_signal(relay, Signal::STOP);
    prove(&mut client, key().prove(Side::Agent, &said));
    send_signal(relay, Signal::KILL);
    client.check_cut_off();
    assert_ne!(rig.ended(), Some(0));
    for part in parts {
        wait_until(|| format!("{} is left", role(part)), || role(part) == "gone");
    }
}

/// The ports are free when the next helper binds them.
#[test]
fn next_helper_serves_after_killed_supervisor() {
    let Some((mut rig, directory)) = rig("1") else { return };
    let file = directory.path().join("key");
    let listen = format!("vsock://{LOCAL}:{PORT}");
    let flags = ["--listen", &listen, "--vsock-key-file", text(&file), "--vsock-peers", "1"];
    for _ in 0..5 {
        let (agent, _) = greeted();
        send_signal(rig.pid(), Signal::KILL);
        rig.ended();
        rig.run(&flags);
        drop(agent);
    }
    inventory(&mut greeted().0);
}

#[test]
fn relay_serves_agents_after_sigterm() {
    let Some((mut rig, _directory)) = rig("1") else { return };
    let (volume, attached) = rig.staged_disk(64 << 20, FsType::Ext4);
    let (agent, _) = greeted();
    send_signal(rig.pid(), Signal::TERM);
    rig.wait_for(" broker stopping");
    let unstage = rig.unstage_operation(&volume, &staging(&volume));
    done(greeted().0.call(unstage, LONG));
    assert_eq!(rig.mounts(&attached), 0);
    drop(agent);
    assert_eq!(rig.ended(), Some(0));
}

#[test]
fn unusable_vsock_setting_ends_helper_before_serving() {
    if !able() {
        return;
    }
    let directory = tempfile::tempdir().expect("tempdir");
    let good = key_file(&directory);
    let file = |name: &str, bytes: &[u8], mode: u32| {
        let path = directory.path().join(name);
        fs::write(&path, bytes).expect("write");
        set_mode(&path, mode);
        path
    };
    let (open, empty) = (file("open", &[7; 32], 0o444), file("empty", &[], 0o400));
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&good, &link).expect("symlink");
    let missing = directory.path().join("missing");
    let socket = directory.path().join("helper.sock");
    for (listen, key, status, says) in [
        ("vsock://0:5000", Some(&good), 64, "CID"),
        ("vsock://2:5000", Some(&good), 64, "CID"),
        ("vsock://:0", Some(&good), 64, "port"),
        ("vsock://:1023", Some(&good), 64, "port"),
        ("vsock://1", Some(&good), 64, "vsock://[CID]:PORT"),
        ("vsock://:5000", None, 64, "--vsock-key-file"),
        ("vsock://:5000", Some(&missing), 78, "cannot be read"),
        ("vsock://:5000", Some(&empty), 78, "has 0 bytes"),
        ("vsock://:5000", Some(&open), 78, "mode 0444"),
        ("vsock://:5000", Some(&link), 78, "is a link"),
        ("vsock://4000000000:5000", Some(&good), 78, "vsock://4000000000:5000"),
    ] {
        let mut helper = Command::new(HELPER);
        helper
            .args(["--listen", &format!("unix://{}", socket.display())])
            .args(["--listen", listen, "--sandbox", "--kubelet-root"])
            .arg(directory.path())
            .stdin(Stdio::null());
        if let Some(key) = key {
            helper.arg("--vsock-key-file").arg(key);
        }
        let output = helper.output().expect("helper");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{listen}: {said}");
        let wrong: Vec<&str> = said.lines().filter(|l| !l.contains("sandbox-policy")).collect();
        assert!(wrong.len() == 1 && wrong[0].contains(says), "{listen}: {said}");
        assert!(!said.contains(" ready "), "{said}");
    }
}
