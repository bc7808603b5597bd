//! STS: the caller's identity, roles, and the decoding of refusals. The issued credentials are
//! valid only for this simulator.

use super::session::Session;
use super::{Caller, Iam, refusal};
use crate::random::Random;
use crate::time::Millis;
use crate::wire::api_error::{ApiError, ApiResult};
use crate::wire::query::Params;
use crate::wire::xml::Xml;
use std::collections::BTreeMap;

/// The STS actions that the simulator implements.
pub(crate) const ACTIONS: [&str; 4] = [
    "AssumeRole",
    "AssumeRoleWithWebIdentity",
    "DecodeAuthorizationMessage",
    "GetCallerIdentity",
];

/// One call that is being answered.
pub(crate) struct StsCall<'a> {
    /// The name of the action.
    pub action: &'a str,
    /// The parameters of the action.
    pub params: &'a Params,
    /// The account to which the endpoint belongs.
    pub account: &'a str,
    /// The caller; `None` for a call with a web identity.
    pub caller: Option<&'a Caller>,
    /// The policies, which also issue sessions.
    pub iam: &'a Iam,
    /// The source of new keys.
    pub random: &'a mut Random,
    /// The time at which the call arrived.
    pub now: Millis,
}

/// Answers an STS call with the members of the reply.
///
/// # Errors
/// `InvalidAction`, and any error of the action.
pub(crate) fn answer(mut asked: StsCall<'_>) -> ApiResult<String> {
    match asked.action {
        "GetCallerIdentity" => identity(&asked),
        "AssumeRole" => {
            for known in [
                "ExternalId",
                "Policy",
                "SerialNumber",
                "TokenCode",
                "SourceIdentity",
            ] {
                asked.params.text(known);
            }
            let mut x = Xml::new();
            assume(&mut asked, &mut x)?;
            Ok(x.finish())
        }
        "AssumeRoleWithWebIdentity" => {
            for known in ["ProviderId", "Policy"] {
                asked.params.text(known);
            }
            let token = asked
                .params
                .required("WebIdentityToken", "WebIdentityToken")?;
            if token.len() < 4 {
                return Err(ApiError::client(
                    "InvalidIdentityToken",
                    "The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)",
                ));
            }
            if !asked.iam.takes_web_identity(token) {
                return Err(ApiError::expired_web_identity());
            }
            let mut x = Xml::new();
            x.text("SubjectFromWebIdentityToken", "ec2-sim")
                .text("Audience", "sts.amazonaws.com")
                .text("Provider", "https://oidc.invalid");
            assume(&mut asked, &mut x)?;
            Ok(x.finish())
        }
        "DecodeAuthorizationMessage" => {
            let encoded = asked.params.required("EncodedMessage", "EncodedMessage")?;
            asked.params.finish()?;
            asked.permit("*")?;
            let mut x = Xml::new();
            x.text("DecodedMessage", &refusal::decode(encoded)?);
            Ok(x.finish())
        }
        other => Err(ApiError::client(
            "InvalidAction",
            format!("Could not find operation {other} for version 2011-06-15"),
        )),
    }
}

impl StsCall<'_> {
    fn permit(&self, resource: &str) -> ApiResult<()> {
        match self.caller {
            Some(c) => self
                .iam
                .permit_sts(c, &format!("sts:{}", self.action), resource),
            None => Ok(()),
        }
    }
}

/// Returns the STS error for credentials that EC2 refuses with a different code.
pub(crate) fn of_credentials(error: &ApiError) -> ApiError {
    match error.code.as_str() {
        "RequestExpired" => ApiError::new(
            403,
            "ExpiredToken",
            "The security token included in the request is expired",
        ),
        _ => ApiError::new(
            403,
            "InvalidClientTokenId",
            "The security token included in the request is invalid.",
        ),
    }
}

/// Answers GetCallerIdentity, which needs no permission: IAM cannot deny the action.
fn identity(asked: &StsCall<'_>) -> ApiResult<String> {
    asked.params.finish()?;
    let mut x = Xml::new();
    match asked.caller.filter(|c| !c.arn.is_empty()) {
        Some(c) => x.text("Arn", &c.arn),
        None => x.text(
            "Arn",
            &format!("arn:aws:iam::{}:user/ec2-sim", asked.account),
        ),
    };
    let user_id = asked.caller.map_or("AIDAEC2SIM", |c| c.user_id.as_str());
    let account = asked.caller.and_then(|c| c.account.as_deref());
    x.text("UserId", user_id)
        .text("Account", account.unwrap_or(asked.account));
    Ok(x.finish())
}

fn assume(asked: &mut StsCall<'_>, x: &mut Xml) -> ApiResult<()> {
    let params = asked.params;
    let role = params.required("RoleArn", "RoleArn")?;
    let session = params.required("RoleSessionName", "RoleSessionName")?;
    let seconds = params.positive("DurationSeconds")?.unwrap_or(3600);
    let tags: BTreeMap<String, String> = params
        .structures("Tags.member")
        .iter()
        .filter_map(|t| {
            let key = params.text(&format!("{t}Key"))?;
            let value = params.raw(&format!("{t}Value")).unwrap_or("");
            Some((key.to_owned(), value.to_owned()))
        })
        .collect();
    params.finish()?;
    let invalid = |text: String| Err(ApiError::client("ValidationError", text));
    let Some((account, name)) = role
        .strip_prefix("arn:aws:iam::")
        .and_then(|r| r.split_once(":role/"))
    else {
        return invalid(format!("{role} is invalid"));
    };
    if !(900..=43_200).contains(&seconds) {
        return invalid(format!(
            "1 validation error detected: Value '{seconds}' at 'durationSeconds' failed to satisfy constraint: Member must have value between 900 and 43200"
        ));
    }
    asked.permit(role)?;
    if !asked.iam.has_role(role) {
        let who = asked.caller.map_or("", |c| c.arn.as_str());
        return Err(refusal::access_denied(
            who,
            &format!("sts:{}", asked.action),
            role,
        ));
    }
    let issued = Session {
        role: role.to_owned(),
        name: session.to_owned(),
        role_id: format!("AROA{}", asked.random.hex(16).to_uppercase()),
        access_key: format!("ASIA{}", asked.random.hex(16).to_uppercase()),
        tags,
        issued: asked.now,
        until: asked.now.plus(u64::from(seconds) * 1000),
    };
    x.nest("AssumedRoleUser", |x| {
        x.text("Arn", &super::principal::assumed(account, name, session))
            .text("AssumedRoleId", &format!("{}:{session}", issued.role_id));
    })
    .nest("Credentials", |x| {
        x.text("AccessKeyId", &issued.access_key)
            .text("SecretAccessKey", &asked.random.hex(40))
            .text("SessionToken", &asked.iam.seal(&issued))
            .text("Expiration", &issued.until.whole_second().iso());
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(action: &str, query: &str) -> ApiResult<String> {
        answer(StsCall {
            action,
            params: &Params::parse(query.as_bytes()),
            account: "111122223333",
            caller: None,
            iam: &Iam::new(crate::iam::Setting::default(), 1),
            random: &mut Random::new(1, "sts"),
            now: Millis(0),
        })
    }

    #[test]
    fn identity_and_assume_role_calls_succeed() {
        assert!(
            call("GetCallerIdentity", "")
                .expect("identity")
                .contains("<Account>111122223333</Account>")
        );
        let role = "RoleArn=arn:aws:iam::111122223333:role/r&RoleSessionName=s&DurationSeconds=900";
        let xml = call("AssumeRole", role).expect("role");
        assert!(
            xml.contains("<Expiration>1970-01-01T00:15:00.000Z</Expiration>"),
            "{xml}"
        );
        assert!(
            call(
                "AssumeRoleWithWebIdentity",
                &format!("{role}&WebIdentityToken=abcd")
            )
            .is_ok()
        );
    }

    #[test]
    fn bad_requests_are_refused() {
        for (action, query, code) in [
            (
                "AssumeRole",
                "RoleArn=x&RoleSessionName=s",
                "ValidationError",
            ),
            ("AssumeRole", "RoleSessionName=s", "MissingParameter"),
            (
                "AssumeRole",
                "RoleArn=arn:aws:iam::1:role/r&RoleSessionName=s&DurationSeconds=5",
                "ValidationError",
            ),
            (
                "AssumeRoleWithWebIdentity",
                "WebIdentityToken=x",
                "InvalidIdentityToken",
            ),
            ("GetSessionToken", "", "InvalidAction"),
            ("GetCallerIdentity", "Foo=1", "UnknownParameter"),
        ] {
            assert_eq!(call(action, query).expect_err(query).code, code);
        }
    }
}
