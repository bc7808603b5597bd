//! The pre-stop hook: while the node is being drained, the hook holds the pod until no volume is
//! staged any more, so that the process that can unmount volumes does so. When the pod ends for
//! another reason, the hook removes the registration socket and returns at once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ebs_csi_proto::keys::DRAINING;
use ebs_csi_proto::observe::{LogFlags, init_log};
use ebs_csi_proto::program::{self, Exit};

use crate::deadline::Deadline;
use crate::facts::node_facts_file;
use crate::helper::{Helper, Target};
use crate::registration;
use crate::service::{self, confinement};
use crate::settings::flags::PreStop;

/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(500);

/// Runs the hook.
///
/// # Errors
/// [`Exit`]: a setting cannot be used, the process cannot be confined, or volumes are still mounted
/// at the timeout.
pub fn run(hook: &PreStop) -> Result<(), Exit> {
    init_log(LogFlags::default());
    let helper = Target::read(&hook.helper, hook.helper_key_file.as_deref())?;
    if !is_draining(&hook.node_facts_file) {
        tracing::info!("the node is not being drained");
        return remove_registration_socket(&hook.plugin_registration_path);
    }
    let files = hook.node_facts_file.iter().map(PathBuf::as_path);
    confinement::places(None, None, files, helper.socket())
        .and_then(|places| confinement::enter(places, helper.is_vsock()))
        .map_err(service::unconfined)?;
    program::block_on(wait(helper, hook))
}

async fn wait(helper: Target, hook: &PreStop) -> Result<(), Exit> {
    let helper = Helper::new(helper, Arc::default());
    let deadline = Deadline::after(Duration::from_secs(hook.timeout));
    let mut held = "an unknown number of".to_owned();
    while is_draining(&hook.node_facts_file) {
        match helper.held(deadline).await {
            Ok(places) if places.is_empty() => {
                tracing::info!("no volume is staged");
                return Ok(());
            }
            Ok(places) => held = places.len().to_string(),
            Err(error) => tracing::warn!(%error, "cannot see which volumes are staged"),
        }
        if deadline.left() <= PAUSE {
            return Err(Exit::failed(format_args!(
                "{held} places of volumes were still mounted after {} s",
                hook.timeout
            )));
        }
        tokio::time::sleep(PAUSE).await;
    }
    tracing::info!("the node is no longer being drained");
    Ok(())
}

/// Returns whether the node facts files say that the node is being drained.
fn is_draining(files: &[PathBuf]) -> bool {
    node_facts_file::entries(files).get(DRAINING).is_some_and(|value| value == "true")
}

/// Removes the registration socket before the agent ends. While a node is drained the socket stays,
/// so that kubelet continues to call this driver for unmounts.
fn remove_registration_socket(directory: &Path) -> Result<(), Exit> {
    program::block_on(async {
        match registration::withdraw(directory) {
            Ok(true) => tracing::info!("removed the registration socket"),
            Ok(false) => tracing::info!("no registration socket of this container"),
            Err(error) => tracing::warn!(%error, "the registration socket stays"),
        }
        Ok(())
    })
}
