//! Launches instances with their root volumes.

use super::{Sim, SimError};
use crate::scenario::{InstanceSeed, ScenarioError};
use crate::state::resources::{
    Attachment, Instance, InstanceChecks, InstanceState, Phase, ROOT_DEVICE, Volume,
};
use crate::time::Millis;

/// The size of a root volume, in GiB.
const ROOT_GIB: u32 = 8;

impl Sim {
    pub(super) fn launch(&mut self, seed: &InstanceSeed, now: Millis) -> Result<(), SimError> {
        self.used_instance_ids.insert(seed.id.clone());
        self.devices.add_instance(&seed.id)?;
        let own: Vec<_> = std::iter::once((ROOT_DEVICE, ROOT_GIB))
            .chain(seed.launch_disks.iter().map(|device| (device.as_str(), 1)))
            .map(|(device, gib)| own_volume(self.ids.issue("vol"), seed, device, gib, now))
            .collect();
        let realm = &mut self.realm;
        realm.put_instance(Instance {
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
        for volume in own {
            realm.put_volume(volume);
        }
        Ok(())
    }

    pub(crate) fn add_instance(
        &mut self,
        seed: &InstanceSeed,
        now: Millis,
    ) -> Result<(), SimError> {
        if self.used_instance_ids.contains(&seed.id) {
            let what = "there is, or was, an instance of that id".to_owned();
            return Err(ScenarioError::Instance(seed.id.clone(), what).into());
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
