//! Events that need no request: applies everything that is due, in order of time, with the effects
//! on devices.

use super::Sim;
use crate::state::Key;
use crate::state::resources::{
    AttachmentEvent, InstanceEvent, InstanceState, Phase, VolumeEvent, VolumeState,
};
use crate::time::Millis;

/// How long until the simulator tries again to remove a held device, and until it retries a device
/// that it could not create, in milliseconds.
const RETRY_MS: u64 = 100;

impl Sim {
    /// Advances the state to `now`.
    pub fn settle(&mut self, now: Millis) {
        loop {
            let later =
                self.scheduled.first_key_value().map(|(k, _)| *k).filter(|(at, _)| *at <= now);
            let own = self.realm.next_due().filter(|at| *at <= now);
            match (own, later) {
                (Some(at), later) if later.is_none_or(|(t, _)| at <= t) => {
                    if let Some((_, key)) = self.realm.pop_due(now) {
                        self.step(&key, now);
                    }
                }
                (_, Some(key)) => {
                    if let Some((request, origin)) = self.scheduled.remove(&key) {
                        self.answer(now, &request, origin);
                    }
                }
                _ => break,
            }
        }
        self.commit(now);
    }

    fn step(&mut self, key: &Key, now: Millis) {
        match key {
            Key::Volume(id) => {
                let events = self.realm.update_volume(id, |v| v.advance(now)).unwrap_or_default();
                for event in events {
                    self.volume_event(id, event, now);
                }
            }
            Key::Snapshot(id) => {
                self.realm.update_snapshot(id, |s| s.advance(now));
            }
            Key::Instance(id) => {
                let event = self.realm.update_instance(id, |i| i.advance(now)).flatten();
                if let Some(event) = event {
                    self.instance_event(id, event, now);
                }
            }
        }
    }

    fn volume_event(&mut self, id: &str, event: VolumeEvent, now: Millis) {
        match event {
            VolumeEvent::Gone => {
                self.realm.remove_volume(id);
                if let Some(devices) = &self.devices {
                    log(devices.images.delete(id), "the image of a volume stays", id);
                }
            }
            VolumeEvent::Attachment(instance, AttachmentEvent::Appear) => {
                self.attach_device(id, &instance, now);
            }
            VolumeEvent::Attachment(instance, AttachmentEvent::Release { force }) => {
                // A stopped guest holds no device.
                let on = self.realm.instances().get(&instance);
                let is_stopped = on.is_none_or(|i| matches!(i.life, InstanceState::Stopped));
                self.release(id, &instance, force || is_stopped, now);
            }
            VolumeEvent::Reshaped => {
                if let Some(v) = self.realm.volumes().get(id).filter(|v| !v.root)
                    && let Some(devices) = &self.devices
                {
                    log(devices.resize(id, v.shape.size), "a volume could not be made larger", id);
                }
            }
        }
    }

    fn attach_device(&mut self, volume: &str, instance: &str, now: Millis) {
        let Some(name) = self.device_of(volume, instance) else { return };
        let Some(devices) = &mut self.devices else { return };
        self.invariants.attached(volume, devices.images.fingerprint(volume));
        if let Err(error) = devices.attach(volume, instance, &name) {
            tracing::error!(%error, volume, instance, "a device could not be made; it is tried again");
            self.realm.update_volume(volume, |v| {
                if let Some(a) = v.attachment_mut(instance) {
                    a.appears = Some(now.plus(RETRY_MS));
                }
            });
        }
    }

    fn device_of(&self, volume: &str, instance: &str) -> Option<String> {
        let v = self.realm.volumes().get(volume)?;
        let a = v.attachment(instance)?;
        (!v.root).then(|| a.device.clone())
    }

    fn release(&mut self, volume: &str, instance: &str, force: bool, now: Millis) {
        let mut is_released = true;
        if let Some(name) = self.device_of(volume, instance)
            && let Some(devices) = &mut self.devices
        {
            is_released = devices.release(volume, instance, &name, force).unwrap_or_else(|error| {
                tracing::error!(%error, volume, instance, "a device could not be taken away; it is tried again");
                false
            });
            if is_released {
                let holds = devices.images.fingerprint(volume);
                self.invariants.released(volume, holds.as_ref(), now);
            }
        }
        self.realm.update_volume(volume, |v| {
            if is_released {
                v.attachments.retain(|a| a.instance != instance);
            } else if let Some(a) = v.attachment_mut(instance) {
                a.phase = Phase::Busy { again: Some(now.plus(RETRY_MS)) };
            }
        });
    }

    fn instance_event(&mut self, id: &str, event: InstanceEvent, now: Millis) {
        let volumes: Vec<(String, bool, bool)> = self
            .realm
            .volumes_of(id)
            .filter_map(|v| {
                let a = v.attachment(id)?;
                let is_detaching = matches!(a.phase, Phase::Busy { .. } | Phase::Detaching { .. });
                Some((v.id.clone(), a.delete_on_termination, is_detaching))
            })
            .collect();
        match event {
            InstanceEvent::Stopped => {
                // A stopped guest holds no device.
                for (volume, _, is_detaching) in volumes {
                    if is_detaching {
                        self.release(&volume, id, true, now);
                    }
                }
            }
            InstanceEvent::Terminated => {
                for (volume, is_deleted_with_instance, _) in volumes {
                    self.release(&volume, id, true, now);
                    if is_deleted_with_instance {
                        self.realm.update_volume(&volume, |v| {
                            v.life = VolumeState::Deleting { until: now }
                        });
                    }
                }
            }
            InstanceEvent::Gone => {
                self.realm.remove_instance(id);
            }
        }
    }
}

fn log(result: std::io::Result<()>, what: &str, id: &str) {
    if let Err(error) = result {
        tracing::error!(%error, id, "{what}");
    }
}
