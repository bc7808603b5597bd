//! The identity under which AWS sees the controller.

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
