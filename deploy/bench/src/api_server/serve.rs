//! Serves the store over HTTP.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

use super::Kind;
use super::route::{Target, parameter, target};
use super::store::{Refused, Store};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// An object that a client patched or deleted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Changed {
    /// `patch` or `delete`.
    pub verb: String,
    /// The object's kind.
    pub kind: Kind,
    /// The object's key in the store.
    pub key: String,
}

/// Counts how often each verb was used on each kind.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    counts: Mutex<BTreeMap<(String, &'static str), u64>>,
    changed: Mutex<Vec<Changed>>,
}

impl Requests {
    fn count(&self, verb: &str, kind: Kind) {
        *lock(&self.counts).entry((verb.to_owned(), kind.plural())).or_default() += 1;
    }

    /// Returns all counts.
    pub(crate) fn counts(&self) -> BTreeMap<(String, &'static str), u64> {
        lock(&self.counts).clone()
    }

    /// Resets the counts.
    pub(crate) fn reset(&self) {
        lock(&self.counts).clear();
    }

    fn record_change(&self, verb: &str, kind: Kind, key: &str) {
        let changed = Changed { verb: verb.to_owned(), kind, key: key.to_owned() };
        lock(&self.changed).push(changed);
    }

    /// Returns the objects that were patched or deleted since the last call of this function.
    pub(crate) fn take_changed(&self) -> Vec<Changed> {
        std::mem::take(&mut lock(&self.changed))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves the store until the future is dropped.
pub(crate) async fn serve(
    listener: TcpListener,
    store: Arc<Store>,
    requests: Arc<Requests>,
) -> std::io::Result<()> {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (store, requests) = (Arc::clone(&store), Arc::clone(&requests));
        connections.spawn(async move {
            let service = hyper::service::service_fn(move |request| {
                let (store, requests) = (Arc::clone(&store), Arc::clone(&requests));
                async move { Ok::<_, Infallible>(answer(request, store, &requests).await) }
            });
            let http = hyper::server::conn::http1::Builder::new();
            // The client may disconnect at any time.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        });
        // Removes the tasks of ended connections.
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(
    request: Request<Incoming>,
    store: Arc<Store>,
    requests: &Requests,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let Some(named) = target(head.uri.path()) else {
        return status(StatusCode::NOT_FOUND, "NotFound");
    };
    let query = head.uri.query().unwrap_or_default().to_owned();
    let watches = parameter(&query, "watch").is_some_and(|watch| watch != "false");
    let verb = match (&head.method, &named.name) {
        (&Method::GET, None) if watches => "watch",
        (&Method::GET, None) => "list",
        (&Method::GET, Some(_)) => "get",
        (&Method::POST, _) => "create",
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, _) => "delete",
        _ => return status(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
    };
    requests.count(verb, named.kind);
    let sent = match body.collect().await {
        Ok(sent) => serde_json::from_slice(&sent.to_bytes()).unwrap_or(Value::Null),
        Err(_) => return status(StatusCode::BAD_REQUEST, "BadRequest"),
    };
    match verb {
        "watch" => watch(store, &named, &query),
        "list" => list(&store, &named, &query),
        _ => change(&store, requests, verb, &named, sent),
    }
}

/// Answers a request about one object.
fn change(
    store: &Store,
    requests: &Requests,
    verb: &str,
    named: &Target,
    sent: Value,
) -> Response<Body> {
    let name = named.name.as_deref().unwrap_or_default();
    let key = Store::key(named.namespace.as_deref(), name);
    let done = match verb {
        "get" => store.raw(named.kind, &key).ok_or(Refused::NotFound),
        // Events are counted and discarded.
        "create" if named.kind == Kind::Events => Ok(Bytes::from(sent.to_string())),
        "create" => {
            let mut object = sent;
            if let Some(namespace) = &named.namespace {
                object["metadata"]["namespace"] = json!(namespace);
            }
            store.change(named.kind, Some(0), object)
        }
        "update" => {
            let expected = version(&sent);
            store.change(named.kind, expected, sent)
        }
        "patch" => match store.get(named.kind, &key) {
            None => Err(Refused::NotFound),
            Some(mut object) if sent.is_array() => {
                let expected = version(&object);
                if !apply(&mut object, &sent) {
                    return status(StatusCode::UNPROCESSABLE_ENTITY, "Invalid");
                }
                store.change(named.kind, expected, object)
            }
            Some(mut object) => {
                let uid = &sent["metadata"]["uid"];
                if !uid.is_null() && *uid != object["metadata"]["uid"] {
                    Err(Refused::Conflict)
                } else {
                    let expected = version(&sent).or_else(|| version(&object));
                    merge(&mut object, sent);
                    store.change(named.kind, expected, object)
                }
            }
        },
        _ => {
            let uid = sent["preconditions"]["uid"].as_str();
            store.remove(named.kind, &key, uid)
        }
    };
    if matches!(verb, "patch" | "delete") && done.is_ok() {
        requests.record_change(verb, named.kind, &key);
    }
    match done {
        Ok(object) => reply(StatusCode::OK, object),
        Err(Refused::NotFound) => status(StatusCode::NOT_FOUND, "NotFound"),
        Err(Refused::Conflict) => status(StatusCode::CONFLICT, "Conflict"),
    }
}

/// Returns the resource version on which the client based its write.
fn version(sent: &Value) -> Option<u64> {
    sent["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

/// Applies a JSON patch (RFC 6902) of the operations `test` and `replace`, which are all that this
/// server's clients send. Returns false when one of them fails.
fn apply(object: &mut Value, patch: &Value) -> bool {
    let mut steps = patch.as_array().into_iter().flatten();
    steps.all(|step| {
        let path = step["path"].as_str();
        let Some(value) = path.and_then(|path| object.pointer_mut(path)) else {
            return false;
        };
        match step["op"].as_str() {
            Some("test") => *value == step["value"],
            Some("replace") => {
                *value = step["value"].clone();
                true
            }
            _ => false,
        }
    })
}

/// Applies a merge patch (RFC 7396). Strategic merge patches are treated as merge patches: this
/// server's clients patch no list for which the two differ.
fn merge(object: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *object = patch;
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            if let Some(map) = object.as_object_mut() {
                map.remove(&key);
            }
        } else {
            merge(&mut object[key.as_str()], value);
        }
    }
}

fn list(store: &Store, named: &Target, query: &str) -> Response<Body> {
    let limit = parameter(query, "limit").and_then(|limit| limit.parse().ok());
    let after = parameter(query, "continue");
    let selector = parameter(query, "fieldSelector");
    let node = selector.as_deref().and_then(|text| text.strip_prefix("spec.nodeName="));
    let page = store.page(
        named.kind,
        named.namespace.as_deref(),
        node,
        after.as_deref(),
        limit.unwrap_or(usize::MAX),
    );
    let (api, kind) = named.kind.types();
    let size: usize = page.items.iter().map(|item| item.len() + 1).sum();
    let mut body = Vec::with_capacity(size + 200);
    let more = page.next.unwrap_or_default();
    let head = format!(
        "{{\"kind\":\"{kind}List\",\"apiVersion\":\"{api}\",\"metadata\":{{\"resourceVersion\":\"{}\",\"continue\":{}}},\"items\":[",
        page.version,
        json!(more)
    );
    body.extend_from_slice(head.as_bytes());
    for (number, item) in page.items.iter().enumerate() {
        if number > 0 {
            body.push(b',');
        }
        body.extend_from_slice(item);
    }
    body.extend_from_slice(b"]}");
    reply(StatusCode::OK, Bytes::from(body))
}

fn watch(store: Arc<Store>, named: &Target, query: &str) -> Response<Body> {
    let number = |name: &str| parameter(query, name).and_then(|text| text.parse::<u64>().ok());
    let mut version = number("resourceVersion").unwrap_or(0);
    let ends = Duration::from_secs(number("timeoutSeconds").unwrap_or(290));
    let kind = named.kind;
    let (send, lines) = mpsc::channel::<Bytes>(64);
    tokio::spawn(async move {
        let mut changes = store.changes();
        let following = async {
            loop {
                changes.mark_unchanged();
                let Some((latest, events)) = store.events(kind, version) else {
                    let gone = json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                        "message": "too old resource version", "reason": "Expired", "code": 410}});
                    // The client may have disconnected.
                    let _ = send.send(Bytes::from(format!("{gone}\n"))).await;
                    return;
                };
                version = latest;
                for line in events {
                    if send.send(line).await.is_err() {
                        return;
                    }
                }
                if send.is_closed() || changes.changed().await.is_err() {
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

fn status(code: StatusCode, reason: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": reason, "reason": reason, "code": code.as_u16()});
    reply(code, Bytes::from(status.to_string()))
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
    fn a_merge_patch_adds_replaces_and_removes() {
        let mut object = json!({"a": {"b": 1, "c": 2}, "d": [1]});
        merge(&mut object, json!({"a": {"b": null, "e": {"f": 3}}, "d": [2]}));
        assert_eq!(object, json!({"a": {"c": 2, "e": {"f": 3}}, "d": [2]}));
    }

    #[test]
    fn a_json_patch_replaces_only_what_it_tests() {
        let mut object = json!({"a": [1, 2]});
        let patch = |tested: i32| {
            json!([
                {"op": "test", "path": "/a/1", "value": tested},
                {"op": "replace", "path": "/a", "value": [3]},
            ])
        };
        assert!(!apply(&mut object, &patch(1)));
        assert_eq!(object, json!({"a": [1, 2]}));
        assert!(apply(&mut object, &patch(2)));
        assert_eq!(object, json!({"a": [3]}));
        assert!(!apply(&mut object, &patch(2)), "the path is gone");
    }
}
