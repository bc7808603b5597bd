//! STS: the caller's identity, and sessions of roles.

use super::trust::Token;
use super::{Caller, Iam};
use crate::time::Millis;
use crate::wire::{ApiError, ApiResult, Params, Xml, refuse};

pub(crate) const ACTION: &str = "GetCallerIdentity";
/// The action whose token is the caller's only credential.
pub(crate) const WITH_TOKEN: &str = "AssumeRoleWithWebIdentity";

/// Answers an STS call with the members of the reply. `account` is the account to which the
/// endpoint belongs. The caller needs no permission: IAM cannot deny GetCallerIdentity, and the
/// role's trust policy decides about AssumeRoleWithWebIdentity.
pub(crate) fn answer(
    iam: &mut Iam,
    now: Millis,
    action: &str,
    params: &Params,
    account: &str,
    caller: &Caller,
) -> ApiResult<String> {
    match action {
        ACTION => identity(params, account, caller),
        WITH_TOKEN => assume(iam, now, params),
        _ => refuse!("InvalidAction", "Could not find operation {action} for version 2011-06-15"),
    }
}

fn identity(params: &Params, account: &str, caller: &Caller) -> ApiResult<String> {
    params.finish()?;
    let arn = match caller.arn.as_str() {
        "" => format!("arn:aws:iam::{account}:user/ec2-sim"),
        arn => arn.to_owned(),
    };
    let account = caller.account.as_deref().unwrap_or(account);
    let mut x = Xml::default();
    Ok(x.text("Arn", &arn).text("UserId", &caller.user_id).text("Account", account).finish())
}

/// Begins a session of a role that trusts the token. All wordings are unverified.
fn assume(iam: &mut Iam, now: Millis, params: &Params) -> ApiResult<String> {
    let role = params.required("RoleArn", "RoleArn")?;
    let name = params.required("RoleSessionName", "RoleSessionName")?;
    let token = params.required("WebIdentityToken", "WebIdentityToken")?;
    let seconds = params.positive("DurationSeconds")?.unwrap_or(3600);
    params.finish()?;
    if !(900..=43_200).contains(&seconds) {
        refuse!("ValidationError", "DurationSeconds must be from 900 to 43200");
    }
    let Some(token) = Token::parse(token) else {
        refuse!("InvalidIdentityToken", "The ID Token provided is not a valid JWT.");
    };
    let provider = token.provider();
    if token.exp.saturating_mul(1000) <= now.0 {
        refuse!("ExpiredTokenException", "Token expired: its time is over at {}", now.iso());
    }
    let principals = &iam.setting.principals;
    if !principals.iter().filter_map(|p| p.trust.as_ref()).any(|trust| trust.knows(provider)) {
        refuse!(
            "InvalidIdentityToken",
            "No OpenIDConnect provider found in your account for https://{provider}"
        );
    }
    let trusts = |trust: &super::trust::Trust| trust.allows(&token);
    let principal =
        principals.iter().position(|p| p.arn == role && p.trust.as_ref().is_some_and(trusts));
    let Some(principal) = principal else {
        let message = format!("Not authorized to perform sts:{WITH_TOKEN}");
        return Err(ApiError::new(403, "AccessDenied", message));
    };
    let shown = principals[principal].shown(name);
    let expires = now.plus(u64::from(seconds) * 1000);
    let key = iam.begin_session(role, &shown, expires);
    let mut x = Xml::default();
    x.nest("Credentials", |x| {
        x.text("AccessKeyId", &key)
            .text("SecretAccessKey", "secret-of-a-simulated-session")
            .text("SessionToken", "token-of-a-simulated-session")
            .text("Expiration", &expires.iso())
    })
    .text("SubjectFromWebIdentityToken", &token.sub)
    .nest("AssumedRoleUser", |x| {
        x.text("AssumedRoleId", &format!("{key}:{name}")).text("Arn", &shown)
    })
    .text("Provider", &format!("arn:aws:iam::oidc-provider/{provider}"))
    .text("Audience", token.aud.all().first().map_or("", String::as_str));
    Ok(x.finish())
}
