//! Asks STS under which identity AWS sees the controller.

use std::error::Error as _;

use aws_smithy_types::error::metadata::ProvideErrorMetadata as _;

use super::Ec2;
use crate::sdk::error_conversion::innermost;
use crate::sdk::interceptors::ExecutionEnvironment;

impl Ec2 {
    /// Asks STS once; later calls get the same answer. A failure is not remembered: the next caller
    /// asks STS again. The first answer is logged with account and role, never with a key.
    ///
    /// # Errors
    /// The reason, as text.
    pub async fn caller(&self) -> Result<CallerIdentity, String> {
        self.core.caller.get_or_try_init(|| self.ask_sts()).await.cloned()
    }

    async fn ask_sts(&self) -> Result<CallerIdentity, String> {
        let agent = ExecutionEnvironment::new(&self.core.settings.execution_environment);
        let mut config = aws_sdk_sts::config::Builder::from(self.sdk_config()).interceptor(agent);
        if let Some(endpoint) = &self.core.settings.sts_endpoint {
            config = config.endpoint_url(endpoint);
        }
        let client = aws_sdk_sts::Client::from_conf(config.build());
        let answer = client.get_caller_identity().send().await.map_err(|error| {
            match (error.code(), error.message()) {
                (Some(code), message) => format!("{code}: {}", message.unwrap_or_default()),
                (None, _) => error.source().map_or_else(|| error.to_string(), innermost),
            }
        })?;
        let arn = answer.arn().unwrap_or_default().to_owned();
        let caller = CallerIdentity {
            account: answer.account().unwrap_or_default().to_owned(),
            partition: partition(&arn).to_owned(),
            arn,
        };
        tracing::info!(
            account = caller.account,
            role = caller.arn,
            region = self.region(),
            "AWS identity"
        );
        Ok(caller)
    }
}

fn partition(arn: &str) -> &str {
    arn.strip_prefix("arn:")
        .and_then(|rest| rest.split(':').next())
        .filter(|partition| !partition.is_empty())
        .unwrap_or("aws")
}

/// The answer of sts:GetCallerIdentity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerIdentity {
    /// The account's number.
    pub account: String,
    /// The role or user.
    pub arn: String,
    /// `aws`, `aws-us-gov` or `aws-cn`: the partition in ARNs of the account.
    pub partition: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arn_partition_is_parsed_and_defaults_to_aws() {
        for (arn, want) in [
            ("arn:aws:sts::111122223333:assumed-role/r/s", "aws"),
            ("arn:aws-us-gov:iam::111122223333:user/u", "aws-us-gov"),
            ("", "aws"),
            ("arn::x", "aws"),
        ] {
            assert_eq!(partition(arn), want, "{arn}");
        }
    }
}
