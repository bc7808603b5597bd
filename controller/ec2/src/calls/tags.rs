//! CreateTags and DeleteTags.

use aws_sdk_ec2::types::Tag;

use crate::call::Call;
use crate::calls::Action;
use crate::client::Ec2;
use crate::error::Ec2Error;
use crate::model::Tags;
use crate::model::sdk_field::sdk_tags;
use crate::sdk::call::{accept_dry_run, send};

impl Ec2 {
    /// Checks by dry runs, which change nothing, whether tags of a volume or snapshot may be set
    /// and deleted.
    ///
    /// # Errors
    /// [`Unauthorized`](crate::Ec2ErrorKind::Unauthorized) when they may not, and the errors of
    /// every call.
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
        self.core
            .send_change(call, action, || async {
                let request = self.core.client.create_tags().set_dry_run(dry_run.then_some(true));
                send!(action, request.resources(resource).set_tags(Some(sdk_tags(tags))));
                Ok(())
            })
            .await
    }

    /// Removes tags of a volume or snapshot, whatever their values; a missing tag is not an error.
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
        self.core
            .send_change(call, action, || async {
                let tags = keys.iter().map(|key| Tag::builder().key(key).build()).collect();
                let request = self.core.client.delete_tags().set_dry_run(dry_run.then_some(true));
                send!(action, request.resources(resource).set_tags(Some(tags)));
                Ok(())
            })
            .await
    }
}
