//! The switches that stop all acts: the kill switch, and a CSIDriver object that does not advertise
//! safe detach.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::{Api, Client, ResourceExt};

/// The ConfigMap whose `stop: "true"` stops failover.
pub(super) const KILL_SWITCH: &str = "ebs-csi-node-lifecycle";
/// The annotation by which the CSIDriver object advertises safe detach.
pub const ADVERTISED: &str = "ebs.csi.aws.com/safe-detach";
/// The value of that annotation.
pub const ADVERTISED_VERSION: &str = "v1";

/// Returns why no act is allowed. A switch that cannot be read also stops all acts.
pub(crate) async fn stop_reason(client: &Client, namespace: &str) -> Option<&'static str> {
    let switches: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    match switches.get_opt(KILL_SWITCH).await {
        Ok(None) => {}
        Ok(Some(switch)) => {
            let stop = switch.data.as_ref().and_then(|data| data.get("stop"));
            if stop.is_some_and(|stop| stop != "false") {
                return Some("kill-switch");
            }
        }
        Err(error) => {
            tracing::warn!(%error, "the kill switch could not be read: nothing is done");
            return Some("kill-switch");
        }
    }
    let drivers: Api<CSIDriver> = Api::all(client.clone());
    match drivers.get_metadata_opt(ebs_csi_proto::DRIVER_NAME).await {
        Ok(Some(driver)) => {
            let value = driver.annotations().get(ADVERTISED);
            let advertised = value.is_some_and(|value| value == ADVERTISED_VERSION);
            (!advertised).then_some("not-advertised")
        }
        Ok(None) => Some("not-advertised"),
        Err(error) => {
            tracing::warn!(%error, "the CSIDriver object could not be read: nothing is done");
            Some("not-advertised")
        }
    }
}
