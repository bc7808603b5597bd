//! The wait for the data of a restored volume (`blockAttachUntilInitialized`).

use std::time::Duration;

use ebs_csi_proto::{Condition, Failure};
use ebs_csi_wire::VolumeId;
use tokio::time::Instant;

use crate::ec2::{Ec2, Initialization};
use crate::ec2_failure::failure_as;
use crate::operations::Superseded;

/// EC2 renews what it says about initialization every few minutes.
const INITIALIZATION_LOOKS: Duration = Duration::from_secs(15);

/// Waits until all data of a restored volume is on it. Nothing is held meanwhile: a detach takes its place at once.
pub(super) async fn wait_until_initialized(
    ec2: &Ec2,
    volume: &VolumeId,
    deadline: Instant,
    superseded: &Superseded,
) -> Result<(), Failure> {
    loop {
        let status = ec2
            .look_volume_status(volume)
            .await
            .known()
            .map_err(|error| failure_as(Condition::OperationPending, &error))?;
        let progress = match status.map(|status| status.initialization) {
            None | Some(Initialization::Complete) => return Ok(()),
            Some(Initialization::Running { progress, .. }) => progress.unwrap_or(0),
        };
        if Instant::now() + INITIALIZATION_LOOKS >= deadline {
            return Err(Failure::new(
                Condition::OperationPending,
                format!(
                    "volume {volume} is attached and {progress} % of its data has come from its source; blockAttachUntilInitialized waits for the rest"
                ),
            ));
        }
        for _ in 0..INITIALIZATION_LOOKS.as_secs() {
            if superseded.is_set() {
                return Err(Superseded::failure());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}
