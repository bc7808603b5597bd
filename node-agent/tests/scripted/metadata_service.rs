//! A small instance metadata service with given answers, which records its requests.

#![allow(dead_code)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// How the service behaves, apart from its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Behaves as EC2's service does.
    Usual,
    /// Does not answer the token request, as behind a hop limit of 1.
    HangingToken,
    /// Has no sessions: IMDSv1 only, or IMDS disabled.
    NoToken,
    /// Answers the first two requests with server errors.
    Shaky,
    /// Does not answer the page requests.
    HangingPage,
}

const DOCUMENT: &str = r#"{"accountId":"123456789012","architecture":"x86_64","availabilityZone":"us-west-2c",
 "instanceId":"i-0123456789abcdef0","instanceType":"m5.large","region":"us-west-2","version":"2017-09-30"}"#;

/// The service; its threads end with the process.
#[derive(Debug)]
pub(crate) struct MetadataService {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl MetadataService {
    pub(crate) fn start(behaviour: Behaviour, pages: &[(&str, &str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let pages: Vec<(String, String)> =
            pages.iter().map(|(path, body)| ((*path).to_owned(), (*body).to_owned())).collect();
        let kept = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (pages, kept) = (pages.clone(), Arc::clone(&kept));
                thread::spawn(move || answer(stream.unwrap(), behaviour, &pages, &kept));
            }
        });
        Self { address, requests }
    }

    /// Starts a service with EC2's behaviour and the pages of a plain instance in a Region.
    pub(crate) fn usual() -> Self {
        Self::start(Behaviour::Usual, &pages())
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the method and the path of every request so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

pub(crate) fn pages() -> Vec<(&'static str, &'static str)> {
    vec![
        ("/latest/dynamic/instance-identity/document", DOCUMENT),
        ("/latest/meta-data/network/interfaces/macs/", "0e:49:61:0f:c3:11/\n0e:49:61:0f:c3:12/"),
        ("/latest/meta-data/block-device-mapping/", "ami\nebs1\nebs2\nroot"),
    ]
}

fn answer(
    mut stream: TcpStream,
    behaviour: Behaviour,
    pages: &[(String, String)],
    requests: &Mutex<Vec<String>>,
) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let request = head.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
    let count = {
        let mut requests = requests.lock().unwrap();
        requests.push(request.clone());
        requests.len()
    };
    let lower = head.to_ascii_lowercase();
    let has_token = lower.contains("x-aws-ec2-metadata-token: session-1");
    let page =
        request.strip_prefix("GET ").and_then(|path| pages.iter().find(|(known, _)| known == path));
    let hang = || loop {
        thread::park();
    };
    let (status, body) = match (request.as_str(), behaviour) {
        _ if behaviour == Behaviour::Shaky && count <= 2 => ("503 Service Unavailable", ""),
        ("PUT /latest/api/token", Behaviour::HangingToken) => hang(),
        ("PUT /latest/api/token", Behaviour::NoToken) => ("403 Forbidden", ""),
        ("PUT /latest/api/token", _) => {
            assert!(lower.contains("x-aws-ec2-metadata-token-ttl-seconds: "));
            ("200 OK", "session-1")
        }
        _ if !has_token => ("401 Unauthorized", ""),
        _ if behaviour == Behaviour::HangingPage => hang(),
        _ => match page {
            Some((_, body)) => ("200 OK", body.as_str()),
            None => ("404 Not Found", "<html>not here</html>"),
        },
    };
    let length = body.len();
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\nServer: EC2ws\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
}
