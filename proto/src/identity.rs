//! The CSI Identity service, shared by the controller, the node-agent and the router.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::csi;
use crate::failure::Failure;

/// Returns whether the process can serve: `Ok(true)` when ready, `Ok(false)` while still starting,
/// or the reason why it cannot.
pub type Readiness =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<bool, Failure>> + Send>> + Send + Sync>;

/// The Identity service.
#[derive(Clone)]
pub struct Identity {
    version: String,
    manifest: HashMap<String, String>,
    groups: bool,
    readiness: Readiness,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Identity {
    /// Creates the service with the version that `GetPluginInfo` reports and a readiness check for
    /// `Probe`, which must be cheap.
    pub fn new(version: impl Into<String>, readiness: Readiness) -> Self {
        Self { version: version.into(), manifest: HashMap::new(), groups: false, readiness }
    }

    /// Sets the vendor's manifest, which `GetPluginInfo` reports.
    #[must_use]
    pub fn with_manifest(self, manifest: HashMap<String, String>) -> Self {
        Self { manifest, ..self }
    }

    /// Sets whether the process serves GroupController.
    #[must_use]
    pub fn with_groups(self, groups: bool) -> Self {
        Self { groups, ..self }
    }

    /// Creates the service of a process that can serve as soon as it answers.
    pub fn always_ready(version: impl Into<String>) -> Self {
        Self::new(version, Arc::new(|| Box::pin(std::future::ready(Ok(true)))))
    }
}

#[tonic::async_trait]
impl csi::identity_server::Identity for Identity {
    async fn get_plugin_info(
        &self,
        _: Request<csi::GetPluginInfoRequest>,
    ) -> Result<Response<csi::GetPluginInfoResponse>, Status> {
        Ok(Response::new(csi::GetPluginInfoResponse {
            name: crate::DRIVER_NAME.to_owned(),
            vendor_version: self.version.clone(),
            manifest: self.manifest.clone(),
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<csi::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<csi::GetPluginCapabilitiesResponse>, Status> {
        use csi::plugin_capability::{Service, Type, service};
        let offer = |kind: service::Type| csi::PluginCapability {
            r#type: Some(Type::Service(Service { r#type: kind as i32 })),
        };
        // Without groups the answer is the same in every mode, as in the Go driver: the node's
        // sidecars read nothing else.
        let mut capabilities = vec![
            offer(service::Type::ControllerService),
            offer(service::Type::VolumeAccessibilityConstraints),
        ];
        if self.groups {
            capabilities.push(offer(service::Type::GroupControllerService));
        }
        Ok(Response::new(csi::GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(
        &self,
        _: Request<csi::ProbeRequest>,
    ) -> Result<Response<csi::ProbeResponse>, Status> {
        let ready = (self.readiness)().await?;
        Ok(Response::new(csi::ProbeResponse { ready: Some(ready) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csi::identity_server::Identity as Service;
    use crate::csi::plugin_capability::{Type, service};

    #[tokio::test]
    async fn identity_reports_name_version_and_2_services() {
        let identity = Identity::always_ready("v1.2.3");
        let info = identity.get_plugin_info(Request::new(csi::GetPluginInfoRequest {})).await;
        let info = info.unwrap().into_inner();
        assert_eq!((&*info.name, &*info.vendor_version), ("ebs.csi.aws.com", "v1.2.3"));
        let request = Request::new(csi::GetPluginCapabilitiesRequest {});
        let offered = identity.get_plugin_capabilities(request).await.unwrap().into_inner();
        let services: Vec<_> = offered
            .capabilities
            .into_iter()
            .map(|capability| match capability.r#type {
                Some(Type::Service(service)) => service.r#type(),
                other => panic!("not a service: {other:?}"),
            })
            .collect();
        use service::Type::{ControllerService, VolumeAccessibilityConstraints};
        assert_eq!(services, [ControllerService, VolumeAccessibilityConstraints]);
        let ready = identity.probe(Request::new(csi::ProbeRequest {})).await;
        assert_eq!(ready.unwrap().into_inner().ready, Some(true));
    }
}
