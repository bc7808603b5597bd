//! Changes of volumes and tags. The SDK sends each call once; [`retry`](crate::pacing::retry)
//! decides when it is sent again.

use std::time::Duration;

use aws_sdk_ec2::types as sdk;
use ebs_csi_wire::{DeviceName, InstanceId, VolumeId};
use tokio::time::Instant;

use super::Ec2;
use crate::action::Action;
use crate::call::Call;
use crate::error::Ec2Error;
use crate::error::code::Ec2ErrorKind;
use crate::model::call_input::{CopyVolume, CreateVolume, Force, ModifyVolume, Tags};
use crate::model::modification::Modification;
use crate::model::sdk_field::Incomplete;
use crate::model::volume::{Attachment, Volume};
use crate::sdk::call::{Tries, send};

/// The highest age of EC2's facts on which a detach is sent.
const MAX_FACTS_AGE: Duration = Duration::from_secs(2);

mod iops;
mod power;
mod snapshot;

/// Takes the error with which EC2 answers a dry run that would have succeeded for a success.
pub(super) fn accept_dry_run(result: Result<(), Ec2Error>) -> Result<(), Ec2Error> {
    match result {
        Err(error) if error.kind == Ec2ErrorKind::DryRun => Ok(()),
        result => result,
    }
}

fn to_i32(value: u32) -> i32 {
    // EC2's numbers end at i32::MAX. EC2 refuses a value that high with a clear message.
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn tag_specifications(kind: sdk::ResourceType, tags: &Tags) -> Option<Vec<sdk::TagSpecification>> {
    let specification = sdk::TagSpecification::builder().resource_type(kind);
    (!tags.is_empty()).then(|| vec![specification.set_tags(Some(sdk_tags(tags))).build()])
}

fn sdk_tags(tags: &Tags) -> Vec<sdk::Tag> {
    tags.iter().map(|(key, value)| sdk::Tag::builder().key(key).value(value).build()).collect()
}

fn unreadable(action: Action) -> impl Fn(Incomplete) -> Ec2Error {
    move |incomplete| Ec2Error::unreadable(action, incomplete.to_string())
}

impl Ec2 {
    async fn send_change<T, F>(
        &self,
        call: &Call,
        action: Action,
        send: impl Fn() -> F,
    ) -> Result<T, Ec2Error>
    where
        F: Future<Output = Result<T, Ec2Error>>,
    {
        let send_if_wanted = || async {
            match call.is_wanted() {
                true => send().await,
                false => Err(Ec2Error::unwanted(action)),
            }
        };
        let (deadline, tries) = (self.deadline_of(call), Tries::Several);
        self.core.call(action, call.place(action), deadline, tries, send_if_wanted).await
    }

    /// Creates a volume. Returns as soon as EC2 accepts; the volume is then `creating`.
    ///
    /// # Errors
    /// Any [`Ec2Error`]. A failed creation may also show later, as a volume in state `error` or
    /// none at all.
    pub async fn create_volume(
        &self,
        call: &Call,
        request: &CreateVolume,
    ) -> Result<Volume, Ec2Error> {
        let action = Action::CreateVolume;
        let created = self
            .send_change(call, action, || async {
                let output = send!(action, self.create_volume_request(request));
                Volume::read_created(&output).map_err(unreadable(action))
            })
            .await?;
        self.pollers.learn_zone(&created);
        Ok(created)
    }

    fn create_volume_request(
        &self,
        request: &CreateVolume,
    ) -> aws_sdk_ec2::operation::create_volume::builders::CreateVolumeFluentBuilder {
        self.core
            .client
            .create_volume()
            .client_token(&request.client_token)
            .size(to_i32(request.size.0))
            .volume_type(sdk::VolumeType::from(request.kind.as_str()))
            .set_availability_zone(request.zone.clone())
            .set_availability_zone_id(request.zone_id.clone())
            .set_outpost_arn(request.outpost_arn.clone())
            .set_encrypted(request.encrypted)
            .set_kms_key_id(request.kms_key_id.clone())
            .set_iops(request.iops.map(to_i32))
            .set_throughput(request.throughput.map(to_i32))
            .set_snapshot_id(request.snapshot.as_ref().map(ToString::to_string))
            .set_volume_initialization_rate(request.initialization_rate.map(to_i32))
            .multi_attach_enabled(request.multi_attach)
            .set_tag_specifications(tag_specifications(sdk::ResourceType::Volume, &request.tags))
    }

    /// Copies a volume within its zone.
    ///
    /// # Errors
    /// Those of [`Ec2::create_volume`].
    pub async fn copy_volumes(
        &self,
        call: &Call,
        request: &CopyVolume,
    ) -> Result<Volume, Ec2Error> {
        let action = Action::CopyVolumes;
        let created = self.send_change(call, action, || async {
            let call = self
                .core
                .client
                .copy_volumes()
                .client_token(&request.client_token)
                .source_volume_id(request.source.as_str())
                .size(to_i32(request.size.0))
                .volume_type(sdk::VolumeType::from(request.kind.as_str()))
                .set_encrypted(request.encrypted)
                .set_kms_key_id(request.kms_key_id.clone())
                .set_iops(request.iops.map(to_i32))
                .set_throughput(request.throughput.map(to_i32))
                .multi_attach_enabled(request.multi_attach);
            let tags = tag_specifications(sdk::ResourceType::Volume, &request.tags);
            let output = send!(action, call.set_tag_specifications(tags));
            match output.volumes() {
                [copy] => Volume::read(copy).map_err(unreadable(action)),
                volumes => Err(Ec2Error::unreadable(
                    action,
                    format!("the answer holds {} volumes where one was asked for", volumes.len()),
                )),
            }
        });
        let created = created.await?;
        self.pollers.learn_zone(&created);
        Ok(created)
    }

    /// Deletes a volume. Returns as soon as EC2 accepts.
    ///
    /// # Errors
    /// [`VolumeNotFound`](Ec2ErrorKind::VolumeNotFound) when the volume does not exist, or
    /// not any more; [`VolumeInUse`](Ec2ErrorKind::VolumeInUse) while it is attached; and
    /// the errors of every call.
    pub async fn delete_volume(&self, call: &Call, id: &VolumeId) -> Result<(), Ec2Error> {
        let action = Action::DeleteVolume;
        self.send_change(call, action, || async {
            send!(action, self.core.client.delete_volume().volume_id(id.as_str()));
            Ok(())
        })
        .await
    }

    /// Attaches a volume. Returns as soon as EC2 accepts; the attachment is then `attaching`.
    ///
    /// # Errors
    /// Any [`Ec2Error`]; after one that may have happened, look at the volume.
    pub async fn attach_volume(
        &self,
        call: &Call,
        volume: &VolumeId,
        instance: &InstanceId,
        device: &DeviceName,
        card: Option<u32>,
    ) -> Result<Attachment, Ec2Error> {
        let action = Action::AttachVolume;
        self.send_change(call, action, || async {
            let call = self.core.client.attach_volume().volume_id(volume.as_str());
            let call = call.instance_id(instance.as_str()).device(device.as_str());
            let output = send!(action, call.set_ebs_card_index(card.map(to_i32)));
            Attachment::read_attached(&output).map_err(unreadable(action))
        })
        .await
    }

    /// Detaches a volume from one instance, on facts of which the oldest was read at `looked_at`.
    /// Returns as soon as EC2 accepts; the attachment is then `detaching`.
    ///
    /// # Errors
    /// [`Stale`](Ec2ErrorKind::Stale) when the turn, or a retry, comes so late that an instance may
    /// have been stopped and started since: decide anew. Any other [`Ec2Error`]; after one that may
    /// have happened, look at the volume.
    pub async fn detach_volume(
        &self,
        call: &Call,
        volume: &VolumeId,
        instance: &InstanceId,
        force: Force,
        looked_at: Instant,
    ) -> Result<Attachment, Ec2Error> {
        let action = Action::DetachVolume;
        self.send_change(call, action, || async {
            if looked_at.elapsed() > MAX_FACTS_AGE {
                return Err(Ec2Error::stale(action));
            }
            let call = self.core.client.detach_volume().volume_id(volume.as_str());
            let call = call.instance_id(instance.as_str());
            let output = send!(action, call.set_force((force == Force::Yes).then_some(true)));
            Attachment::read_detached(&output).map_err(unreadable(action))
        })
        .await
    }

    /// Changes size, type or performance. EC2 counts each accepted call against the volume's daily
    /// limit, including a call that changes nothing.
    ///
    /// # Errors
    /// Any [`Ec2Error`]; after one that may have happened, look at the modification.
    pub async fn modify_volume(
        &self,
        call: &Call,
        request: &ModifyVolume,
    ) -> Result<Modification, Ec2Error> {
        let action = Action::ModifyVolume;
        self.send_change(call, action, || async {
            let output = send!(
                action,
                self.core
                    .client
                    .modify_volume()
                    .volume_id(request.volume.as_str())
                    .set_size(request.size.map(|size| to_i32(size.0)))
                    .set_volume_type(request.kind.as_deref().map(sdk::VolumeType::from))
                    .set_iops(request.iops.map(to_i32))
                    .set_throughput(request.throughput.map(to_i32))
            );
            let modification = output.volume_modification().ok_or_else(|| {
                Ec2Error::unreadable(action, "the answer has no volumeModification")
            })?;
            Modification::read(modification).map_err(unreadable(action))
        })
        .await
    }

    /// Checks by dry runs, which change nothing, whether tags of a volume or snapshot may be set
    /// and deleted.
    ///
    /// # Errors
    /// [`Unauthorized`](Ec2ErrorKind::Unauthorized) when they may not, and the errors of every
    /// call.
    pub async fn may_change_tags(
        &self,
        call: &Call,
        resource: &str,
        set: &Tags,
        delete: &[String],
    ) -> Result<(), Ec2Error> {
        if !delete.is_empty() {
            accept_dry_run(self.send_delete_tags(call, resource, delete, true).await)?;
        }
        if !set.is_empty() {
            accept_dry_run(self.send_create_tags(call, resource, set, true).await)?;
        }
        Ok(())
    }

    /// Sets tags of a volume or snapshot; other tags stay.
    ///
    /// # Errors
    /// Those of every call.
    pub async fn create_tags(
        &self,
        call: &Call,
        resource: &str,
        tags: &Tags,
    ) -> Result<(), Ec2Error> {
        match tags.is_empty() {
            true => Ok(()),
            false => self.send_create_tags(call, resource, tags, false).await,
        }
    }

    async fn send_create_tags(
        &self,
        call: &Call,
        resource: &str,
        tags: &Tags,
        dry_run: bool,
    ) -> Result<(), Ec2Error> {
        let action = Action::CreateTags;
        self.send_change(call, action, || async {
            let call = self.core.client.create_tags().set_dry_run(dry_run.then_some(true));
            send!(action, call.resources(resource).set_tags(Some(sdk_tags(tags))));
            Ok(())
        })
        .await
    }

    /// Removes tags of a volume or snapshot, whatever their values; a missing tag is not an error.
    ///
    /// # Errors
    /// Those of every call.
    pub async fn delete_tags(
        &self,
        call: &Call,
        resource: &str,
        keys: &[String],
    ) -> Result<(), Ec2Error> {
        match keys.is_empty() {
            true => Ok(()),
            false => self.send_delete_tags(call, resource, keys, false).await,
        }
    }

    async fn send_delete_tags(
        &self,
        call: &Call,
        resource: &str,
        keys: &[String],
        dry_run: bool,
    ) -> Result<(), Ec2Error> {
        let action = Action::DeleteTags;
        self.send_change(call, action, || async {
            let tags = keys.iter().map(|key| sdk::Tag::builder().key(key).build()).collect();
            let call = self.core.client.delete_tags().set_dry_run(dry_run.then_some(true));
            send!(action, call.resources(resource).set_tags(Some(tags)));
            Ok(())
        })
        .await
    }
}
