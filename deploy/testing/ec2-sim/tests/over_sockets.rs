//! The running server: lost and malformed replies on the wire, metadata, control.

mod process;

use ec2_sim::{ControlClient, DeviceMode, Scenario, Server, ServerOptions};
use process::{NODE_A, connect, http, signature, text};
use serde_json::json;
use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;
use std::time::Duration;

struct Running {
    server: Server,
    control: ControlClient,
    _runtime: tokio::runtime::Runtime,
    _dir: tempfile::TempDir,
}

fn instant() -> Running {
    let dir = tempfile::tempdir().expect("dir");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("runtime");
    let server = runtime
        .block_on(Server::start(ServerOptions {
            state_dir: dir.path().join("state"),
            scenario: Scenario { profile: "instant".to_owned(), ..Scenario::default() },
            devices: DeviceMode::None,
            listen: "127.0.0.1:0".parse().expect("address"),
        }))
        .expect("server");
    let control = ControlClient::new(server.control());
    Running { server, control, _runtime: runtime, _dir: dir }
}

/// Sends one EC2 request. Returns the bytes of the reply and how the connection ended.
fn raw(url: &str, form: &str) -> (String, Option<ErrorKind>) {
    http(url, "POST /", &signature(Duration::ZERO), form)
}

const CREATE: &str =
    "Action=CreateVolume&Version=2016-11-15&AvailabilityZone=us-east-1a&Size=1&VolumeType=gp3";
const TTL: &str = "x-aws-ec2-metadata-token-ttl-seconds: 60\r\n";
const ZONES: &str = "Action=DescribeAvailabilityZones&Version=2016-11-15";

/// Returns the value of the Content-Length header and the length of the received body.
fn lengths(answer: &str) -> (usize, usize) {
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let length = head.lines().find_map(|l| l.strip_prefix("content-length: ")).expect("a length");
    (length.parse().expect("number"), body.len())
}

#[test]
fn undated_or_old_request_is_refused() {
    let r = instant();
    let url = r.server.ec2();
    let answer = |signature: &str| http(&url, "POST /", signature, ZONES).0;
    let good = signature(Duration::ZERO);
    assert!(answer(&good).starts_with("HTTP/1.1 200 OK"));
    let undated: String = good.lines().take(1).map(|l| format!("{l}\r\n")).collect();
    assert!(answer(&undated).contains("IncompleteSignature"));
    let old = answer(&signature(Duration::from_secs(600)));
    assert!(old.contains("<Code>RequestExpired</Code>"), "{old}");
}

#[test]
fn wire_replies_are_lost_cut_or_slowed() {
    let r = instant();
    let url = r.server.ec2();
    let fault = |json: serde_json::Value| {
        r.control.delete("/v1/faults").expect("clear");
        r.control.post("/v1/faults", &json!({"fault": json, "count": 1})).expect("rule");
    };
    let (good, ended) = raw(&url, ZONES);
    assert!(good.starts_with("HTTP/1.1 200 OK\r\n") && ended.is_none(), "{good}");
    assert!(
        good.contains("x-amzn-requestid: ")
            && good.contains("content-type: text/xml;charset=UTF-8"),
        "{good}"
    );

    fault(json!({"kind": "lose_reply", "how": "close", "effect": true}));
    assert_eq!(raw(&url, CREATE), (String::new(), None));
    fault(json!({"kind": "lose_reply", "how": "reset", "effect": true}));
    assert_eq!(raw(&url, CREATE), (String::new(), Some(ErrorKind::ConnectionReset)));
    fault(json!({"kind": "lose_reply", "how": "hang", "effect": true, "hold_ms": 50}));
    assert_eq!(raw(&url, CREATE), (String::new(), None));
    let live = &r.control.get("/v1/invariants").expect("invariants")["live"];
    assert_eq!(live["volumes"], 3, "each call took effect");

    fault(json!({"kind": "garble", "how": "short"}));
    let (announced, sent) = lengths(&raw(&url, ZONES).0);
    assert!(announced > sent, "{announced} announced, {sent} sent");
    fault(json!({"kind": "garble", "how": "cut"}));
    let (cut, _) = raw(&url, ZONES);
    let (announced, sent) = lengths(&cut);
    assert!(announced == sent && !cut.contains("</DescribeAvailabilityZonesResponse>"), "{cut}");
    fault(json!({"kind": "slow", "first_byte_ms": 10, "byte_ms": 1}));
    let (slow, ended) = raw(&url, ZONES);
    assert!(ended.is_none() && slow.contains("</DescribeAvailabilityZonesResponse>"), "{slow}");
}

#[test]
fn an_outage_refuses_connections_and_ends() {
    let r = instant();
    let url = r.server.ec2();
    let mut kept = connect(&url);
    r.control.post("/v1/outage", &json!({"for_ms": 2_000})).expect("outage");
    let mut one = [0];
    let ended = kept.read(&mut one);
    assert!(
        matches!(&ended, Ok(0))
            || matches!(&ended, Err(e) if e.kind() == ErrorKind::ConnectionReset),
        "open connections end: {ended:?}"
    );
    let address = url.trim_start_matches("http://").to_owned();
    let mut refused = false;
    for _ in 0..500 {
        match TcpStream::connect(&address) {
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => refused = true,
            _ if refused => return,
            _ => {}
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("refused: {refused}; the endpoint did not open again");
}

/// Sends one request to a metadata endpoint. Returns status and body.
fn metadata(url: &str, line: &str, header: &str) -> (u16, String) {
    let (reply, _) = http(url, line, header, "");
    let (head, body) = reply.split_once("\r\n\r\n").expect("head");
    (head.split(' ').nth(1).expect("status").parse().expect("number"), body.to_owned())
}

#[test]
fn metadata_needs_token_and_reports_credential_reads() {
    let r = instant();
    let url = r.server.ready()["imds"][NODE_A].as_str().expect("imds").to_owned();
    assert_eq!(metadata(&url, "GET /latest/meta-data/instance-id", "").0, 401);
    let (status, token) = metadata(&url, "PUT /latest/api/token", TTL);
    assert_eq!(status, 200);
    let header = format!("x-aws-ec2-metadata-token: {token}\r\n");
    for (path, body) in [
        ("/latest/meta-data/instance-id", NODE_A),
        ("/latest/meta-data/placement/availability-zone", "us-east-1a"),
        ("/latest/meta-data/block-device-mapping/", "ami\nroot"),
    ] {
        assert_eq!(
            metadata(&url, &format!("GET {path}"), &header),
            (200, body.to_owned()),
            "{path}"
        );
    }
    let (_, document) = metadata(&url, "GET /latest/dynamic/instance-identity/document", &header);
    let document: serde_json::Value = serde_json::from_str(&document).expect("json");
    assert_eq!(document["accountId"], "111122223333");
    assert_eq!(metadata(&url, "GET /latest/meta-data/outpost-arn", &header).0, 404);
    assert_eq!(r.control.get("/v1/invariants").expect("before")["ok"], true);
    let credentials = "GET /latest/meta-data/iam/security-credentials/";
    assert_eq!(metadata(&url, credentials, &header).0, 404);
    let after = r.control.get("/v1/invariants").expect("after");
    assert_eq!(after["violations"][0]["rule"], "no_credentials_from_metadata");
    assert_eq!(r.control.get("/v1/statistics").expect("statistics")["imds"]["credential_reads"], 1);
}

#[test]
fn control_socket_changes_instances_and_volume_states() {
    let r = instant();
    let c = &r.control;
    let url = r.server.ec2();
    let (body, _) = raw(&url, CREATE);
    let id = text(&body, "volumeId");
    let status = |c: &ControlClient| {
        let state = c.get("/v1/state").expect("state");
        let volumes = state["realms"][0]["volumes"].as_array().expect("volumes").clone();
        volumes
            .into_iter()
            .find(|v| v["id"] == id.as_str())
            .map(|v| v["status"].as_str().unwrap_or("").to_owned())
    };
    assert_eq!(status(c).as_deref(), Some("available"));

    let new = json!({"id": "i-0ccccccccccccccc3", "zone": "us-east-1a", "type": "m7i.large"});
    let new = c.post("/v1/instances", &new).expect("instance");
    let imds = new["imds"].as_str().expect("imds");
    assert_eq!(metadata(imds, "PUT /latest/api/token", TTL).0, 200);
    let attach = json!({"action": "AttachVolume", "parameters": {"VolumeId": id, "InstanceId": "i-0ccccccccccccccc3", "Device": "/dev/xvdba"}});
    assert_eq!(c.post("/v1/as-foreign", &attach).expect("foreign")["status"], 200);
    assert_eq!(status(c).as_deref(), Some("in-use"));
    let stopped = c
        .post("/v1/instances/i-0ccccccccccccccc3/terminate", &json!({"at_once": true}))
        .expect("terminate");
    assert_eq!(stopped["state"], "terminated");
    assert_eq!(status(c).as_deref(), Some("available"));
    c.post(&format!("/v1/volumes/{id}/force"), &json!({"state": "error"})).expect("force");
    assert_eq!(status(c).as_deref(), Some("error"));

    c.put("/v1/latency", &json!({"profile": "instant"})).expect("latency");
    c.put("/v1/limits", &json!({"scale": 0.0})).expect("limits");
    assert!(raw(&url, ZONES).0.contains("RequestLimitExceeded"));
    for (method, path, body) in [
        ("POST", "/v1/faults", json!({"fault": {"kind": "nonsense"}})),
        ("POST", "/v1/instances", json!({"id": "i-1", "zone": "us-east-1a"})),
        ("POST", "/v1/instances", json!({"id": NODE_A, "zone": "us-east-1a"})),
        ("PUT", "/v1/latency", json!({"nonsense": {"fixed_ms": 1}})),
        ("POST", "/v1/volumes/vol-1/force", json!({"state": "error"})),
        ("POST", "/v1/nonsense", json!({})),
    ] {
        let answer = if method == "PUT" { c.put(path, &body) } else { c.post(path, &body) };
        assert!(answer.is_err(), "{method} {path} {body}");
    }
    let journal = c.get("/v1/journal?action=AttachVolume").expect("journal");
    assert_eq!(journal["records"][0]["origin"], "foreign");
}
