//! The control API's operations that bypass EC2's actions.

use super::{Reply, Request, Sim, SimError};
use crate::actions::{self, Power};
use crate::scenario::{InstanceSeed, bad_instance};
use crate::state::Realm;
use crate::state::resources::{
    Attachment, ChecksChange, Instance, InstanceChecks, InstanceState, Performance, Phase,
    ROOT_DEVICE, Volume, VolumeState, ZoneState,
};
use crate::time::Millis;
use crate::wire::Params;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Forced {
    /// `error`, the only state that can be forced.
    pub state: Option<ForcedState>,
    /// The instance from which to detach the volume, including the device.
    pub(crate) detached: Option<String>,
    /// Whether EC2 has disabled I/O, as DescribeVolumeStatus shows.
    pub(crate) io_disabled: Option<bool>,
    pub(crate) performance: Option<Performance>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ForcedState {
    Error,
}

impl Sim {
    /// Makes a call as another user of the account.
    pub fn as_foreign(
        &mut self,
        now: Millis,
        action: &str,
        parameters: &BTreeMap<String, String>,
    ) -> Reply {
        self.settle(now);
        let request = self.foreign_request(action, parameters, None, None);
        self.answer(now, &request, "foreign")
    }

    /// Builds a call of another user of the account. A parameter's value `$NAME` stands for the
    /// client's parameter of that name, `$made` for the resource that the client's call created. A
    /// parameter whose value is missing is left out.
    pub(super) fn foreign_request(
        &self,
        action: &str,
        parameters: &BTreeMap<String, String>,
        client: Option<&Params>,
        made: Option<&str>,
    ) -> Request {
        let authorization =
            format!("Credential=FOREIGN/20260101/{}/ec2/aws4_request", self.realm.region);
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("Action", action).append_pair("Version", "2016-11-15");
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
        let begins =
            actions::change(&mut self.realm, &mut self.latency, instance, wanted, now, at_once);
        self.settle(now);
        self.realm.instances().get(instance).filter(|_| begins).map(|i| i.state().1)
    }

    /// Sets the results of EC2's status checks of an instance from now on. Returns the checks, or
    /// `None` if the instance does not exist.
    pub fn set_checks(
        &mut self,
        now: Millis,
        instance: &str,
        found: ChecksChange,
    ) -> Option<InstanceChecks> {
        self.settle(now);
        let checks = self.realm.update_instance(instance, |i| {
            i.checks = i.checks.with(found);
            i.checks
        });
        self.commit(now);
        checks
    }

    /// Changes some of the account's limits.
    pub fn change_quotas(&mut self, change: Value) -> Result<(), String> {
        self.quotas = self.quotas.changed(change)?;
        Ok(())
    }

    /// Changes a zone's state. Returns false if the zone does not exist.
    pub fn set_zone_state(&mut self, zone: &str, state: ZoneState) -> bool {
        let zone = self.realm.zones.iter_mut().find(|z| z.name == zone);
        zone.map(|z| z.state = state).is_some()
    }

    /// Forces a state on a volume. Returns the volume afterwards, or `None` if the volume does not
    /// exist.
    pub(crate) fn force_volume(&mut self, now: Millis, id: &str, f: &Forced) -> Option<Value> {
        self.settle(now);
        self.realm.update_volume(id, |v| {
            if let Some(ForcedState::Error) = f.state {
                v.life = VolumeState::Failed;
            }
            if let Some(disabled) = f.io_disabled {
                v.checks.io_disabled = disabled;
            }
            if let Some(performance) = f.performance {
                v.checks.performance = performance;
            }
            // From here on, the detach takes the usual path, including the device.
            if let Some(a) = f.detached.as_deref().and_then(|i| v.attachment_mut(i)) {
                a.phase = Phase::Detaching { until: Some(now), force: true };
            }
        });
        self.settle(now);
        self.realm.volumes().get(id).map(volume_json)
    }

    /// Returns the whole state, for a person or a test to read.
    pub(crate) fn dump(&mut self, now: Millis) -> Value {
        self.settle(now);
        json!({ "now": now.iso(), "realms": [realm_json(&self.realm)] })
    }
}

fn realm_json(r: &Realm) -> Value {
    let with = |mut shown: Value, key: &str, state: &str| {
        shown[key] = json!(state);
        shown
    };
    let instances = r.instances().values().map(|i| with(json!(i), "state", i.state().1));
    let snapshots = r.snapshots().values().map(|s| with(json!(s), "status", s.status()));
    json!({
        "account": r.account, "region": r.region, "zones": r.zones,
        "instances": instances.collect::<Vec<_>>(),
        "volumes": r.volumes().values().map(volume_json).collect::<Vec<_>>(),
        "snapshots": snapshots.collect::<Vec<_>>(), "tokens": r.tokens,
    })
}

fn volume_json(v: &Volume) -> Value {
    let mut out = json!(v);
    out["status"] = json!(v.status());
    for (i, a) in v.attachments.iter().enumerate() {
        out["attachments"][i]["status"] = json!(a.status());
    }
    if let Some(m) = &v.modification {
        out["modification"]["status"] = json!(m.state);
    }
    out
}

/// The size of a root volume, in GiB.
const ROOT_GIB: u32 = 8;

impl Sim {
    pub(super) fn launch(&mut self, seed: &InstanceSeed, now: Millis) -> Result<(), SimError> {
        self.used_instance_ids.insert(seed.id.clone());
        if let Some(devices) = &self.devices {
            devices.add_instance(&seed.id)?;
        }
        let data = seed.launch_disks.iter().map(|device| (device.as_str(), 1));
        for (device, gib) in std::iter::once((ROOT_DEVICE, ROOT_GIB)).chain(data) {
            let id = self.ids.issue("vol");
            self.realm.put_volume(own_volume(id, seed, device, gib, now));
        }
        self.realm.put_instance(Instance {
            id: seed.id.clone(),
            instance_type: seed.instance_type.clone(),
            zone: seed.zone.clone(),
            life: match seed.state.as_str() {
                "stopped" => InstanceState::Stopped,
                _ => InstanceState::Running,
            },
            outpost: seed.outpost.clone(),
            hidden_devices: seed.hidden_devices.clone(),
            hibernation: seed.hibernation,
            hibernated: false,
            checks: InstanceChecks::default(),
            launched: now,
            tags: seed.tags.clone(),
        });
        Ok(())
    }

    pub(crate) fn add_instance(
        &mut self,
        seed: &InstanceSeed,
        now: Millis,
    ) -> Result<(), SimError> {
        if self.used_instance_ids.contains(&seed.id) {
            return Err(bad_instance(&seed.id, "there is, or was, an instance of that id").into());
        }
        seed.check(&self.realm.zones)?;
        self.launch(seed, now)?;
        self.commit(now);
        Ok(())
    }
}

/// Returns a volume that the instance was launched with: the root volume, or a data volume.
fn own_volume(id: String, seed: &InstanceSeed, device: &str, gib: u32, now: Millis) -> Volume {
    let mut attachment = Attachment::new(&seed.id, device, now, None);
    attachment.phase = Phase::Attached;
    attachment.delete_on_termination = true;
    Volume {
        outpost: seed.outpost.clone(),
        attachments: vec![attachment],
        ..Volume::plain(id, gib, &seed.zone, now)
    }
}
