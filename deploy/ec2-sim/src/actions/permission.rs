//! The questions to IAM on behalf of a call: each action on each affected resource, with the
//! condition keys that EC2 supplies.

use super::Call;
use crate::iam::Iam;
use crate::iam::context::Context;
use crate::state::resources::tags::{NO_TAGS, Tags};
use crate::wire::api_error::ApiResult;

/// One resource of a call, with the resource's condition keys.
pub(super) struct Subject {
    arn: String,
    about: Context,
}

impl Call<'_> {
    /// Checks that the caller may perform this action on all subjects. Each action calls this
    /// function at the point where EC2 itself checks permissions.
    ///
    /// # Errors
    /// `UnauthorizedOperation`.
    pub(super) fn permit(&self, subjects: impl FnOnce(&Self) -> Vec<Subject>) -> ApiResult<()> {
        self.ask(self.action, subjects)
    }

    /// Checks that the caller may perform this action on a resource that exists, or whose id the
    /// request names.
    ///
    /// # Errors
    /// `UnauthorizedOperation`.
    pub(super) fn permit_on(&self, id: &str) -> ApiResult<()> {
        self.permit(|c| vec![c.existing(id)])
    }

    /// Checks that the caller may perform this action, which concerns no particular resource.
    ///
    /// # Errors
    /// `UnauthorizedOperation`.
    fn permit_read(&self) -> ApiResult<()> {
        self.permit(|_| vec![Subject { arn: "*".to_owned(), about: Context::default() }])
    }

    /// Checks permission, then answers a dry run. Every Describe call begins with these two checks.
    ///
    /// # Errors
    /// `UnauthorizedOperation`, `DryRunOperation`.
    pub(super) fn begin_read(&self) -> ApiResult<()> {
        self.permit_read()?;
        self.dry_run()
    }

    /// Checks that the caller may tag what this call creates. EC2 checks a separate CreateTags
    /// permission, with the condition key `ec2:CreateAction`.
    ///
    /// # Errors
    /// `UnauthorizedOperation`, for the whole call.
    pub(super) fn permit_tagging(&self, kind: &str, tags: &Tags) -> ApiResult<()> {
        if tags.is_empty() {
            return Ok(());
        }
        self.ask("CreateTags", |c| {
            let mut s = c.made(kind, tags);
            s.about.set("ec2:CreateAction", c.action);
            vec![s]
        })
    }

    fn ask(&self, action: &str, subjects: impl FnOnce(&Self) -> Vec<Subject>) -> ApiResult<()> {
        if Iam::unrestricted(self.caller) {
            return Ok(());
        }
        let action = format!("ec2:{action}");
        for s in subjects(self) {
            let mut about = self.circumstances();
            about.extend(&s.about);
            self.iam.permit(self.caller, &action, &s.arn, &about)?;
        }
        Ok(())
    }

    /// Returns whether the caller may have a customer-managed key used. The reply shows no refusal.
    /// Which KMS actions EC2 needs in which case is unverified; the code checks those that the
    /// documentation lists.
    pub(super) fn may_use_key(&self, key: Option<&str>, from_encrypted: bool) -> bool {
        let Some(key) = key else {
            // The account's default key needs no permission.
            return true;
        };
        let arn = if key.starts_with("arn:") {
            key.to_owned()
        } else {
            let (region, account) = (&self.realm.region, &self.realm.account);
            let kind = if key.starts_with("alias/") { "" } else { "key/" };
            format!("arn:aws:kms:{region}:{account}:{kind}{key}")
        };
        let mut about = self.circumstances();
        about.set("kms:ViaService", format!("ec2.{}.amazonaws.com", self.realm.region));
        let may =
            |action: &str, about: &Context| self.iam.may_use_key(self.caller, action, &arn, about);
        let data_key = may("kms:GenerateDataKeyWithoutPlaintext", &about);
        let decrypt = !from_encrypted || may("kms:Decrypt", &about);
        about.set("kms:GrantIsForAWSResource", "true");
        let grant = may("kms:CreateGrant", &about);
        data_key && decrypt && grant
    }

    /// Returns the condition keys of every request.
    fn circumstances(&self) -> Context {
        let mut c = Context::default();
        c.set("aws:RequestedRegion", self.realm.region.as_str())
            .set("ec2:Region", self.realm.region.as_str());
        c
    }

    /// Returns the subject for a volume, snapshot or instance, given its id.
    pub(super) fn existing(&self, id: &str) -> Subject {
        let realm = &*self.realm;
        let mut c = Context::default();
        let (kind, tags) = if id.starts_with("snap-") {
            let s = realm.snapshots().get(id);
            if let Some(s) = s {
                c.set("ec2:Owner", realm.account.as_str())
                    .set("ec2:ParentVolume", self.arn("volume", &s.volume))
                    .set("ec2:SnapshotID", id)
                    .set("ec2:VolumeSize", s.size.to_string())
                    .set("ec2:Encrypted", s.encrypted.to_string());
            }
            ("snapshot", s.map(|s| &s.tags))
        } else if id.starts_with("i-") {
            let i = realm.instances().get(id);
            if let Some(i) = i {
                c.set("ec2:InstanceID", id)
                    .set("ec2:InstanceType", i.instance_type.as_str())
                    .set("ec2:AvailabilityZone", i.zone.as_str());
            }
            ("instance", i.map(|i| &i.tags))
        } else {
            let v = realm.volumes().get(id);
            if let Some(v) = v {
                c.set("ec2:VolumeID", id)
                    .set("ec2:VolumeType", v.shape.volume_type.as_str())
                    .set("ec2:VolumeSize", v.shape.size.to_string())
                    .option("ec2:VolumeIops", v.shape.iops)
                    .option("ec2:VolumeThroughput", v.shape.throughput)
                    .set("ec2:Encrypted", v.encrypted.to_string())
                    .set("ec2:AvailabilityZone", v.zone.as_str());
            }
            ("volume", v.map(|v| &v.tags))
        };
        let tags = tags.unwrap_or(&NO_TAGS);
        c.tags("aws:ResourceTag", tags).tags("ec2:ResourceTag", tags);
        Subject { arn: self.arn(kind, id), about: c }
    }

    /// Returns the subject for a volume or snapshot that the call is about to create with the
    /// requested tags.
    pub(super) fn made(&self, kind: &str, tags: &Tags) -> Subject {
        let mut about = Context::default();
        requested(&mut about, tags.iter());
        Subject { arn: self.arn(kind, "*"), about }
    }

    pub(super) fn arn(&self, kind: &str, id: &str) -> String {
        // Snapshots have no account in their ARN.
        let account = if kind == "snapshot" { "" } else { &self.realm.account };
        format!("arn:aws:ec2:{}:{account}:{kind}/{id}", self.realm.region)
    }
}

impl Subject {
    pub(super) fn with(mut self, more: impl FnOnce(&mut Context)) -> Self {
        more(&mut self.about);
        self
    }
}

/// Adds the condition keys of requested tags.
pub(super) fn requested<'a>(
    c: &mut Context,
    tags: impl Iterator<Item = (&'a String, &'a String)> + Clone,
) {
    c.tags("aws:RequestTag", tags.clone());
    c.set_all("aws:TagKeys", tags.map(|(k, _)| k.clone()).collect());
}
