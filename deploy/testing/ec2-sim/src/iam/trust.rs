//! Trust policies: which token of an OIDC provider may assume a role.

use super::condition::{Context, Operator, matches_action};
use super::policy::{Conditions, Effect, OneOrMany, hold};
use serde::{Deserialize, Serialize};

const ACTION: &str = "sts:AssumeRoleWithWebIdentity";

/// A trust policy of a role.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
pub(crate) struct Trust {
    version: String,
    statement: OneOrMany<Statement>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Statement {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sid: Option<String>,
    effect: Effect,
    principal: Provider,
    action: OneOrMany<String>,
    #[serde(default, skip_serializing_if = "Conditions::is_empty")]
    condition: Conditions,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Provider {
    /// ARNs such as `arn:aws:iam::111122223333:oidc-provider/oidc.example.com/id/0`.
    federated: OneOrMany<String>,
}

impl Trust {
    /// Checks that the simulator can evaluate the document.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut operators = self.statement.all().iter().flat_map(|s| s.condition.keys());
        match operators.find(|operator| Operator::parse(operator).is_none()) {
            None if self.version == "2012-10-17" => Ok(()),
            None => Err(format!("Version {:?} must be \"2012-10-17\"", self.version)),
            Some(operator) => Err(format!("the condition operator {operator:?} is not known")),
        }
    }

    /// Returns whether any statement is about this provider, which the account then knows.
    pub(super) fn knows(&self, provider: &str) -> bool {
        self.statement.all().iter().any(|s| s.is_about(provider))
    }

    pub(super) fn allows(&self, token: &Token) -> bool {
        let provider = token.provider();
        let mut context = Context::default();
        context
            .set_all(&format!("{provider}:aud"), token.aud.all().to_vec())
            .set(&format!("{provider}:sub"), &token.sub);
        self.statement.all().iter().any(|s| {
            s.is_about(provider)
                && s.action.all().iter().any(|pattern| matches_action(pattern, ACTION))
                && hold(&s.condition, &context)
        })
    }
}

impl Statement {
    fn is_about(&self, provider: &str) -> bool {
        let mut arns = self.principal.federated.all().iter();
        arns.any(|arn| arn.split_once(":oidc-provider/").is_some_and(|(_, name)| name == provider))
    }
}

/// The claims of a token, whose signature is not verified.
#[derive(Debug, Deserialize)]
pub(super) struct Token {
    iss: String,
    pub(super) aud: OneOrMany<String>,
    pub(super) sub: String,
    /// The expiry in seconds since the Unix epoch.
    pub(super) exp: i64,
}

impl Token {
    /// Reads a JSON web token.
    pub(super) fn parse(token: &str) -> Option<Self> {
        let mut parts = token.split('.');
        let (_header, claims, _signature) = (parts.next()?, parts.next()?, parts.next()?);
        serde_json::from_slice(&decoded(claims)?).ok()
    }

    /// Returns the provider's name in IAM: the issuer's URL without its scheme.
    pub(super) fn provider(&self) -> &str {
        self.iss.strip_prefix("https://").unwrap_or(&self.iss)
    }
}

/// Decodes base64url without padding.
fn decoded(text: &str) -> Option<Vec<u8>> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let (mut out, mut bits, mut held) = (Vec::new(), 0_u32, 0_u32);
    for byte in text.bytes() {
        let digit = DIGITS.iter().position(|d| *d == byte)?;
        bits = (bits << 6 | u32::try_from(digit).ok()?) & 0xffff;
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push(u8::try_from(bits >> held & 0xff).ok()?);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64url_decodes_else_none() {
        for (text, bytes) in [
            ("", Some(&b""[..])),
            ("YQ", Some(b"a")),
            ("YWI", Some(b"ab")),
            ("YWJj", Some(b"abc")),
            ("-_-_", Some(&[0xfb, 0xff, 0xbf])),
            ("YQ==", None),
            ("+/+/", None),
        ] {
            assert_eq!(decoded(text).as_deref(), bytes, "{text}");
        }
    }
}
