//! The response of ValidateVolumeCapabilities.

use ebs_csi_proto::csi;
use ebs_csi_proto::csi::validate_volume_capabilities_response::Confirmed;

/// Returns the response that gives the reason of a refusal or, without one, confirms the request's
/// values unchanged.
pub(super) fn response(
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
