//! Instance metadata, version 2: the data that an instance can read about itself.

use super::reply_body::{ReplyBody, whole};
use super::{ServeError, Shared, lock, serve};
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
pub(super) struct Sessions {
    tokens: Vec<(String, Millis)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MetadataReply {
    pub status: u16,
    pub body: String,
}

fn answer(status: u16, body: impl Into<String>) -> MetadataReply {
    MetadataReply { status, body: body.into() }
}

impl Sessions {
    /// Answers `PUT /latest/api/token`. `ttl` is the header's value, `fresh` a random text for the
    /// new token.
    pub(super) fn put(
        &mut self,
        ttl: Option<&str>,
        forwarded: bool,
        fresh: String,
        now: Millis,
    ) -> MetadataReply {
        if forwarded {
            // Refused, as a guard against open proxies: the request came through a proxy.
            return answer(403, "");
        }
        let Some(ttl) =
            ttl.and_then(|t| t.trim().parse::<u64>().ok()).filter(|t| (1..=MAX_TTL).contains(t))
        else {
            return answer(400, "");
        };
        self.tokens.retain(|(_, until)| *until > now);
        self.tokens.push((fresh.clone(), now.plus(ttl * 1000)));
        answer(200, fresh)
    }

    pub(super) fn allows(&self, token: Option<&str>, now: Millis) -> bool {
        let known = |token: &str| self.tokens.iter().find(|(one, _)| one == token);
        token.and_then(known).is_some_and(|(_, until)| *until > now)
    }
}

/// Returns whether a path leads to credentials or to user data. Nothing on a node needs these
/// paths.
pub(super) fn is_credential_path(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    ["/latest/meta-data/iam", "/latest/meta-data/identity-credentials", "/latest/user-data"]
        .iter()
        .any(|p| path == *p || path.starts_with(&format!("{p}/")))
}

pub(super) fn read(path: &str, realm: &Realm, i: &Instance) -> MetadataReply {
    let Some(path) = path.strip_prefix("/latest/") else { return missing() };
    match path {
        "dynamic/instance-identity/document" => answer(
            200,
            json!({
                "instanceId": i.id, "instanceType": i.instance_type, "region": realm.region,
                "availabilityZone": i.zone, "accountId": realm.account, "version": "2017-09-30",
            })
            .to_string(),
        ),
        "meta-data/instance-id" => answer(200, &i.id),
        "meta-data/placement/availability-zone" => answer(200, &i.zone),
        "meta-data/outpost-arn" => match &i.outpost {
            Some(arn) => answer(200, arn),
            None => missing(),
        },
        "meta-data/network/interfaces/macs/" => answer(200, format!("{}/", mac(&i.id))),
        // The list shows the devices at launch; later attachments do not appear.
        "meta-data/block-device-mapping/" => answer(200, "ami\nroot"),
        _ => missing(),
    }
}

/// Returns the page that the real service returns for an unknown path.
pub(super) fn missing() -> MetadataReply {
    answer(
        404,
        "<?xml version=\"1.0\" encoding=\"iso-8859-1\"?>\n<html><head><title>404 - Not Found</title></head><body><h1>404 - Not Found</h1></body></html>\n",
    )
}

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
    let path = request.uri().path();
    let header_text = |name: &str| {
        let value = request.headers().get(name)?;
        Some(value.to_str().ok()?.to_owned())
    };
    let now = shared.now();
    let answer = match state {
        // An instance that does not run sends no requests.
        None => return Err(io::Error::other("the instance is gone")),
        Some("stopped" | "terminated") => {
            return Err(io::Error::other("the instance does not run"));
        }
        _ if request.method() == Method::PUT && path == "/latest/api/token" => {
            let mut sessions = lock(&endpoint.sessions);
            let fresh = sessions.1.hex(56);
            sessions.0.put(
                header_text("x-aws-ec2-metadata-token-ttl-seconds").as_deref(),
                request.headers().contains_key("x-forwarded-for"),
                fresh,
                now,
            )
        }
        _ if request.method() == Method::GET => {
            let token = header_text("x-aws-ec2-metadata-token");
            get(shared, endpoint, path, token.as_deref())
        }
        _ => MetadataReply { status: 405, body: String::new() },
    };
    Response::builder()
        .status(answer.status)
        .header(header::CONTENT_TYPE, if answer.status == 404 { "text/html" } else { "text/plain" })
        .body(whole(answer.body))
        .map_err(io::Error::other)
}

fn get(shared: &Shared, endpoint: &Endpoint, path: &str, token: Option<&str>) -> MetadataReply {
    let now = shared.now();
    let allowed = lock(&endpoint.sessions).0.allows(token, now);
    shared.with_sim(|sim, now| {
        let trap = is_credential_path(path);
        sim.statistics.add_imds(trap);
        if trap {
            let detail = format!("{} read {path}", endpoint.instance);
            sim.invariants.report(now, "no_credentials_from_metadata", detail);
            return missing();
        }
        if !allowed {
            return MetadataReply { status: 401, body: String::new() };
        }
        match sim.realm().instances().get(&endpoint.instance) {
            Some(i) => read(path, sim.realm(), i),
            None => missing(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imds_access_needs_unexpired_token() {
        let mut s = Sessions::default();
        let put = |s: &mut Sessions, ttl, forwarded| {
            s.put(ttl, forwarded, "t".to_owned(), Millis(0)).status
        };
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
