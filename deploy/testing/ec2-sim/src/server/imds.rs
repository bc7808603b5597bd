//! Instance metadata, version 2: the data that an instance can read about itself.

use super::{ReplyBody, ServeError, Shared, lock, serve, text, whole};
use crate::random::Random;
use crate::state::Realm;
use crate::state::resources::{Instance, mac};
use crate::time::Millis;
use http::{Method, Response, header};
use hyper::body::Incoming;
use serde_json::json;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;

/// The maximum lifetime of a session token, in seconds.
const MAX_TTL: u64 = 21_600;

#[derive(Debug, Default)]
struct Sessions {
    tokens: Vec<(String, Millis)>,
}

/// The status and the body of a reply.
type Answer = (u16, String);

impl Sessions {
    /// Answers `PUT /latest/api/token`. `ttl` is the header's value, `fresh` a random text for the
    /// new token.
    fn put(&mut self, ttl: Option<&str>, forwarded: bool, fresh: String, now: Millis) -> Answer {
        if forwarded {
            // Refused, as a guard against open proxies: the request came through a proxy.
            return (403, String::new());
        }
        let Some(ttl) =
            ttl.and_then(|t| t.trim().parse::<u64>().ok()).filter(|t| (1..=MAX_TTL).contains(t))
        else {
            return (400, String::new());
        };
        self.tokens.retain(|(_, until)| *until > now);
        self.tokens.push((fresh.clone(), now.plus(ttl * 1000)));
        (200, fresh)
    }

    fn allows(&self, token: Option<&str>, now: Millis) -> bool {
        let known = |token: &str| self.tokens.iter().find(|(one, _)| one == token);
        token.and_then(known).is_some_and(|(_, until)| *until > now)
    }
}

/// Returns whether a path leads to credentials or to user data. Nothing on a node needs these
/// paths.
fn is_credential_path(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    ["/latest/meta-data/iam", "/latest/meta-data/identity-credentials", "/latest/user-data"]
        .iter()
        .any(|p| path == *p || path.starts_with(&format!("{p}/")))
}

fn read(path: &str, realm: &Realm, i: &Instance) -> Option<String> {
    Some(match path.strip_prefix("/latest/")? {
        "dynamic/instance-identity/document" => json!({
            "instanceId": i.id, "instanceType": i.instance_type, "region": realm.region,
            "availabilityZone": i.zone, "accountId": realm.account, "version": "2017-09-30",
        })
        .to_string(),
        "meta-data/instance-id" => i.id.clone(),
        "meta-data/placement/availability-zone" => i.zone.clone(),
        "meta-data/outpost-arn" => i.outpost.clone()?,
        "meta-data/network/interfaces/macs/" => format!("{}/", mac(&i.id)),
        // The list shows the devices at launch; later attachments do not appear.
        "meta-data/block-device-mapping/" => "ami\nroot".to_owned(),
        _ => return None,
    })
}

/// The page that the real service returns for an unknown path.
const MISSING: &str = "<?xml version=\"1.0\" encoding=\"iso-8859-1\"?>\n<html><head><title>404 - Not Found</title></head><body><h1>404 - Not Found</h1></body></html>\n";

struct Endpoint {
    instance: String,
    sessions: Mutex<(Sessions, Random)>,
}

/// Opens an instance's endpoint and serves it in the background.
pub(super) async fn listen(shared: &Arc<Shared>, instance: &str) -> Result<(), ServeError> {
    let socket = |e| ServeError::Socket(format!("metadata endpoint of {instance}"), e);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(socket)?;
    let address = listener.local_addr().map_err(socket)?;
    lock(&shared.metadata).insert(instance.to_owned(), address);
    let endpoint = Arc::new(Endpoint {
        instance: instance.to_owned(),
        sessions: Mutex::new((
            Sessions::default(),
            Random::new(u64::from(address.port()), instance),
        )),
    });
    let accepting = Arc::clone(shared);
    shared.spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let (shared, endpoint) = (Arc::clone(&accepting), Arc::clone(&endpoint));
            tokio::spawn(async move { serve(stream, |r| respond(&shared, &endpoint, r)).await });
        }
    });
    Ok(())
}

async fn respond(
    shared: &Shared,
    endpoint: &Endpoint,
    request: hyper::Request<Incoming>,
) -> io::Result<Response<ReplyBody>> {
    let state = shared.with_sim(|sim, now| {
        sim.settle(now);
        let instance = sim.realm().instances().get(&endpoint.instance)?;
        Some(instance.state().1)
    });
    let (path, headers) = (request.uri().path(), request.headers());
    let (status, body) = match state {
        // An instance that does not run sends no requests.
        None => return Err(io::Error::other("the instance is gone")),
        Some("stopped" | "terminated") => {
            return Err(io::Error::other("the instance does not run"));
        }
        _ if request.method() == Method::PUT && path == "/latest/api/token" => {
            let mut sessions = lock(&endpoint.sessions);
            let fresh = sessions.1.hex(56);
            let ttl = text(headers, "x-aws-ec2-metadata-token-ttl-seconds");
            let forwarded = headers.contains_key("x-forwarded-for");
            sessions.0.put(ttl.as_deref(), forwarded, fresh, shared.now())
        }
        _ if request.method() == Method::GET => {
            let token = text(headers, "x-aws-ec2-metadata-token");
            get(shared, endpoint, path, token.as_deref())
        }
        _ => (405, String::new()),
    };
    Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, if status == 404 { "text/html" } else { "text/plain" })
        .body(whole(body))
        .map_err(io::Error::other)
}

fn get(shared: &Shared, endpoint: &Endpoint, path: &str, token: Option<&str>) -> Answer {
    let missing = || (404, MISSING.to_owned());
    let allowed = lock(&endpoint.sessions).0.allows(token, shared.now());
    shared.with_sim(|sim, now| {
        let trap = is_credential_path(path);
        sim.statistics.add_imds(trap);
        if trap {
            let detail = format!("{} read {path}", endpoint.instance);
            sim.invariants.report(now, "no_credentials_from_metadata", detail);
            return missing();
        }
        if !allowed {
            return (401, String::new());
        }
        let instance = sim.realm().instances().get(&endpoint.instance);
        let found = instance.and_then(|i| read(path, sim.realm(), i));
        found.map_or_else(missing, |body| (200, body))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imds_access_needs_unexpired_token() {
        let mut s = Sessions::default();
        let put =
            |s: &mut Sessions, ttl, forwarded| s.put(ttl, forwarded, "t".to_owned(), Millis(0)).0;
        assert_eq!(put(&mut s, None, false), 400);
        assert_eq!(put(&mut s, Some("0"), false), 400);
        assert_eq!(put(&mut s, Some("21601"), false), 400);
        assert_eq!(put(&mut s, Some("60"), true), 403);
        assert!(!s.allows(Some("t"), Millis(0)));
        assert_eq!(put(&mut s, Some("60"), false), 200);
        assert!(s.allows(Some("t"), Millis(59_999)));
        assert!(
            !s.allows(Some("t"), Millis(60_000))
                && !s.allows(None, Millis(0))
                && !s.allows(Some("u"), Millis(0))
        );
    }

    #[test]
    fn only_credential_and_user_data_paths_are_traps() {
        for (path, trap) in [
            ("/latest/meta-data/iam/security-credentials/", true),
            ("/latest/meta-data/iam/security-credentials/role", true),
            ("/latest/meta-data/identity-credentials/ec2/security-credentials/ec2-instance", true),
            ("/latest/user-data", true),
            ("/latest/meta-data/iam", true),
            ("/latest/meta-data/instance-id", false),
            ("/latest/meta-data/", false),
        ] {
            assert_eq!(is_credential_path(path), trap, "{path}");
        }
    }
}
