//! Serves the store over HTTP.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::kind::NODES;
use super::store::{Store, key};

type Body = UnsyncBoxBody<Bytes, Infallible>;
type Query = HashMap<String, String>;

/// The object or collection that a path names.
struct Target {
    kind: String,
    namespace: Option<String>,
    name: Option<String>,
}

/// Parses `/api/v1/…` and `/apis/GROUP/VERSION/…`.
fn target(path: &str) -> Option<Target> {
    let mut parts = path.trim_matches('/').split('/').map(str::to_owned);
    let rest = match parts.next()?.as_str() {
        "api" => parts.skip(1),
        "apis" => parts.skip(2),
        _ => return None,
    };
    let mut rest = rest.peekable();
    let namespace = rest.next_if_eq("namespaces").and_then(|_| rest.next());
    Some(Target { kind: rest.next()?, namespace, name: rest.next() })
}

pub(crate) async fn serve(listener: TcpListener, store: Arc<Store>) -> std::io::Result<()> {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let store = Arc::clone(&store);
        connections.spawn(async move {
            let service = hyper::service::service_fn(move |request| {
                let store = Arc::clone(&store);
                async move { Ok::<_, Infallible>(answer(request, store).await) }
            });
            let http = hyper::server::conn::http1::Builder::new();
            // The client may disconnect at any time.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        });
        // Removes the tasks of ended connections.
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(request: Request<Incoming>, store: Arc<Store>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let Some(target) = target(head.uri.path()) else {
        return status(StatusCode::NOT_FOUND, "NotFound");
    };
    let query = head.uri.query().unwrap_or_default();
    let query: Query = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let Some(name) = target.name.as_deref().filter(|_| head.method != Method::POST) else {
        return match (&head.method, query.get("watch").map(String::as_str)) {
            (&Method::POST, _) => create(&store, &target, sent(body).await),
            (_, None | Some("false")) => list(&store, &target, &query),
            (_, Some(_)) => watch(store, target.kind, &query),
        };
    };
    let (kind, key) = (target.kind.as_str(), key(target.namespace.as_deref(), name));
    let found = store.get(kind, &key);
    match (&head.method, found) {
        (_, None) => status(StatusCode::NOT_FOUND, "NotFound"),
        (&Method::GET, Some(object)) => reply(StatusCode::OK, object.to_string().into()),
        (&Method::PUT, Some(_)) => {
            let object = sent(body).await;
            written(store.change(kind, version(&object), object))
        }
        (&Method::PATCH, Some(object)) if kind == NODES => {
            let done = patched(object, sent(body).await)
                .and_then(|object| store.change(kind, version(&object), object));
            if done.is_some() {
                store.record_change(format!("PATCH {kind} {key}"));
            }
            written(done)
        }
        (method, Some(_)) => {
            store.record_change(format!("{method} {kind} {key}"));
            status(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed")
        }
    }
}

async fn sent(body: Incoming) -> Value {
    let sent = body.collect().await.map(|sent| sent.to_bytes()).unwrap_or_default();
    serde_json::from_slice(&sent).unwrap_or_default()
}

/// Returns the resource version on which the client based its write.
fn version(sent: &Value) -> Option<u64> {
    sent["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

fn create(store: &Store, target: &Target, mut object: Value) -> Response<Body> {
    // Events are discarded.
    if target.kind == "events" {
        return reply(StatusCode::OK, object.to_string().into());
    }
    if let Some(namespace) = &target.namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    written(store.change(&target.kind, Some(0), object))
}

/// Applies a JSON patch or a merge patch; `None` when the patch is for another object or state. A
/// merge patch that requires a version sets it in the result.
fn patched(mut object: Value, patch: Value) -> Option<Value> {
    if patch.is_array() {
        let patch: json_patch::Patch = serde_json::from_value(patch).ok()?;
        return json_patch::patch(&mut object, &patch).ok().map(|()| object);
    }
    let uid = &patch["metadata"]["uid"];
    if !uid.is_null() && *uid != object["metadata"]["uid"] {
        return None;
    }
    json_patch::merge(&mut object, &patch);
    Some(object)
}

fn list(store: &Store, target: &Target, query: &Query) -> Response<Body> {
    let text = |name: &str| query.get(name).map(String::as_str);
    let page = store.page(
        &target.kind,
        target.namespace.as_deref(),
        text("fieldSelector").and_then(|selector| selector.strip_prefix("spec.nodeName=")),
        text("continue"),
        text("limit").and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX),
    );
    let metadata = json!({"resourceVersion": page.version.to_string(), "continue": page.next.unwrap_or_default()});
    let head =
        format!("{{\"apiVersion\":\"v1\",\"kind\":\"List\",\"metadata\":{metadata},\"items\":[");
    let items = page.items.join(&b","[..]);
    reply(StatusCode::OK, [head.as_bytes(), &items, b"]}"].concat().into())
}

fn watch(store: Arc<Store>, kind: String, query: &Query) -> Response<Body> {
    store.record_watch(&kind);
    let number = |name: &str| query.get(name).and_then(|text| text.parse::<u64>().ok());
    let mut version = number("resourceVersion").unwrap_or(0);
    let ends = Duration::from_secs(number("timeoutSeconds").unwrap_or(290));
    let (send, lines) = mpsc::channel::<Bytes>(64);
    tokio::spawn(async move {
        let mut latest = store.latest();
        let following = async {
            loop {
                latest.mark_unchanged();
                let Some((seen, events)) = store.events(&kind, version) else {
                    let gone = failure(StatusCode::GONE, "Expired");
                    let gone = json!({"type": "ERROR", "object": gone});
                    // The client may have disconnected.
                    let _ = send.send(Bytes::from(format!("{gone}\n"))).await;
                    return;
                };
                version = seen;
                for line in events {
                    if send.send(line).await.is_err() {
                        return;
                    }
                }
                if send.is_closed() || latest.changed().await.is_err() {
                    return;
                }
            }
        };
        // A watch that reaches its timeout ends without an error; the client continues from its
        // last version.
        let _ = tokio::time::timeout(ends, following).await;
    });
    let frames = ReceiverStream::new(lines).map(|line| Ok(Frame::data(line)));
    answer_with(StatusCode::OK, StreamBody::new(frames).boxed_unsync())
}

/// Answers a write, which failed when there is no object.
fn written(object: Option<Bytes>) -> Response<Body> {
    match object {
        Some(object) => reply(StatusCode::OK, object),
        None => status(StatusCode::CONFLICT, "Conflict"),
    }
}

fn failure(code: StatusCode, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": reason, "reason": reason, "code": code.as_u16()})
}

fn status(code: StatusCode, reason: &str) -> Response<Body> {
    reply(code, failure(code, reason).to_string().into())
}

fn reply(code: StatusCode, body: Bytes) -> Response<Body> {
    answer_with(code, Full::new(body).boxed_unsync())
}

fn answer_with(code: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_paths_are_parsed() {
        let parsed = |path: &str| {
            let target = target(path)?;
            Some((target.kind, target.namespace, target.name))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            parsed("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x"),
            Some(("leases".to_owned(), some("kube-system"), some("x")))
        );
        assert_eq!(parsed("/api/v1/pods"), Some(("pods".to_owned(), None, None)));
        assert_eq!(parsed("/metrics"), None);
    }
}
