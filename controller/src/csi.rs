//! The services of the CSI socket: requests in, responses out.

mod node_local;
pub mod rpc;
pub mod service;

use ebs_csi_proto::csi;
use ebs_csi_proto::csi::validate_volume_capabilities_response::Confirmed;

/// Returns the response of ValidateVolumeCapabilities: the reason of a refusal or, without one, the
/// request's values unchanged.
fn validated(
    wire: csi::ValidateVolumeCapabilitiesRequest,
    refusal: Option<String>,
) -> csi::ValidateVolumeCapabilitiesResponse {
    let confirmed = refusal.is_none().then_some(Confirmed {
        volume_context: wire.volume_context,
        volume_capabilities: wire.volume_capabilities,
        parameters: wire.parameters,
        mutable_parameters: wire.mutable_parameters,
    });
    csi::ValidateVolumeCapabilitiesResponse { confirmed, message: refusal.unwrap_or_default() }
}
