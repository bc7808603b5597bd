//! A realm's resources as durable records.

use super::{Key, Realm};
use serde::Serialize;

impl Realm {
    /// Returns the records that changed since the last call, with their current content as JSON
    /// (`None`: deleted).
    pub fn take_changes(&mut self) -> Vec<(Key, Option<String>)> {
        std::mem::take(&mut self.changed)
            .into_iter()
            .map(|key| {
                let value = match &key {
                    Key::Volume(id) => encode(self.volumes.get(id)),
                    Key::Snapshot(id) => encode(self.snapshots.get(id)),
                    Key::Instance(id) => encode(self.instances.get(id)),
                    Key::Token(id) => encode(self.tokens.get(id)),
                    Key::FastRestore(id) => encode(self.fast_restores.get(id)),
                };
                (key, value)
            })
            .collect()
    }

    /// Marks every record as changed, for a full copy of the state.
    pub fn mark_all_changed(&mut self) {
        self.changed
            .extend(self.volumes.keys().cloned().map(Key::Volume));
        self.changed
            .extend(self.snapshots.keys().cloned().map(Key::Snapshot));
        self.changed
            .extend(self.instances.keys().cloned().map(Key::Instance));
        self.changed
            .extend(self.tokens.keys().cloned().map(Key::Token));
        self.changed
            .extend(self.fast_restores.keys().cloned().map(Key::FastRestore));
    }

    /// Restores a record from disk.
    ///
    /// # Errors
    /// Fails if the record does not have the form of its kind.
    pub fn restore(
        &mut self,
        key: &Key,
        value: Option<serde_json::Value>,
    ) -> Result<(), serde_json::Error> {
        let Some(value) = value else {
            match key {
                Key::Volume(id) => drop(self.remove_volume(id)),
                Key::Snapshot(id) => drop(self.remove_snapshot(id)),
                Key::Instance(id) => drop(self.remove_instance(id)),
                Key::Token(id) => drop(self.tokens.remove(id)),
                Key::FastRestore(id) => drop(self.fast_restores.remove(id)),
            }
            return Ok(());
        };
        match key {
            Key::Volume(_) => self.put_volume(serde_json::from_value(value)?),
            Key::Snapshot(_) => self.put_snapshot(serde_json::from_value(value)?),
            Key::Instance(_) => self.put_instance(serde_json::from_value(value)?),
            Key::Token(id) => self.spend(id, serde_json::from_value(value)?),
            Key::FastRestore(_) => self.put_fast_restore(serde_json::from_value(value)?),
        }
        Ok(())
    }
}

fn encode<T: Serialize>(value: Option<&T>) -> Option<String> {
    // JSON can represent every value of these types: no map has keys other than strings.
    value.and_then(|v| serde_json::to_string(v).ok())
}
