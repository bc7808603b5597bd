//! Requests that must be refused: checks the code, the message, and that nothing has changed.

mod change;
mod create;
mod node;
mod publish;
mod refused;
mod stage;

use ebs_csi_e2e::Fixture;
use ebs_csi_sandbox::co::Claim;

use refused::Differences;

const UNKNOWN_VOLUME: &str = "vol-0123456789abcdef0";

#[tokio::test]
async fn bad_controller_requests_are_refused_and_change_nothing() {
    let Some(fixture) = Fixture::start().await else { return };
    let (volume, _) = fixture.attached(&Claim::filesystem("pvc-good", "ext4", 10)).await;
    let mut wrong = Differences::new(&fixture).await;
    create::send_rows(&fixture, &volume, &mut wrong).await;
    change::send_rows(&fixture, &volume, &mut wrong).await;
    assert!(wrong.found.is_empty(), "{}", wrong.found.join("\n"));
    fixture.remove(&volume).await;
    fixture.finish().await;
}
