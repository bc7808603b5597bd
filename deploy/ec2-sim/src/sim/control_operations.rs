//! The control API's operations that bypass EC2's actions.

use super::{Reply, Request, Sim};
use crate::actions::{Power, power};
use crate::limits::quotas::Quotas;
use crate::state::realm::Realm;
use crate::state::resources::attachment::Phase;
use crate::state::resources::instance_checks::{Checks, Findings};
use crate::state::resources::snapshot::Life as SnapshotLife;
use crate::state::resources::volume::{Life, Volume};
use crate::state::resources::volume_checks::Performance;
use crate::state::resources::zone::check_zone_state;
use crate::time::Millis;
use crate::wire::query::Params;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A state to force on a volume or snapshot.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Forced {
    /// For a volume: available, error. For a snapshot: pending, completed, error.
    pub state: Option<String>,
    /// Whether to remove the resource.
    pub gone: bool,
    /// For a volume: the instance from which to detach the volume, including the device.
    pub detached: Option<String>,
    /// For a volume: the instance whose attachment to complete.
    pub attached: Option<String>,
    /// For a volume: whether EC2 has disabled I/O, as DescribeVolumeStatus shows.
    pub io_disabled: Option<bool>,
    /// For a volume: the performance, as DescribeVolumeStatus shows.
    pub performance: Option<Performance>,
}

impl Sim {
    /// Makes a call as another user of the account.
    pub fn as_foreign(
        &mut self,
        now: Millis,
        account: Option<&str>,
        region: Option<&str>,
        action: &str,
        parameters: &BTreeMap<String, String>,
    ) -> Option<Reply> {
        self.settle(now);
        let realm = self.realms.iter().position(|r| {
            account.is_none_or(|a| a == r.account) && region.is_none_or(|g| g == r.region)
        })?;
        let request = self.foreign_request(realm, action, parameters, None, None);
        Some(self.answer(now, &request, "foreign"))
    }

    /// Builds a call of another user of the account. A parameter's value `$NAME` stands for the
    /// client's parameter of that name, `$made` for the resource that the client's call created. A
    /// parameter whose value is missing is left out.
    pub(super) fn foreign_request(
        &self,
        realm: usize,
        action: &str,
        parameters: &BTreeMap<String, String>,
        client: Option<&Params>,
        made: Option<&str>,
    ) -> Request {
        let realm = &self.realms[realm];
        let key = self
            .keys
            .iter()
            .find(|(_, a)| **a == realm.account)
            .map_or("FOREIGN", |(k, _)| k.as_str());
        let authorization = format!(
            "Credential={key}/20260101/{}/ec2/aws4_request",
            realm.region
        );
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("Action", action)
            .append_pair("Version", "2016-11-15");
        for (k, v) in parameters {
            let value = match v.strip_prefix('$') {
                Some("made") => made,
                Some(name) => client.and_then(|p| p.peek(name)),
                None => Some(v.as_str()),
            };
            if let Some(value) = value {
                form.append_pair(k, value);
            }
        }
        Request {
            form: form.finish().into_bytes(),
            authorization: Some(authorization),
            ..Request::default()
        }
    }

    /// Starts, stops, hibernates or terminates an instance. Returns the resulting state, or `None`
    /// if the change is impossible.
    pub fn set_power(
        &mut self,
        now: Millis,
        instance: &str,
        wanted: Power,
        at_once: bool,
    ) -> Option<&'static str> {
        self.settle(now);
        let state = {
            let latency = &mut self.latency;
            self.realms
                .iter_mut()
                .find(|r| r.instances().contains_key(instance))
                .and_then(|r| power(r, latency, instance, wanted, now, at_once))
        };
        self.settle(now);
        match self.instance(instance) {
            Some((_, i)) if state.is_some() => Some(i.state().1),
            _ => state,
        }
    }

    /// Sets the number of an instance's network interfaces. Returns false if the instance does not
    /// exist.
    pub fn set_enis(&mut self, now: Millis, instance: &str, count: u32) -> bool {
        let done = self
            .realms
            .iter_mut()
            .any(|r| r.update_instance(instance, |i| i.enis = count).is_some());
        self.commit(now);
        done
    }

    /// Sets the results of EC2's status checks of an instance from now on. Returns the checks, or
    /// `None` if the instance does not exist.
    pub fn find_checks(&mut self, now: Millis, instance: &str, found: Findings) -> Option<Checks> {
        self.settle(now);
        let checks = self.realms.iter_mut().find_map(|r| {
            r.update_instance(instance, |i| {
                i.checks.find(found, now);
                i.checks
            })
        });
        self.commit(now);
        checks
    }

    /// Returns the account's limits.
    pub fn quotas(&self) -> &Quotas {
        &self.rules.quotas
    }

    /// Changes some of the account's limits.
    ///
    /// # Errors
    /// Fails for an unknown limit or an invalid value.
    pub fn change_quotas(&mut self, now: Millis, change: Value) -> Result<(), String> {
        self.rules.quotas = self.rules.quotas.changed(change)?;
        if let Some(ms) = self.rules.quotas.snapshot_interval_ms {
            self.rules.snapshot_interval_ms = ms;
        }
        self.invariants
            .limits_begin(&self.realms, &self.rules.quotas, now);
        Ok(())
    }

    /// Changes a zone's state. Returns false if the zone does not exist.
    ///
    /// # Errors
    /// Fails for a state that a zone cannot have.
    pub fn set_zone_state(
        &mut self,
        account: Option<&str>,
        region: Option<&str>,
        zone: &str,
        state: &str,
    ) -> Result<bool, String> {
        check_zone_state(state)?;
        let mut found = false;
        for r in &mut self.realms {
            if account.is_none_or(|a| a == r.account) && region.is_none_or(|g| g == r.region) {
                found |= r.set_zone_state(zone, state);
            }
        }
        Ok(found)
    }

    /// Forces a state on a volume. Returns the volume afterwards, `Null` if the volume is gone, or
    /// `None` if the volume did not exist.
    ///
    /// # Errors
    /// Fails for a state that cannot be forced on a volume.
    pub fn force_volume(
        &mut self,
        now: Millis,
        id: &str,
        f: &Forced,
    ) -> Result<Option<Value>, String> {
        self.settle(now);
        let Some(realm) = self
            .realms
            .iter()
            .position(|r| r.volumes().contains_key(id))
        else {
            return Ok(None);
        };
        let life = match f.state.as_deref() {
            None => None,
            Some("available") => Some(Life::Ready),
            Some("error") => Some(Life::Failed),
            Some(s) => {
                return Err(format!(
                    "a volume can be forced to available or error, not {s:?}"
                ));
            }
        };
        self.realms[realm].update_volume(id, |v| {
            if let Some(life) = life {
                v.life = life;
            }
            if let Some(disabled) = f.io_disabled {
                v.checks.io_disabled = disabled;
            }
            if let Some(performance) = f.performance {
                v.checks.performance = performance;
            }
            // From here on, both changes take the usual path, including the devices.
            if let Some(a) = f.attached.as_deref().and_then(|i| v.attachment_mut(i)) {
                a.phase = Phase::Attaching {
                    until: Some(now),
                    mapped: None,
                };
            }
            if let Some(a) = f.detached.as_deref().and_then(|i| v.attachment_mut(i)) {
                a.phase = Phase::Detaching {
                    until: Some(now),
                    force: true,
                };
            }
            if f.gone {
                for a in &mut v.attachments {
                    a.phase = Phase::Detaching {
                        until: Some(now),
                        force: true,
                    };
                }
            }
        });
        self.settle(now);
        if f.gone {
            self.realms[realm].update_volume(id, |v| v.life = Life::Deleting { until: now });
            self.settle(now);
        }
        Ok(Some(match self.realms[realm].volumes().get(id) {
            Some(v) => volume_json(v),
            None => Value::Null,
        }))
    }

    /// Forces a state on a snapshot, like [`Sim::force_volume`].
    ///
    /// # Errors
    /// Fails for a state that cannot be forced on a snapshot.
    pub fn force_snapshot(
        &mut self,
        now: Millis,
        id: &str,
        f: &Forced,
    ) -> Result<Option<Value>, String> {
        self.settle(now);
        let Some(realm) = self
            .realms
            .iter()
            .position(|r| r.snapshots().contains_key(id))
        else {
            return Ok(None);
        };
        let life = match f.state.as_deref() {
            None => None,
            Some("completed") => Some(SnapshotLife::Completed { since: now }),
            Some("error") => Some(SnapshotLife::Failed),
            Some("pending") => Some(SnapshotLife::Pending {
                until: None,
                fails: false,
            }),
            Some(s) => {
                return Err(format!(
                    "a snapshot can be forced to pending, completed or error, not {s:?}"
                ));
            }
        };
        if let Some(life) = life {
            self.realms[realm].update_snapshot(id, |s| s.life = life);
        }
        if f.gone {
            if let Err(error) = self.devices.delete_snapshot(id) {
                return Err(format!("the image of {id} cannot be removed: {error}"));
            }
            self.realms[realm].remove_snapshot(id);
        }
        self.commit(now);
        let after = self.realms[realm].snapshots().get(id);
        Ok(Some(after.map_or(Value::Null, |s| json!(s))))
    }

    /// Returns the whole state, for a person or a test to read.
    pub fn dump(&mut self, now: Millis, account: Option<&str>, region: Option<&str>) -> Value {
        self.settle(now);
        let shown = self.realms.iter().filter(|r| {
            account.is_none_or(|a| a == r.account) && region.is_none_or(|g| g == r.region)
        });
        json!({ "now": now.iso(), "realms": shown.map(realm_json).collect::<Vec<_>>() })
    }
}

fn realm_json(r: &Realm) -> Value {
    let instances: Vec<Value> = r
        .instances()
        .values()
        .map(|i| {
            let mut v = json!(i);
            v["state"] = json!(i.state().1);
            v
        })
        .collect();
    let snapshots: Vec<Value> = r
        .snapshots()
        .values()
        .map(|s| {
            let mut v = json!(s);
            v["status"] = json!(s.status());
            v
        })
        .collect();
    json!({
        "account": r.account, "region": r.region, "zones": r.zones, "instances": instances,
        "volumes": r.volumes().values().map(volume_json).collect::<Vec<_>>(),
        "snapshots": snapshots, "tokens": r.tokens(), "buckets": r.buckets.levels(),
    })
}

fn volume_json(v: &Volume) -> Value {
    let mut out = json!(v);
    out["status"] = json!(v.status());
    for (i, a) in v.attachments.iter().enumerate() {
        out["attachments"][i]["status"] = json!(a.status());
    }
    if let Some(m) = &v.modification {
        out["modification"]["status"] = json!(m.status());
    }
    out
}
