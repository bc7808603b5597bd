//! The errors for callers without permission.

use super::context::Context;
use super::decision::Decision;
use crate::wire::api_error::ApiError;
use serde_json::json;
use std::fmt::Write as _;

/// Returns EC2's error: the caller, the action, the resource, the reason, and a message for
/// `sts:DecodeAuthorizationMessage`.
pub(crate) fn unauthorized(
    who: &str,
    action: &str,
    resource: &str,
    decision: &Decision,
    context: &Context,
) -> ApiError {
    let mut text = format!(
        "You are not authorized to perform this operation. User: {who} is not authorized to perform: {action}"
    );
    // A refusal of a call that concerns no particular resource names no resource and has no encoded
    // message.
    if resource != "*" {
        let _ = write!(text, " on resource: {resource}");
    }
    match decision {
        Decision::Denied(_) => {
            text.push_str(" with an explicit deny in an identity-based policy");
        }
        _ => {
            let _ = write!(text, " because no identity-based policy allows the {action} action");
        }
    }
    if resource != "*" {
        let encoded = encode(who, action, resource, decision, context);
        let _ = write!(text, ". Encoded authorization failure message: {encoded}");
    }
    ApiError::new(403, "UnauthorizedOperation", text)
}

fn encode(
    who: &str,
    action: &str,
    resource: &str,
    decision: &Decision,
    context: &Context,
) -> String {
    let matched: Vec<_> = match decision {
        Decision::Denied(s) => {
            vec![json!({"statementId": s.statement, "sourcePolicyId": s.policy, "effect": "DENY"})]
        }
        _ => Vec::new(),
    };
    let json = json!({
        "allowed": false,
        "explicitDeny": matches!(decision, Decision::Denied(_)),
        "matchedStatements": {"items": matched},
        "failures": {"items": []},
        "context": {"principal": {"arn": who}, "action": action, "resource": resource, "conditions": context},
    })
    .to_string();
    let mut out = String::with_capacity(json.len() * 2);
    for b in json.bytes() {
        let _ = write!(out, "{b:02x}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Refusals of Describe actions carry neither a resource nor an encoded message.
    #[test]
    fn refusal_names_principal_action_resource_and_decodes() {
        let mut c = Context::default();
        c.set("ec2:VolumeType", "gp3");
        let e = unauthorized(
            "arn:aws:iam::1:user/u",
            "ec2:CreateVolume",
            "arn:aws:ec2:r:1:volume/*",
            &Decision::NotAllowed,
            &c,
        );
        assert_eq!((e.status, e.code.as_str()), (403, "UnauthorizedOperation"));
        let (sentence, encoded) =
            e.message.split_once(". Encoded authorization failure message: ").expect("encoded");
        assert_eq!(
            sentence,
            "You are not authorized to perform this operation. User: arn:aws:iam::1:user/u is not authorized to perform: ec2:CreateVolume on resource: arn:aws:ec2:r:1:volume/* because no identity-based policy allows the ec2:CreateVolume action"
        );
        assert!(!encoded.is_empty() && encoded.bytes().all(|b| b.is_ascii_hexdigit()));
        let read = unauthorized("u", "ec2:DescribeVolumes", "*", &Decision::NotAllowed, &c).message;
        assert!(!read.contains("Encoded") && !read.contains("resource"), "{read}");
    }
}
