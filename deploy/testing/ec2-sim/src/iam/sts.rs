//! STS: the caller's identity.

use super::Caller;
use crate::wire::{ApiResult, Params, Xml, refuse};

pub(crate) const ACTION: &str = "GetCallerIdentity";

/// Answers an STS call with the members of the reply. `account` is the account to which the
/// endpoint belongs. The call needs no permission: IAM cannot deny the action.
pub(crate) fn answer(
    action: &str,
    params: &Params,
    account: &str,
    caller: &Caller,
) -> ApiResult<String> {
    if action != ACTION {
        refuse!("InvalidAction", "Could not find operation {action} for version 2011-06-15");
    }
    params.finish()?;
    let mut x = Xml::default();
    match caller.arn.as_str() {
        "" => x.text("Arn", &format!("arn:aws:iam::{account}:user/ec2-sim")),
        arn => x.text("Arn", arn),
    };
    x.text("UserId", &caller.user_id).text("Account", caller.account.as_deref().unwrap_or(account));
    Ok(x.finish())
}
