//! Who AWS takes the controller for.

use std::error::Error as _;

use super::agent::ExecutionEnvironment;
use super::client::Ec2;

/// The answer of sts:GetCallerIdentity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The account's number.
    pub account: String,
    /// The role or user.
    pub arn: String,
}

impl Ec2 {
    /// Asks STS, once.
    ///
    /// # Errors
    /// Why not, in words.
    pub async fn caller(&self) -> Result<Caller, String> {
        let agent = ExecutionEnvironment::new(&self.core.settings.execution_environment);
        let mut config = aws_sdk_sts::config::Builder::from(self.sdk()).interceptor(agent);
        if let Some(endpoint) = &self.core.settings.sts_endpoint {
            config = config.endpoint_url(endpoint);
        }
        let client = aws_sdk_sts::Client::from_conf(config.build());
        let answer = client.get_caller_identity().send().await.map_err(|error| {
            let mut text = error.to_string();
            let mut cause = error.source();
            while let Some(error) = cause {
                text = error.to_string();
                cause = error.source();
            }
            text
        })?;
        Ok(Caller {
            account: answer.account().unwrap_or_default().to_owned(),
            arn: answer.arn().unwrap_or_default().to_owned(),
        })
    }
}
