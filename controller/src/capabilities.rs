//! What the Controller service offers.

use ebs_csi_proto::csi::{
    ControllerGetCapabilitiesResponse, ControllerServiceCapability,
    controller_service_capability::{Rpc, Type, rpc::Type as Offer},
};

/// In the Go driver's order, then what it does not offer.
const OFFERS: [Offer; 7] = [
    Offer::CreateDeleteVolume,
    Offer::CloneVolume,
    Offer::PublishUnpublishVolume,
    Offer::CreateDeleteSnapshot,
    Offer::ListSnapshots,
    Offer::ExpandVolume,
    Offer::ModifyVolume,
];

/// The answer of ControllerGetCapabilities.
pub fn answer() -> ControllerGetCapabilitiesResponse {
    let more = [Offer::SingleNodeMultiWriter, Offer::GetSnapshot];
    ControllerGetCapabilitiesResponse {
        capabilities: OFFERS
            .into_iter()
            .chain(more)
            .map(|offer| ControllerServiceCapability {
                r#type: Some(Type::Rpc(Rpc {
                    r#type: offer as i32,
                })),
            })
            .collect(),
    }
}
