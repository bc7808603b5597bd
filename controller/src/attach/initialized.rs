//! The wait for the data of a restored volume (`blockAttachUntilInitialized`).

use std::time::Duration;

use ebs_csi_ec2::{Call, Ec2, Initialization};
use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire::VolumeId;
use tokio::time::Instant;

use crate::csi_failure::failure;
use crate::operation::Cancellation;

/// EC2 renews its report about initialization every few minutes; a small volume is done in seconds.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Waits until all data of a restored volume is on it. The wait holds no lock: a detach supersedes
/// it at once.
pub(super) async fn wait_until_initialized(
    ec2: &Ec2,
    call: &Call,
    volume: &VolumeId,
    deadline: Instant,
    cancellation: &Cancellation,
) -> Result<(), Failure> {
    let mut pause = FIRST_PAUSE;
    loop {
        let status = match ec2.look_volume_status(call, volume).await.known() {
            Ok(status) => status,
            Err(error) if error.is_transient() => {
                tracing::warn!(%error, "how much of a volume's data has come is not known; it is asked again");
                None
            }
            Err(error) => return Err(failure(&error)),
        };
        let progress_text = match status.map(|status| status.initialization) {
            Some(Initialization::Complete) => return Ok(()),
            Some(Initialization::Running { progress, .. }) => progress.map(|p| format!("{p} %")),
            // EC2's status of a volume lags behind the volume.
            None => None,
        };
        if Instant::now() + pause >= deadline {
            return Err(Failure::new(
                Condition::OperationPending,
                format!(
                    "volume {volume} is attached and {} of its data has come from its source; blockAttachUntilInitialized waits for the rest",
                    progress_text.as_deref().unwrap_or("a part")
                ),
            ));
        }
        if tokio::time::timeout(pause, cancellation.superseded()).await.is_ok() {
            return Err(Cancellation::superseded_failure());
        }
        pause = (pause * 2).min(MAX_PAUSE);
    }
}
