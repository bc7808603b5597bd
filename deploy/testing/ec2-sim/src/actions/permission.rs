//! The questions to IAM on behalf of a call: each action on each affected resource, with the
//! condition keys that EC2 supplies.

use super::Call;
use crate::iam::Iam;
use crate::iam::condition::Context;
use crate::state::resources::{NO_TAGS, Tags};
use crate::wire::ApiResult;

pub(super) struct Resource {
    arn: String,
    keys: Context,
}

impl Call<'_> {
    /// Checks that the caller may perform this action on all resources. Each action calls this
    /// function at the point where EC2 itself checks permissions.
    pub(super) fn permit(&self, resources: impl FnOnce(&Self) -> Vec<Resource>) -> ApiResult<()> {
        self.check_permissions(self.action, resources)
    }

    /// Checks that the caller may perform this action on a resource that exists, or whose id the
    /// request names.
    pub(super) fn permit_on(&self, id: &str) -> ApiResult<()> {
        self.permit(|c| vec![c.existing(id)])
    }

    /// Checks permission for no particular resource, then answers a dry run. Every Describe call
    /// begins with these two checks.
    pub(super) fn begin_read(&self) -> ApiResult<()> {
        self.permit(|_| vec![Resource { arn: "*".to_owned(), keys: Context::default() }])?;
        self.dry_run()
    }

    /// Checks that the caller may tag what this call creates. EC2 checks a separate CreateTags
    /// permission, with the condition key `ec2:CreateAction`, and refuses the whole call.
    pub(super) fn permit_tagging(&self, kind: &str, tags: &Tags) -> ApiResult<()> {
        if tags.is_empty() {
            return Ok(());
        }
        self.check_permissions("CreateTags", |c| {
            let mut resource = c.new_resource(kind, tags);
            resource.keys.set("ec2:CreateAction", c.action);
            vec![resource]
        })
    }

    fn check_permissions(
        &self,
        action: &str,
        resources: impl FnOnce(&Self) -> Vec<Resource>,
    ) -> ApiResult<()> {
        if Iam::unrestricted(self.caller) {
            return Ok(());
        }
        let action = format!("ec2:{action}");
        for Resource { arn, keys } in resources(self) {
            self.iam.permit(self.caller, &action, &arn, &keys)?;
        }
        Ok(())
    }

    /// Returns a key as EC2 shows it: by its ARN, also where the request has an id or an alias.
    pub(super) fn key_arn(&self, key: &str) -> String {
        let (region, account) = (&self.realm.region, &self.realm.account);
        let prefix = format!("arn:{}:kms:{region}:{account}:", self.partition());
        match key.split_once("alias/") {
            // The same alias names the same key.
            Some((_, alias)) => format!("{prefix}key/of-alias-{alias}"),
            None if key.starts_with("arn:") => key.to_owned(),
            None => format!("{prefix}key/{key}"),
        }
    }

    /// Returns whether the caller may have a customer-managed key, given by its ARN, used. The
    /// reply shows no refusal. Which KMS actions EC2 needs in which case is unverified; the code
    /// checks those that the documentation lists.
    pub(super) fn may_use_key(&self, arn: Option<&str>, from_encrypted: bool) -> bool {
        let Some(arn) = arn else {
            // The account's default key needs no permission.
            return true;
        };
        let mut keys = Context::default();
        let domain =
            if self.partition() == "aws-cn" { "amazonaws.com.cn" } else { "amazonaws.com" };
        keys.set("kms:ViaService", format!("ec2.{}.{domain}", self.realm.region));
        let may = |action: &str, keys: &Context| self.iam.allows(self.caller, action, arn, keys);
        let data_key = may("kms:GenerateDataKeyWithoutPlaintext", &keys);
        let decrypt = !from_encrypted || may("kms:Decrypt", &keys);
        keys.set("kms:GrantIsForAWSResource", "true");
        let grant = may("kms:CreateGrant", &keys);
        data_key && decrypt && grant
    }

    pub(super) fn existing(&self, id: &str) -> Resource {
        let realm = &*self.realm;
        let (kind, tags) = if id.starts_with("snap-") {
            ("snapshot", realm.snapshots().get(id).map(|s| &s.tags))
        } else if id.starts_with("i-") {
            ("instance", realm.instances().get(id).map(|i| &i.tags))
        } else {
            ("volume", realm.volumes().get(id).map(|v| &v.tags))
        };
        let mut keys = Context::default();
        let tags = tags.unwrap_or(&NO_TAGS);
        keys.tags("aws:ResourceTag", tags).tags("ec2:ResourceTag", tags);
        Resource { arn: self.arn(kind, id), keys }
    }

    /// Returns the resource for a volume or snapshot that the call will create with the
    /// requested tags.
    pub(super) fn new_resource(&self, kind: &str, tags: &Tags) -> Resource {
        let mut keys = Context::default();
        requested(&mut keys, tags);
        Resource { arn: self.arn(kind, "*"), keys }
    }

    fn arn(&self, kind: &str, id: &str) -> String {
        // Snapshots have no account in their ARN.
        let account = if kind == "snapshot" { "" } else { &self.realm.account };
        format!("arn:{}:ec2:{}:{account}:{kind}/{id}", self.partition(), self.realm.region)
    }

    fn partition(&self) -> &'static str {
        match self.realm.region.split('-').next() {
            Some("cn") => "aws-cn",
            _ if self.realm.region.starts_with("us-gov-") => "aws-us-gov",
            _ => "aws",
        }
    }
}

impl Resource {
    pub(super) fn with(mut self, more: impl FnOnce(&mut Context)) -> Self {
        more(&mut self.keys);
        self
    }
}

pub(super) fn requested(c: &mut Context, tags: &Tags) {
    c.tags("aws:RequestTag", tags).set_all("aws:TagKeys", tags.keys().cloned().collect());
}
