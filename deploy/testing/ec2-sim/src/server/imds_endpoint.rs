//! One metadata endpoint for each instance.

use super::imds::{MetadataReply, Sessions};
use super::reply_body::{ReplyBody, whole};
use super::{ServeError, Shared, imds, lock, serve};
use crate::random::Random;
use http::{Method, Response, header};
use hyper::body::Incoming;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;

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
        let trap = imds::is_credential_path(path);
        sim.statistics.add_imds(trap);
        if trap {
            let detail = format!("{} read {path}", endpoint.instance);
            sim.invariants.report(now, "no_credentials_from_metadata", detail);
            return imds::missing();
        }
        if !allowed {
            return MetadataReply { status: 401, body: String::new() };
        }
        match sim.realm().instances().get(&endpoint.instance) {
            Some(i) => imds::read(path, sim.realm(), i),
            None => imds::missing(),
        }
    })
}
