//! The error for callers without permission.

use crate::wire::ApiError;

/// Returns EC2's error: the caller, the action, the resource, the reason, and a message for
/// `sts:DecodeAuthorizationMessage`, which nobody can decode here.
pub(crate) fn unauthorized(who: &str, action: &str, resource: &str) -> ApiError {
    // A refusal of a call that concerns no particular resource names no resource and has no encoded
    // message.
    let (on, encoded) = match resource {
        "*" => (String::new(), ""),
        _ => {
            let encoded = ". Encoded authorization failure message: 00";
            (format!(" on resource: {resource}"), encoded)
        }
    };
    ApiError::new(
        403,
        "UnauthorizedOperation",
        format!(
            "You are not authorized to perform this operation. User: {who} is not authorized to perform: {action}{on} because no identity-based policy allows the {action} action{encoded}"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_names_principal_action_and_particular_resource() {
        for (action, resource, message) in [
            (
                "ec2:CreateVolume",
                "arn:aws:ec2:r:1:volume/*",
                "You are not authorized to perform this operation. User: u is not authorized to perform: ec2:CreateVolume on resource: arn:aws:ec2:r:1:volume/* because no identity-based policy allows the ec2:CreateVolume action. Encoded authorization failure message: 00",
            ),
            (
                "ec2:DescribeVolumes",
                "*",
                "You are not authorized to perform this operation. User: u is not authorized to perform: ec2:DescribeVolumes because no identity-based policy allows the ec2:DescribeVolumes action",
            ),
        ] {
            let e = unauthorized("u", action, resource);
            assert_eq!((e.status, e.code.as_str()), (403, "UnauthorizedOperation"));
            assert_eq!(e.message, message);
        }
    }
}
