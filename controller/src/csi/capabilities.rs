//! The capabilities of the Controller service.

use ebs_csi_proto::csi::{
    ControllerGetCapabilitiesResponse, ControllerServiceCapability,
    controller_service_capability::{Rpc, Type, rpc::Type as Offer},
};

/// The capabilities of the Go driver, in the Go driver's order.
const GO_DRIVER: [Offer; 7] = [
    Offer::CreateDeleteVolume,
    Offer::CloneVolume,
    Offer::PublishUnpublishVolume,
    Offer::CreateDeleteSnapshot,
    Offer::ListSnapshots,
    Offer::ExpandVolume,
    Offer::ModifyVolume,
];

/// Capabilities that the Go driver does not offer.
///
/// LIST_VOLUMES_PUBLISHED_NODES is missing on purpose: with it, external-attacher would attach a
/// volume again that was detached on purpose.
const ADDITIONAL: [Offer; 3] =
    [Offer::SingleNodeMultiWriter, Offer::GetSnapshot, Offer::ListVolumes];

/// Offered with `--enable-volume-health`.
const HEALTH: [Offer; 2] = [Offer::GetVolumeHealth, Offer::ListVolumeHealth];

/// Returns the answer of ControllerGetCapabilities.
pub(crate) fn response(volume_health: bool) -> ControllerGetCapabilitiesResponse {
    let health: &[Offer] = if volume_health { &HEALTH } else { &[] };
    ControllerGetCapabilitiesResponse {
        capabilities: GO_DRIVER
            .iter()
            .chain(&ADDITIONAL)
            .chain(health)
            .map(|offer| ControllerServiceCapability {
                r#type: Some(Type::Rpc(Rpc { r#type: *offer as i32 })),
            })
            .collect(),
    }
}
