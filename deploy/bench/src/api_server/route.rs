//! Parses the path and the query of a request.

use super::Kind;

/// The object or collection that a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) kind: Kind,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
}

/// Parses `/api/v1/…` and `/apis/GROUP/VERSION/…`.
pub(super) fn target(path: &str) -> Option<Target> {
    let mut parts = path.trim_matches('/').split('/');
    match parts.next()? {
        "api" => drop(parts.next()?),
        "apis" => {
            parts.next()?;
            parts.next()?;
        }
        _ => return None,
    }
    let mut word = parts.next()?;
    let mut namespace = None;
    if word == "namespaces" {
        namespace = Some(parts.next()?.to_owned());
        word = parts.next()?;
    }
    Some(Target { kind: Kind::of(word)?, namespace, name: parts.next().map(str::to_owned) })
}

/// Returns a parameter of a query, decoded.
pub(super) fn parameter(query: &str, name: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_paths_and_query_parameters_are_parsed() {
        let lease = target("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x");
        assert_eq!(
            lease,
            Some(Target {
                kind: Kind::Leases,
                namespace: Some("kube-system".to_owned()),
                name: Some("x".to_owned())
            })
        );
        let pods = target("/api/v1/pods").expect("pods");
        assert_eq!((pods.namespace, pods.name), (None, None));
        assert_eq!(target("/api/v1/secrets"), None);
        assert_eq!(target("/metrics"), None);
        let query = "limit=500&fieldSelector=spec.nodeName%3Dnode-1";
        assert_eq!(parameter(query, "fieldSelector").as_deref(), Some("spec.nodeName=node-1"));
        assert_eq!(parameter(query, "continue"), None);
    }
}
