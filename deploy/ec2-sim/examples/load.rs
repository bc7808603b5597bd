//! How many requests a second the simulator answers: `cargo run --release -p ec2-sim --example load -- [--volumes 100000] [--connections 32] [--seconds 5]`.
//!
//! It starts a simulator without latency and limits on loopback, fills it with volumes, and sends single-volume requests over kept connections, one kind
//! after the other. One line of JSON for each kind: the rate, and how much of the time the simulator itself was at work. Client and
//! server share the machine, so that the rate is a lower bound of what the simulator can do.

use clap::Parser;
use ec2_sim::buckets::Limits;
use ec2_sim::devices::Mode;
use ec2_sim::time::Millis;
use ec2_sim::{Request, Scenario, Server, ServerOptions};
use std::error::Error;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[derive(Parser)]
struct Load {
    /// Volumes that are there before.
    #[arg(long, default_value_t = 100_000)]
    volumes: usize,
    /// Connections, each with one request at a time.
    #[arg(long, default_value_t = 32)]
    connections: usize,
    /// How long each kind of request is sent.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
}

/// For requests that do not come by a socket.
const AUTHORIZATION: &str = "AWS4-HMAC-SHA256 Credential=AKID/20260101/us-east-1/ec2/aws4_request";
/// The headers of a signature of the right form, made when the program began.
static SIGNATURE: LazyLock<String> = LazyLock::new(|| {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let iso = Millis(i64::try_from(since.as_millis()).unwrap_or(0)).iso();
    let date = format!("{}Z", iso[..19].replace(['-', ':'], ""));
    format!(
        "authorization: AWS4-HMAC-SHA256 Credential=AKID/{}/us-east-1/ec2/aws4_request, SignedHeaders=host;x-amz-date, Signature={}\r\nx-amz-date: {date}",
        &date[..8],
        "0".repeat(64)
    )
});
const CREATE: &str = "Action=CreateVolume&Version=2016-11-15&AvailabilityZone=us-east-1a&Size=1&VolumeType=gp3&TagSpecification.1.ResourceType=volume&TagSpecification.1.Tag.1.Key=CSIVolumeName&TagSpecification.1.Tag.1.Value=pvc-";

/// What is sent: from the ids of the volumes and a running number.
type Form = fn(&[String], usize) -> String;

const KINDS: [(&str, Form); 6] = [
    ("DescribeVolumes by id", |ids, n| {
        format!(
            "Action=DescribeVolumes&Version=2016-11-15&VolumeId.1={}",
            ids[n % ids.len()]
        )
    }),
    ("DescribeVolumes by name tag", |ids, n| {
        format!(
            "Action=DescribeVolumes&Version=2016-11-15&Filter.1.Name=tag:CSIVolumeName&Filter.1.Value.1=pvc-{}",
            n % ids.len()
        )
    }),
    ("DescribeVolumes, filter of 200 ids", |ids, n| {
        let mut form =
            "Action=DescribeVolumes&Version=2016-11-15&Filter.1.Name=volume-id".to_owned();
        for i in 0..200 {
            form += &format!(
                "&Filter.1.Value.{}={}",
                i + 1,
                ids[(n * 200 + i) % ids.len()]
            );
        }
        form
    }),
    ("CreateVolume", |ids, n| {
        format!("{CREATE}{}", ids.len() + n)
    }),
    ("CreateTags", |ids, n| {
        format!(
            "Action=CreateTags&Version=2016-11-15&ResourceId.1={}&Tag.1.Key=k&Tag.1.Value={n}",
            ids[n % ids.len()]
        )
    }),
    ("DeleteVolume", |ids, n| {
        format!(
            "Action=DeleteVolume&Version=2016-11-15&VolumeId={}",
            ids[n % ids.len()]
        )
    }),
];

fn main() -> Result<(), Box<dyn Error>> {
    let load = Load::parse();
    let dir = tempfile::tempdir()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let server = runtime.block_on(Server::start(ServerOptions {
        state_dir: dir.path().join("state"),
        scenario: Scenario {
            profile: "instant".to_owned(),
            limits: Limits {
                enabled: false,
                ..Limits::default()
            },
            ..Scenario::default()
        },
        devices: Mode::None,
        listen: "127.0.0.1:0".parse()?,
        control: None,
    }))?;
    let ids = fill(&server, load.volumes);
    let address = server.ec2().trim_start_matches("http://").to_owned();
    for (kind, form) in KINDS {
        server.with_sim(|sim, _| sim.statistics.reset());
        let (done, bad) = (AtomicU64::new(0), AtomicU64::new(0));
        let next = AtomicUsize::new(0);
        let begun = Instant::now();
        let until = begun + Duration::from_secs(load.seconds);
        std::thread::scope(|threads| {
            for _ in 0..load.connections {
                threads.spawn(|| {
                    let mut connection = Connection::new(&address).expect("connects");
                    while Instant::now() < until {
                        let n = next.fetch_add(1, Ordering::Relaxed);
                        // Each volume can be deleted once.
                        if kind == "DeleteVolume" && n >= ids.len() {
                            break;
                        }
                        let good = connection.ask(&form(&ids, n)).expect("an answer");
                        done.fetch_add(1, Ordering::Relaxed);
                        bad.fetch_add(u64::from(!good), Ordering::Relaxed);
                    }
                });
            }
        });
        let seconds = begun.elapsed().as_secs_f64();
        let statistics = server.with_sim(|sim, _| sim.statistics.json());
        let done = done.into_inner();
        println!(
            "{}",
            serde_json::json!({
                "kind": kind, "volumes": ids.len(), "requests": done, "bad": bad.into_inner(), "seconds": seconds,
                "per_second": f64::from(u32::try_from(done)?) / seconds,
                "work_share": statistics["totals"]["work_us"].as_f64().unwrap_or(0.0) / 1e6 / seconds,
                "actions": statistics["actions"],
            })
        );
    }
    Ok(())
}

fn fill(server: &Server, volumes: usize) -> Vec<String> {
    let begun = Instant::now();
    let ids: Vec<String> = (0..volumes)
        .map(|n| {
            let request = Request {
                form: format!("{CREATE}{n}").into_bytes(),
                authorization: Some(AUTHORIZATION.to_owned()),
                ..Request::default()
            };
            let reply = server.with_sim(|sim, now| sim.handle(now, &request));
            let body = String::from_utf8_lossy(&reply.body).into_owned();
            let id = body
                .split("<volumeId>")
                .nth(1)
                .and_then(|t| t.split('<').next());
            id.unwrap_or_else(|| panic!("no volume: {body}")).to_owned()
        })
        .collect();
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{}",
        serde_json::json!({"kind": "CreateVolume without sockets", "volumes": volumes, "seconds": seconds})
    );
    ids
}

struct Connection {
    stream: BufReader<TcpStream>,
    body: Vec<u8>,
}

impl Connection {
    fn new(address: &str) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::new(stream),
            body: Vec::new(),
        })
    }

    /// Whether the answer is 200.
    fn ask(&mut self, form: &str) -> std::io::Result<bool> {
        let head = format!(
            "POST / HTTP/1.1\r\nhost: ec2\r\ncontent-type: application/x-www-form-urlencoded\r\n{}\r\ncontent-length: {}\r\n\r\n{form}",
            SIGNATURE.as_str(),
            form.len()
        );
        self.stream.get_mut().write_all(head.as_bytes())?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let good = line.starts_with("HTTP/1.1 200");
        let mut length = 0;
        while line != "\r\n" {
            line.clear();
            self.stream.read_line(&mut line)?;
            if let Some(l) = line.strip_prefix("content-length: ") {
                length = l.trim().parse().map_err(std::io::Error::other)?;
            }
        }
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body)?;
        Ok(good)
    }
}
