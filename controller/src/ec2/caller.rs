//! Who AWS takes the controller for.

/// The answer of sts:GetCallerIdentity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The account's number.
    pub account: String,
    /// The role or user.
    pub arn: String,
    /// `aws`, `aws-us-gov`, `aws-cn`: what ARNs of the account begin with.
    pub partition: String,
}
