//! The control socket: HTTP with JSON on a unix socket that only the owner may use. `README.md`
//! lists the requests.

use super::{ReplyBody, ServeError, Shared, add_instance, read, serve, whole};
use crate::actions::Power;
use crate::faults::FaultRule;
use crate::limits::TokenRate;
use crate::scenario::InstanceSeed;
use crate::sim::{Forced, Sim};
use crate::state::resources::ZoneState;
use crate::time::{LatencyChange, Millis};
use http::{Response, header};
use hyper::body::Incoming;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;

struct ControlRequest {
    method: String,
    path: Vec<String>,
    query: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// A refusal: the HTTP status, and the reason.
type ControlError = (u16, String);

fn refuse(status: u16, why: impl std::fmt::Display) -> ControlError {
    (status, why.to_string())
}

/// Refuses the request if what it names is absent.
fn found<T>(value: Option<T>, what: impl std::fmt::Display) -> Result<T, ControlError> {
    value.ok_or_else(|| refuse(404, format!("there is no {what}")))
}

impl ControlRequest {
    fn json<T: DeserializeOwned>(&self) -> Result<T, ControlError> {
        let body: &[u8] =
            if self.body.iter().all(u8::is_ascii_whitespace) { b"{}" } else { &self.body };
        serde_json::from_slice(body).map_err(|e| refuse(400, format!("the body is not valid: {e}")))
    }

    fn number(&self, name: &str, default: u64) -> Result<u64, ControlError> {
        self.query.get(name).map_or(Ok(default), |v| {
            v.parse().map_err(|_| refuse(400, format!("{name}={v} is not a number")))
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsChange {
    enabled: Option<bool>,
    scale: Option<f64>,
    #[serde(default)]
    actions: BTreeMap<String, TokenRate>,
    #[serde(default)]
    foreign: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PowerChange {
    #[serde(default)]
    at_once: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ZoneChange {
    state: ZoneState,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Outage {
    for_ms: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Foreign {
    action: String,
    #[serde(default)]
    parameters: BTreeMap<String, String>,
}

async fn answer(shared: &Arc<Shared>, request: &ControlRequest) -> Result<Value, ControlError> {
    let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
    match (request.method.as_str(), path.as_slice()) {
        ("POST", ["v1", "outage"]) => {
            let outage: Outage = request.json()?;
            let span = Duration::from_millis(outage.for_ms);
            shared.outage.send_modify(|o| *o = (o.0.wrapping_add(1), span));
            Ok(json!({}))
        }
        ("POST", ["v1", "instances"]) => {
            let seed: InstanceSeed = request.json()?;
            add_instance(shared, &seed).await.map_err(|e| refuse(400, e))
        }
        (method, ["v1", rest @ ..]) => {
            shared.with_sim(|sim, now| with_sim(sim, now, method, rest, request))
        }
        _ => Err(unknown(request)),
    }
}

fn unknown(request: &ControlRequest) -> ControlError {
    refuse(404, format!("there is no {} /{}", request.method, request.path.join("/")))
}

fn with_sim(
    sim: &mut Sim,
    now: Millis,
    method: &str,
    path: &[&str],
    request: &ControlRequest,
) -> Result<Value, ControlError> {
    match (method, path) {
        ("GET", ["state"]) => Ok(sim.dump(now)),
        ("GET", ["statistics"]) => Ok(sim.statistics.json()),
        ("GET", ["journal"]) => {
            let limit = usize::try_from(request.number("limit", 1000)?).unwrap_or(usize::MAX);
            let action = request.query.get("action").map(String::as_str);
            let records = sim.journal.after(request.number("after", 0)?, limit, action);
            Ok(json!({"records": records, "last": sim.journal.last_seq()}))
        }
        ("GET", ["invariants"]) => {
            sim.settle(now);
            let loops = sim.devices.as_ref().map_or_else(Vec::new, |devices| devices.loops());
            Ok(sim.invariants.json(sim.realm(), &json!(loops)))
        }
        ("GET", ["latency"]) => Ok(json!(sim.latency)),
        ("PUT", ["latency"]) => {
            let change: LatencyChange = request.json()?;
            sim.latency.change(&change).map_err(|e| refuse(400, e))?;
            Ok(json!(sim.latency))
        }
        ("PUT", ["limits"]) => {
            let change: LimitsChange = request.json()?;
            let l = &mut sim.limits;
            l.enabled = change.enabled.unwrap_or(l.enabled);
            l.scale = change.scale.unwrap_or(l.scale);
            l.actions.extend(change.actions);
            l.foreign.extend(change.foreign);
            Ok(json!(sim.limits))
        }
        ("PUT", ["zones", name]) => {
            let change: ZoneChange = request.json()?;
            let is_known = sim.set_zone_state(name, change.state);
            found(is_known.then(|| json!({})), format!("zone {name}"))
        }
        ("GET", ["faults"]) => Ok(json!(sim.faults.list())),
        ("POST", ["faults"]) => {
            let rule: FaultRule = request.json()?;
            Ok(json!({ "id": sim.faults.add(rule, now) }))
        }
        ("DELETE", ["faults"]) => {
            sim.faults.clear();
            Ok(json!({}))
        }
        ("DELETE", ["faults", id]) => {
            found(sim.faults.remove(id).then(|| json!({})), format!("fault rule {id}"))
        }
        ("POST", ["instances", id, power @ ("stop" | "hibernate" | "start" | "terminate")]) => {
            let change: PowerChange = request.json()?;
            let wanted = match *power {
                "stop" => Power::Stop,
                "hibernate" => Power::Hibernate,
                "start" => Power::Start,
                _ => Power::Terminate,
            };
            match sim.set_power(now, id, wanted, change.at_once) {
                Some(state) => Ok(json!({ "state": state })),
                None => Err(refuse(409, format!("there is no instance {id} that can {power} now"))),
            }
        }
        ("PUT", ["instances", id, "checks"]) => {
            let checks = sim.set_checks(now, id, request.json()?);
            Ok(json!(found(checks, format!("instance {id}"))?))
        }
        ("POST", ["volumes", id, "force"]) => {
            let forced: Forced = request.json()?;
            found(sim.force_volume(now, id, &forced), id)
        }
        ("POST", ["as-foreign"]) => {
            let f: Foreign = request.json()?;
            let r = sim.as_foreign(now, &f.action, &f.parameters);
            Ok(json!({"status": r.status, "body": String::from_utf8_lossy(&r.body)}))
        }
        _ => Err(unknown(request)),
    }
}

/// Opens the socket and serves it in the background.
pub(super) fn listen(shared: &Arc<Shared>, path: &Path) -> Result<(), ServeError> {
    let socket = |e| ServeError::Socket(format!("control socket {}", path.display()), e);
    // A killed simulator left this socket behind: the lock on the state directory proves that the
    // socket is not in use.
    if std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket()) {
        std::fs::remove_file(path).map_err(socket)?;
    }
    let listener = UnixListener::bind(path).map_err(socket)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(socket)?;
    let accepting = Arc::clone(shared);
    shared.spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let shared = Arc::clone(&accepting);
            tokio::spawn(async move { serve(stream, |r| respond(&shared, r)).await });
        }
    });
    Ok(())
}

async fn respond(
    shared: &Arc<Shared>,
    request: hyper::Request<Incoming>,
) -> io::Result<Response<ReplyBody>> {
    let (head, body) = request.into_parts();
    let body = read(body).await?;
    let query =
        form_urlencoded::parse(head.uri.query().unwrap_or("").as_bytes()).into_owned().collect();
    let request = ControlRequest {
        method: head.method.as_str().to_owned(),
        path: head.uri.path().trim_matches('/').split('/').map(str::to_owned).collect(),
        query,
        body: body.to_vec(),
    };
    let (status, value) = match answer(shared, &request).await {
        Ok(value) => (200, value),
        Err((status, why)) => (status, json!({ "error": why })),
    };
    let mut text = value.to_string();
    text.push('\n');
    Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json")
        .body(whole(text))
        .map_err(io::Error::other)
}
