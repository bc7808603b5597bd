//! Instance metadata, version 2: the data that an instance can read about itself.

use crate::state::Realm;
use crate::state::resources::{Instance, mac};
use crate::time::Millis;
use serde_json::json;

/// The maximum lifetime of a session token, in seconds.
const MAX_TTL: u64 = 21_600;

#[derive(Debug, Default)]
pub(super) struct Sessions {
    tokens: Vec<(String, Millis)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MetadataReply {
    pub status: u16,
    pub body: String,
}

fn answer(status: u16, body: impl Into<String>) -> MetadataReply {
    MetadataReply { status, body: body.into() }
}

impl Sessions {
    /// Answers `PUT /latest/api/token`. `ttl` is the header's value, `fresh` a random text for the
    /// new token.
    pub(super) fn put(
        &mut self,
        ttl: Option<&str>,
        forwarded: bool,
        fresh: String,
        now: Millis,
    ) -> MetadataReply {
        if forwarded {
            // Refused, as a guard against open proxies: the request came through a proxy.
            return answer(403, "");
        }
        let Some(ttl) =
            ttl.and_then(|t| t.trim().parse::<u64>().ok()).filter(|t| (1..=MAX_TTL).contains(t))
        else {
            return answer(400, "");
        };
        self.tokens.retain(|(_, until)| *until > now);
        self.tokens.push((fresh.clone(), now.plus(ttl * 1000)));
        answer(200, fresh)
    }

    pub(super) fn allows(&self, token: Option<&str>, now: Millis) -> bool {
        let known = |token: &str| self.tokens.iter().find(|(one, _)| one == token);
        token.and_then(known).is_some_and(|(_, until)| *until > now)
    }
}

/// Returns whether a path leads to credentials or to user data. Nothing on a node needs these
/// paths.
pub(super) fn is_credential_path(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    ["/latest/meta-data/iam", "/latest/meta-data/identity-credentials", "/latest/user-data"]
        .iter()
        .any(|p| path == *p || path.starts_with(&format!("{p}/")))
}

pub(super) fn read(path: &str, realm: &Realm, i: &Instance) -> MetadataReply {
    let Some(path) = path.strip_prefix("/latest/") else { return missing() };
    match path {
        "dynamic/instance-identity/document" => answer(
            200,
            json!({
                "instanceId": i.id, "instanceType": i.instance_type, "region": realm.region,
                "availabilityZone": i.zone, "accountId": realm.account, "version": "2017-09-30",
            })
            .to_string(),
        ),
        "meta-data/instance-id" => answer(200, &i.id),
        "meta-data/placement/availability-zone" => answer(200, &i.zone),
        "meta-data/outpost-arn" => match &i.outpost {
            Some(arn) => answer(200, arn),
            None => missing(),
        },
        "meta-data/network/interfaces/macs/" => answer(200, format!("{}/", mac(&i.id))),
        // The list shows the devices at launch; later attachments do not appear.
        "meta-data/block-device-mapping/" => answer(200, "ami\nroot"),
        _ => missing(),
    }
}

/// Returns the page that the real service returns for an unknown path.
pub(super) fn missing() -> MetadataReply {
    answer(
        404,
        "<?xml version=\"1.0\" encoding=\"iso-8859-1\"?>\n<html><head><title>404 - Not Found</title></head><body><h1>404 - Not Found</h1></body></html>\n",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imds_access_needs_unexpired_token() {
        let mut s = Sessions::default();
        let put = |s: &mut Sessions, ttl, forwarded| {
            s.put(ttl, forwarded, "t".to_owned(), Millis(0)).status
        };
        assert_eq!(put(&mut s, None, false), 400);
        assert_eq!(put(&mut s, Some("0"), false), 400);
        assert_eq!(put(&mut s, Some("21601"), false), 400);
        assert_eq!(put(&mut s, Some("60"), true), 403);
        assert!(!s.allows(Some("t"), Millis(0)));
        assert_eq!(put(&mut s, Some("60"), false), 200);
        assert!(s.allows(Some("t"), Millis(59_999)));
        assert!(
            !s.allows(Some("t"), Millis(60_000))
                && !s.allows(None, Millis(0))
                && !s.allows(Some("u"), Millis(0))
        );
    }

    #[test]
    fn only_credential_and_user_data_paths_are_traps() {
        for (path, trap) in [
            ("/latest/meta-data/iam/security-credentials/", true),
            ("/latest/meta-data/iam/security-credentials/role", true),
            ("/latest/meta-data/identity-credentials/ec2/security-credentials/ec2-instance", true),
            ("/latest/user-data", true),
            ("/latest/meta-data/iam", true),
            ("/latest/meta-data/instance-id", false),
            ("/latest/meta-data/", false),
        ] {
            assert_eq!(is_credential_path(path), trap, "{path}");
        }
    }
}
