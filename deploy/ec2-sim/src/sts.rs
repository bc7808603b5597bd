//! STS: who am I, and roles. The credentials that it hands out are made up, and open nothing.

use crate::error::{ApiError, ApiResult};
use crate::random::Random;
use crate::time::Millis;
use crate::wire::query::Params;
use crate::wire::xml::Xml;

/// STS's actions here.
pub const ACTIONS: [&str; 3] = [
    "AssumeRole",
    "AssumeRoleWithWebIdentity",
    "GetCallerIdentity",
];

/// Answers an STS call with its members.
///
/// # Errors
/// `InvalidAction`, and what the action answers.
pub fn answer(
    action: &str,
    params: &Params,
    account: &str,
    access_key: Option<&str>,
    random: &mut Random,
    now: Millis,
) -> ApiResult<String> {
    let mut x = Xml::new();
    match action {
        "GetCallerIdentity" => {
            params.finish()?;
            x.text("Arn", &format!("arn:aws:iam::{account}:user/ec2-sim"))
                .text("UserId", access_key.unwrap_or("AIDAEC2SIM"))
                .text("Account", account);
        }
        "AssumeRole" => {
            for known in [
                "ExternalId",
                "Policy",
                "SerialNumber",
                "TokenCode",
                "SourceIdentity",
            ] {
                params.text(known);
            }
            assume(params, &mut x, random, now)?;
        }
        "AssumeRoleWithWebIdentity" => {
            for known in ["ProviderId", "Policy"] {
                params.text(known);
            }
            let token = params.required("WebIdentityToken", "WebIdentityToken")?;
            if token.len() < 4 {
                return Err(ApiError::client(
                    "InvalidIdentityToken",
                    "The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)",
                ));
            }
            x.text("SubjectFromWebIdentityToken", "ec2-sim")
                .text("Audience", "sts.amazonaws.com")
                .text("Provider", "https://oidc.invalid");
            assume(params, &mut x, random, now)?;
        }
        other => {
            return Err(ApiError::client(
                "InvalidAction",
                format!("Could not find operation {other} for version 2011-06-15"),
            ));
        }
    }
    Ok(x.finish())
}

fn assume(params: &Params, x: &mut Xml, random: &mut Random, now: Millis) -> ApiResult<()> {
    let role = params.required("RoleArn", "RoleArn")?;
    let session = params.required("RoleSessionName", "RoleSessionName")?;
    let seconds = params.positive("DurationSeconds")?.unwrap_or(3600);
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
    let id = format!("AROA{}", random.hex(16).to_uppercase());
    x.nest("AssumedRoleUser", |x| {
        x.text(
            "Arn",
            &format!("arn:aws:sts::{account}:assumed-role/{name}/{session}"),
        )
        .text("AssumedRoleId", &format!("{id}:{session}"));
    })
    .nest("Credentials", |x| {
        x.text(
            "AccessKeyId",
            &format!("ASIA{}", random.hex(16).to_uppercase()),
        )
        .text("SecretAccessKey", &random.hex(40))
        .text("SessionToken", &random.hex(64))
        .text(
            "Expiration",
            &now.plus(u64::from(seconds) * 1000).whole_second().iso(),
        );
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(action: &str, query: &str) -> ApiResult<String> {
        let mut r = Random::new(1, "sts");
        answer(
            action,
            &Params::parse(query.as_bytes()),
            "111122223333",
            Some("AKID"),
            &mut r,
            Millis(0),
        )
    }

    #[test]
    fn identities_and_roles_are_answered() {
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
