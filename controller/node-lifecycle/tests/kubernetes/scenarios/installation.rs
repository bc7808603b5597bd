//! What precedes the first volume: the manifests, the examples, the permissions, the preflight,
//! an upgrade by Helm, repeated application, nodes that join.

pub(super) mod examples;
pub(super) mod helm_upgrade;
pub(super) mod manifest_pods;
pub(super) mod node_facts;
pub(super) mod onboarding;
pub(super) mod permissions;
pub(super) mod preflight;
pub(super) mod repeated;
