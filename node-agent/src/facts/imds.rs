//! The instance metadata service, version 2 only: a session token, then four GETs, and no other
//! path.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use ebs_csi_wire::InstanceId;

use super::http_client::{self, HttpError, HttpResponse, Limits};
use super::{NodeFacts, Outpost, Source, count, dmi};

/// The service's link-local addresses.
const IPV4: &str = "http://169.254.169.254";
const IPV6: &str = "http://[fd00:ec2::254]";
/// Limits of each exchange.
const LIMITS: Limits =
    Limits { connect: Duration::from_millis(250), exchange: Duration::from_millis(1000) };
/// Limit of all exchanges together.
const BUDGET: Duration = Duration::from_secs(5);
/// How often an exchange is tried that gets no answer or a server error.
const ATTEMPTS: u32 = 3;
/// Lifetime of the session, in seconds: longer than all exchanges take.
const SESSION_SECONDS: &str = "60";

const TOKEN: &str = "/latest/api/token";
const DOCUMENT: &str = "/latest/dynamic/instance-identity/document";
const MACS: &str = "/latest/meta-data/network/interfaces/macs/";
const BLOCK_DEVICES: &str = "/latest/meta-data/block-device-mapping/";
const OUTPOST: &str = "/latest/meta-data/outpost-arn";

/// The address of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(SocketAddr);

/// Why the service gave no facts.
#[derive(Debug, thiserror::Error)]
pub enum ImdsError {
    /// The session could not be opened.
    #[error(
        "no IMDSv2 session (PUT {TOKEN}); a pod needs a hop limit of 2 or the host's network, or use the kubernetes source"
    )]
    Session(#[source] Box<ImdsError>),
    /// There is no runtime to ask in.
    #[error("starting the runtime")]
    Runtime(#[source] std::io::Error),
    /// The service did not answer.
    #[error("{path}")]
    Http {
        /// The requested path.
        path: &'static str,
        /// The cause.
        #[source]
        source: HttpError,
    },
    /// The service answered with another status.
    #[error("{path} answered with HTTP status {status}")]
    Status {
        /// The requested path.
        path: &'static str,
        /// The status.
        status: u16,
    },
    /// The answer is not valid.
    #[error("{path}: {what}")]
    Content {
        /// The requested path.
        path: &'static str,
        /// The problem.
        what: String,
    },
}

/// Finds the service's address from the AWS SDKs' settings: `AWS_EC2_METADATA_SERVICE_ENDPOINT`,
/// and `AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE` (`IPv4` or `IPv6`).
///
/// # Errors
/// What is wrong with the setting.
pub fn address(endpoint: Option<&str>, mode: Option<&str>) -> Result<Address, String> {
    let url = match (endpoint, mode) {
        (Some(given), _) if !given.is_empty() => given,
        (_, Some(mode)) if mode.eq_ignore_ascii_case("ipv6") => IPV6,
        _ => IPV4,
    };
    let wrong = |why: &str| {
        format!("AWS_EC2_METADATA_SERVICE_ENDPOINT {url:?} {why}; give http://ADDRESS[:PORT]")
    };
    let rest = url
        .strip_prefix("http://")
        .ok_or_else(|| wrong("is not an http address"))?
        .trim_end_matches('/');
    if rest.is_empty() || rest.contains(['/', '@', '?', '#']) {
        return Err(wrong("holds more than a host and a port"));
    }
    let has_port = rest
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
    let host_and_port =
        if has_port && !rest.ends_with(']') { rest.to_owned() } else { format!("{rest}:80") };
    host_and_port
        .to_socket_addrs()
        .ok()
        .and_then(|mut found| found.next())
        .map(Address)
        .ok_or_else(|| wrong("cannot be resolved"))
}

/// Reads the facts from the service.
///
/// # Errors
/// [`ImdsError`] for the first exchange that failed finally.
pub fn read(address: &Address) -> Result<NodeFacts, ImdsError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(ImdsError::Runtime)?;
    let started = Instant::now();
    let request = |method, path: &'static str, header: (&str, &str)| {
        let exchange = || http_client::exchange(address.0, method, path, header, LIMITS);
        retry(started, path, || runtime.block_on(exchange()))
    };
    let token = request("PUT", TOKEN, ("x-aws-ec2-metadata-token-ttl-seconds", SESSION_SECONDS))
        .and_then(|answer| body_of(TOKEN, answer))
        .and_then(|body| checked_token(&body))
        .map_err(|e| ImdsError::Session(Box::new(e)))?;
    let get = |path| request("GET", path, ("x-aws-ec2-metadata-token", &token));

    let document = parse_document(&body_of(DOCUMENT, get(DOCUMENT)?)?)?;
    let macs = body_of(MACS, get(MACS)?)?;
    let block_devices = body_of(BLOCK_DEVICES, get(BLOCK_DEVICES)?)?;
    let outpost = match get(OUTPOST)? {
        // The instance is not on an Outpost.
        HttpResponse { status: 404, .. } => None,
        answer => {
            let arn = body_of(OUTPOST, answer)?;
            Some(Outpost::parse(&arn).ok_or_else(|| ImdsError::Content {
                path: OUTPOST,
                what: "not the ARN of an Outpost".to_owned(),
            })?)
        }
    };
    Ok(NodeFacts {
        network_interfaces: count(macs.lines().filter(|line| is_mac(line.trim_end_matches('/')))),
        other_volumes: count(block_devices.lines().filter(|line| line.starts_with("ebs"))),
        outpost,
        ..document
    })
}

/// Retries while there is no answer or a server error, within the attempts and the budget.
fn retry(
    started: Instant,
    path: &'static str,
    exchange: impl Fn() -> Result<HttpResponse, HttpError>,
) -> Result<HttpResponse, ImdsError> {
    let mut attempt = 1;
    loop {
        let result = exchange();
        let is_transient = match &result {
            Ok(answer) => answer.status >= 500,
            Err(HttpError::Foreign(_)) => false,
            Err(_) => true,
        };
        if !is_transient || attempt >= ATTEMPTS || started.elapsed() >= BUDGET {
            return result.map_err(|source| ImdsError::Http { path, source });
        }
        std::thread::sleep(Duration::from_millis(50) * attempt);
        attempt += 1;
    }
}

fn body_of(path: &'static str, answer: HttpResponse) -> Result<String, ImdsError> {
    match answer.status {
        200 => Ok(answer.body),
        status => Err(ImdsError::Status { path, status }),
    }
}

/// Checks the token, which goes into a header unchanged.
fn checked_token(body: &str) -> Result<String, ImdsError> {
    let token = body.trim();
    if token.is_empty() || token.len() > 1024 || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(ImdsError::Content { path: TOKEN, what: "not a session token".to_owned() });
    }
    Ok(token.to_owned())
}

fn is_mac(text: &str) -> bool {
    let is_byte = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
    text.split(':').count() == 6 && text.split(':').all(is_byte)
}

/// Returns what the instance identity document says; it says nothing of attachments and Outposts.
fn parse_document(text: &str) -> Result<NodeFacts, ImdsError> {
    let wrong = |what: String| ImdsError::Content { path: DOCUMENT, what };
    let json: serde_json::Value =
        serde_json::from_str(text).map_err(|_| wrong("not JSON".to_owned()))?;
    let field = |name: &str| {
        json.get(name)
            .and_then(serde_json::Value::as_str)
            .filter(|value| !value.is_empty() && value.len() <= 128)
            .map(str::to_owned)
            .ok_or_else(|| wrong(format!("{name} is missing")))
    };
    let instance = InstanceId::parse(&field("instanceId")?).map_err(|e| wrong(e.to_string()))?;
    let instance_type = field("instanceType")?;
    if !dmi::is_instance_type(&instance_type) {
        return Err(wrong("instanceType is not an instance type".to_owned()));
    }
    Ok(NodeFacts {
        instance,
        instance_type,
        region: Some(field("region")?),
        zone: field("availabilityZone")?,
        network_interfaces: 0,
        other_volumes: 0,
        outpost: None,
        source: Source::Imds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imds_endpoint_is_parsed_like_aws_sdks() {
        let rows = [
            (None, None, Some("169.254.169.254:80")),
            (None, Some("IPv6"), Some("[fd00:ec2::254]:80")),
            (Some(""), Some("IPv4"), Some("169.254.169.254:80")),
            (Some("http://127.0.0.1:1338"), None, Some("127.0.0.1:1338")),
            (Some("http://127.0.0.1/"), None, Some("127.0.0.1:80")),
            (Some("http://[::1]:99"), Some("IPv6"), Some("[::1]:99")),
            (Some("http://[::1]"), None, Some("[::1]:80")),
            (Some("https://127.0.0.1"), None, None),
            (Some("http://user@127.0.0.1"), None, None),
            (Some("http://127.0.0.1/latest"), None, None),
            (Some("http://"), None, None),
        ];
        for (endpoint, mode, want) in rows {
            let got = address(endpoint, mode).ok();
            let want = want.map(|text| Address(text.parse().unwrap()));
            assert_eq!(got, want, "{endpoint:?} {mode:?}");
        }
    }

    /// The number of network interfaces is the number of MAC addresses that IMDS lists.
    #[test]
    fn only_complete_mac_addresses_are_recognised() {
        for (text, want) in [
            ("0e:49:61:0f:c3:11", true),
            ("0E:49:61:0f:c3:11", true),
            ("0e:49:61:0f:c3", false),
            ("0e:49:61:0f:c3:1", false),
            ("0e:49:61:0f:c3:11:22", false),
            ("", false),
        ] {
            assert_eq!(is_mac(text), want, "{text}");
        }
    }

    #[test]
    fn unusable_document_error_names_field_or_value() {
        let whole = r#"{"instanceId":"i-1a2b3c4d","instanceType":"m5.large","region":"r","availabilityZone":"z"}"#;
        assert!(parse_document(whole).is_ok());
        for (from, to, says) in [
            ("instanceId", "other", "instanceId"),
            ("instanceType", "other", "instanceType"),
            ("region", "other", "region"),
            ("availabilityZone", "other", "availabilityZone"),
            ("i-1a2b3c4d", "vm-1", "vm-1"),
            ("m5.large", "Standard_D2s", "instance type"),
            (":\"z\"", ":\"\"", "availabilityZone"),
        ] {
            let error = parse_document(&whole.replace(from, to)).err().unwrap().to_string();
            assert!(error.contains(says), "{error}");
        }
        for text in ["", "[]", r#"{"instanceId":7}"#] {
            assert!(parse_document(text).is_err(), "{text}");
        }
    }
}
