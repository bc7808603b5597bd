//! Names the driver in the user agent, where AWS support and CloudTrail searches look for it.

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::BeforeTransmitInterceptorContextMut;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;

/// Adds `exec-env/NAME`, which the SDK would add for the variable `AWS_EXECUTION_ENV`. The driver
/// does not change its own environment.
#[derive(Debug)]
pub(in crate::ec2) struct ExecutionEnvironment(String);

impl ExecutionEnvironment {
    /// Replaces each character that a header cannot hold with `-`.
    pub(in crate::ec2) fn new(name: &str) -> Self {
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c) {
                c
            } else {
                '-'
            }
        };
        Self(name.chars().map(plain).collect())
    }
}

impl Intercept for ExecutionEnvironment {
    fn name(&self) -> &'static str {
        "ExecutionEnvironment"
    }

    fn modify_before_signing(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let headers = context.request_mut().headers_mut();
        for name in ["user-agent", "x-amz-user-agent"] {
            if let Some(agent) = headers.get(name) {
                let agent = format!("{agent} exec-env/{}", self.0);
                headers.insert(name, agent);
            }
        }
        Ok(())
    }
}
