//! A name server on loopback, and the look-up of a name that only this server knows. Its answer is
//! longer than a datagram may be, so the C library asks again over TCP.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::path::Path;
use std::sync::Once;
use std::thread;

pub(crate) const ATTEMPT: &str = "ask-name-server";
const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(127, 66, 53, 1), 53);
const NAME: &str = "ec2.region.example";
/// More than fit into 512 bytes (RFC 1035 section 4.2.1).
const ADDRESSES: u8 = 60;
const HEADER: usize = 12;
/// The type of a question for IPv4 addresses (RFC 1035 section 3.2.2).
const A: u8 = 1;

/// Has this process answer until it ends.
pub(crate) fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(serve_all);
}

fn serve_all() {
    let datagrams = UdpSocket::bind(SERVER).expect("port 53 of an own loopback address");
    let listener = TcpListener::bind(SERVER).expect("port 53 of an own loopback address");
    thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((length, from)) = datagrams.recv_from(&mut question) {
            let _ = datagrams.send_to(&truncated(&question[..length]), from);
        }
    });
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // The asker closes the connection.
            let _ = serve(stream);
        }
    });
}

/// Makes the server this process's only one, in its own mount namespace.
pub(crate) fn choose(scratch: &Path) -> io::Result<()> {
    let file = scratch.join("resolv.conf");
    fs::write(&file, format!("nameserver {}\n", SERVER.0))?;
    Ok(rustix::mount::mount_bind(&file, "/etc/resolv.conf")?)
}

pub(crate) fn look_up() -> io::Result<()> {
    let look_up = || (NAME, 443).to_socket_addrs().map(Iterator::collect::<Vec<SocketAddr>>);
    let found = thread::spawn(look_up).join();
    let found = found.map_err(|_| io::Error::other("the thread panicked"))??;
    match found.len() == usize::from(ADDRESSES) {
        true => Ok(()),
        false => Err(io::Error::other(format!("{found:?}"))),
    }
}

/// Each message has its length before it (RFC 1035 section 4.2.2).
fn serve(mut stream: TcpStream) -> io::Result<()> {
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut question = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut question)?;
        let answer = answer(&question);
        let length = u16::try_from(answer.len()).expect("a message");
        stream.write_all(&[&length.to_be_bytes(), &answer[..]].concat())?;
    }
}

fn truncated(question: &[u8]) -> Vec<u8> {
    [&question[..2], &[0x83, 0x80, 0, 1, 0, 0, 0, 0, 0, 0], asked(question)].concat()
}

/// Returns a message with all addresses, or none of IPv6 (RFC 1035 section 4.1).
fn answer(question: &[u8]) -> Vec<u8> {
    let asked = asked(question);
    let is_a = asked[asked.len() - 3] == A;
    let count = if is_a { ADDRESSES } else { 0 };
    let mut message = [&question[..2], &[0x81, 0x80, 0, 1, 0, count, 0, 0, 0, 0], asked].concat();
    for number in 0..count {
        // The name of the question, its type and class, a minute to live, the address.
        message.extend([0xc0, 0x0c, 0, A, 0, 1, 0, 0, 0, 60, 0, 4, 127, 66, 53, number]);
    }
    message
}

/// Returns the name, the type and the class of the question. The name ends with an empty label.
fn asked(question: &[u8]) -> &[u8] {
    let name = question.iter().skip(HEADER).position(|byte| *byte == 0).expect("a name");
    &question[HEADER..HEADER + name + 5]
}
