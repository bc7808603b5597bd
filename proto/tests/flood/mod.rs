//! Clients that occupy an HTTP endpoint, and a liveness probe beside them.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A request whose answer the clients do not read.
pub(crate) const SCRAPE: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

/// Numbers of connections, and what each of them sends.
pub(crate) const FLOODS: [(usize, &str); 4] = [(8, ""), (64, ""), (4_000, ""), (4_000, SCRAPE)];

/// Opens connections that send this, and read nothing.
pub(crate) fn hold(address: SocketAddr, count: usize, sent: &str) -> Vec<TcpStream> {
    let limit = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit }).expect("a limit");
    let open = || {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(sent.as_bytes())?;
        io::Result::Ok(stream)
    };
    (0..count).map(|_| open().expect("a connection")).collect()
}

/// Opens one silent connection after the other, from an address of its own, until it is dropped.
pub(crate) struct Opener {
    is_ending: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Opener {
    pub(crate) fn start(address: SocketAddr) -> Self {
        let is_ending = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&is_ending);
        let thread = thread::spawn(move || {
            let mut held = Vec::new();
            while !ending.load(Ordering::Relaxed) {
                held.extend(connect_from("127.0.0.2:0", address));
                if held.len() == 1_000 {
                    held.clear();
                }
            }
        });
        Self { is_ending, thread: Some(thread) }
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

fn connect_from(own: &str, address: SocketAddr) -> io::Result<OwnedFd> {
    let own: SocketAddr = own.parse().expect("an address");
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    rustix::net::bind(&socket, &own)?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket)
}

/// Returns how many of 20 liveness probes are answered.
pub(crate) fn answered_of_20_probes(address: SocketAddr) -> usize {
    (0..20).filter(|_| is_alive(address).unwrap_or(false)).count()
}

fn is_alive(address: SocketAddr) -> io::Result<bool> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nok\n"))
}

/// Returns how many sockets a process has open.
pub(crate) fn sockets(process: u32) -> usize {
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).expect("a process");
    let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}
