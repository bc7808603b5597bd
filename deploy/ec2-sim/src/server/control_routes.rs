//! The requests of the control socket. `README.md` lists them.

use super::{Shared, add_instance, lock, ready};
use crate::actions::Power;
use crate::faults::Rule;
use crate::limits::buckets::Rate;
use crate::scenario::InstanceSeed;
use crate::sim::{Forced, Sim};
use crate::time::Millis;
use crate::time::latency::Change;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A request on the control socket.
pub(super) struct ControlRequest {
    /// The HTTP method.
    pub method: String,
    /// The segments of the path.
    pub path: Vec<String>,
    /// The query parameters.
    pub query: BTreeMap<String, String>,
    /// The body.
    pub body: Vec<u8>,
}

/// An error reply to a control request.
pub(super) struct ControlError {
    /// The HTTP status.
    pub status: u16,
    /// The reason.
    pub why: String,
}

fn refuse(status: u16, why: impl std::fmt::Display) -> ControlError {
    ControlError {
        status,
        why: why.to_string(),
    }
}

impl ControlRequest {
    fn json<T: DeserializeOwned>(&self) -> Result<T, ControlError> {
        let body: &[u8] = if self.body.iter().all(u8::is_ascii_whitespace) {
            b"{}"
        } else {
            &self.body
        };
        serde_json::from_slice(body).map_err(|e| refuse(400, format!("the body is not valid: {e}")))
    }

    fn number(&self, name: &str, default: u64) -> Result<u64, ControlError> {
        self.query.get(name).map_or(Ok(default), |v| {
            v.parse()
                .map_err(|_| refuse(400, format!("{name}={v} is not a number")))
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsChange {
    enabled: Option<bool>,
    scale: Option<f64>,
    #[serde(default)]
    actions: BTreeMap<String, Rate>,
    #[serde(default)]
    foreign: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClockChange {
    step_ms: Option<u64>,
    scale: Option<f64>,
}

#[derive(Deserialize)]
struct NewInstance {
    account: Option<String>,
    region: Option<String>,
    #[serde(flatten)]
    rest: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PowerChange {
    #[serde(default)]
    at_once: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct Expiry {
    sessions: bool,
    access_keys: Vec<String>,
    web_identity_tokens: Vec<String>,
    renew: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ZoneChange {
    state: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Count {
    count: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Outage {
    for_ms: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Foreign {
    account: Option<String>,
    region: Option<String>,
    action: String,
    #[serde(default)]
    parameters: BTreeMap<String, String>,
}

/// Answers a request.
pub(super) async fn answer(
    shared: &Arc<Shared>,
    asked: &ControlRequest,
) -> Result<Value, ControlError> {
    let path: Vec<&str> = asked.path.iter().map(String::as_str).collect();
    match (asked.method.as_str(), path.as_slice()) {
        ("GET", ["v1", "ready"]) => Ok(ready(shared)),
        ("GET" | "POST", ["v1", "clock"]) => clock(shared, asked),
        ("POST", ["v1", "outage"]) => {
            let outage: Outage = asked.json()?;
            let span = Duration::from_millis(outage.for_ms);
            shared
                .outage
                .send_modify(|o| *o = (o.0.wrapping_add(1), span));
            Ok(json!({}))
        }
        ("POST", ["v1", "instances"]) => {
            let new: NewInstance = asked.json()?;
            let seed: InstanceSeed = serde_json::from_value(new.rest)
                .map_err(|e| refuse(400, format!("the body is not an instance: {e}")))?;
            add_instance(shared, new.account.as_deref(), new.region.as_deref(), &seed)
                .await
                .map_err(|e| refuse(400, e))
        }
        (method, ["v1", rest @ ..]) => {
            shared.with_sim(|sim, now| with_sim(sim, now, method, rest, asked))
        }
        _ => Err(unknown(asked)),
    }
}

fn unknown(asked: &ControlRequest) -> ControlError {
    refuse(
        404,
        format!("there is no {} /{}", asked.method, asked.path.join("/")),
    )
}

fn clock(shared: &Shared, asked: &ControlRequest) -> Result<Value, ControlError> {
    if asked.method == "POST" {
        let change: ClockChange = asked.json()?;
        let mut clock = lock(&shared.clock);
        if change.step_ms.is_some() && clock.mode() == "real" {
            return Err(refuse(
                409,
                "the clock follows the machine's: give the scenario a manual or scaled clock, or set a scale first",
            ));
        }
        if let Some(scale) = change.scale {
            clock.set_scale(scale);
        }
        if let Some(ms) = change.step_ms {
            clock.step(ms);
        }
        drop(clock);
        // The consequences of the step are complete when this function returns.
        shared.with_sim(Sim::settle);
        shared.wake.notify_one();
    }
    let clock = lock(&shared.clock);
    Ok(json!({"now": clock.now().iso(), "mode": clock.mode()}))
}

fn with_sim(
    sim: &mut Sim,
    now: Millis,
    method: &str,
    path: &[&str],
    asked: &ControlRequest,
) -> Result<Value, ControlError> {
    let query = |name: &str| asked.query.get(name).map(String::as_str);
    match (method, path) {
        ("GET", ["state"]) => Ok(sim.dump(now, query("account"), query("region"))),
        ("GET", ["statistics"]) => Ok(sim.statistics.json()),
        ("DELETE", ["statistics"]) => {
            sim.statistics.reset();
            Ok(json!({}))
        }
        ("GET", ["journal"]) => {
            let limit = usize::try_from(asked.number("limit", 1000)?).unwrap_or(usize::MAX);
            let records = sim
                .journal
                .after(asked.number("after", 0)?, limit, query("action"));
            Ok(json!({"records": records, "last": sim.journal.last_seq()}))
        }
        ("GET", ["invariants"]) => {
            sim.settle(now);
            let loops = json!(sim.devices().loops());
            Ok(sim.invariants.json(sim.realms(), &loops))
        }
        ("GET", ["latency"]) => Ok(json!(sim.latency)),
        ("PUT", ["latency"]) => {
            let change: Change = asked.json()?;
            sim.latency.change(&change).map_err(|e| refuse(400, e))?;
            Ok(json!(sim.latency))
        }
        ("GET", ["limits"]) => Ok(limits(sim)),
        ("PUT", ["limits"]) => {
            let change: LimitsChange = asked.json()?;
            let l = &mut sim.limits;
            l.enabled = change.enabled.unwrap_or(l.enabled);
            l.scale = change.scale.unwrap_or(l.scale);
            l.actions.extend(change.actions);
            l.foreign.extend(change.foreign);
            Ok(limits(sim))
        }
        ("GET", ["quotas"]) => Ok(json!(sim.quotas())),
        ("PUT", ["quotas"]) => {
            sim.change_quotas(now, asked.json()?)
                .map_err(|e| refuse(400, e))?;
            Ok(json!(sim.quotas()))
        }
        ("GET", ["consistency"]) => Ok(json!(sim.consistency.setting)),
        ("PUT", ["consistency"]) => {
            sim.consistency.setting = asked.json()?;
            Ok(json!(sim.consistency.setting))
        }
        ("PUT", ["zones", name]) => {
            let change: ZoneChange = asked.json()?;
            let (account, region) = (query("account"), query("region"));
            match sim.set_zone_state(account, region, name, &change.state) {
                Ok(true) => Ok(json!({})),
                Ok(false) => Err(refuse(404, format!("there is no zone {name}"))),
                Err(why) => Err(refuse(400, why)),
            }
        }
        ("GET", ["iam"]) => {
            let mut out = sim.iam.report();
            out["principals"] = json!(sim.iam.setting().principals);
            out["unknown"] = json!(sim.iam.setting().unknown);
            Ok(out)
        }
        ("PUT", ["iam"]) => {
            let setting = asked.json()?;
            sim.iam.change(setting).map_err(|e| refuse(400, e))?;
            Ok(json!({}))
        }
        ("DELETE", ["iam", "report"]) => {
            sim.iam.reset_report();
            Ok(json!({}))
        }
        ("POST", ["credentials", "expire"]) => {
            let expiry: Expiry = asked.json()?;
            if expiry.sessions {
                sim.iam.expire_sessions(now);
            }
            for key in &expiry.access_keys {
                sim.iam.expire_key(key, !expiry.renew);
            }
            for token in &expiry.web_identity_tokens {
                sim.iam.expire_web_identity(token, !expiry.renew);
            }
            Ok(json!({}))
        }
        ("GET", ["faults"]) => Ok(json!(sim.faults.list())),
        ("POST", ["faults"]) => {
            let rule: Rule = asked.json()?;
            Ok(json!({ "id": sim.faults.add(rule, now) }))
        }
        ("DELETE", ["faults"]) => {
            sim.faults.clear();
            Ok(json!({}))
        }
        ("DELETE", ["faults", id]) => match sim.faults.remove(id) {
            true => Ok(json!({})),
            false => Err(refuse(404, format!("there is no fault rule {id}"))),
        },
        (
            "POST",
            [
                "instances",
                id,
                power @ ("stop" | "hibernate" | "start" | "terminate"),
            ],
        ) => {
            let change: PowerChange = asked.json()?;
            let wanted = match *power {
                "stop" => Power::Stop,
                "hibernate" => Power::Hibernate,
                "start" => Power::Start,
                _ => Power::Terminate,
            };
            sim.set_power(now, id, wanted, change.at_once)
                .map(|state| json!({ "state": state }))
                .ok_or_else(|| {
                    refuse(
                        409,
                        format!("there is no instance {id} that can {power} now"),
                    )
                })
        }
        ("PUT", ["instances", id, "enis"]) => {
            let count: Count = asked.json()?;
            match sim.set_enis(now, id, count.count) {
                true => Ok(json!({})),
                false => Err(refuse(404, format!("there is no instance {id}"))),
            }
        }
        ("PUT", ["instances", id, "checks"]) => {
            let checks = sim.find_checks(now, id, asked.json()?);
            checks
                .map(|checks| json!(checks))
                .ok_or_else(|| refuse(404, format!("there is no instance {id}")))
        }
        ("POST", ["volumes", id, "force"]) => {
            let forced: Forced = asked.json()?;
            found(sim.force_volume(now, id, &forced), id)
        }
        ("POST", ["snapshots", id, "force"]) => {
            let forced: Forced = asked.json()?;
            found(sim.force_snapshot(now, id, &forced), id)
        }
        ("POST", ["as-foreign"]) => {
            let f: Foreign = asked.json()?;
            sim.as_foreign(
                now,
                f.account.as_deref(),
                f.region.as_deref(),
                &f.action,
                &f.parameters,
            )
            .map(|r| json!({"status": r.status, "body": String::from_utf8_lossy(&r.body)}))
            .ok_or_else(|| refuse(404, "there is no such account and region"))
        }
        _ => Err(unknown(asked)),
    }
}

fn limits(sim: &Sim) -> Value {
    let mut out = json!(sim.limits);
    let levels: BTreeMap<String, BTreeMap<&str, f64>> = sim
        .realms()
        .iter()
        .map(|r| (r.name(), r.buckets.levels()))
        .collect();
    out["levels"] = json!(levels);
    out
}

fn found(result: Result<Option<Value>, String>, id: &str) -> Result<Value, ControlError> {
    match result {
        Ok(Some(v)) => Ok(v),
        Ok(None) => Err(refuse(404, format!("there is no {id}"))),
        Err(why) => Err(refuse(400, why)),
    }
}
