//! A volume without a file system.

use super::data;
use super::{DemoError, Scene};
use crate::co::Claim;

pub(super) async fn show(scene: &mut Scene<'_>) -> Result<(), DemoError> {
    scene.narrator.chapter("a raw block volume");
    let volume = scene.create(&Claim::block("pvc-raw", 1)).await?;
    let in_use = scene.use_on(&volume, 0, "pod-6").await?;
    let digest = data::write_device(&in_use.published.path, "pvc-raw")?;
    scene.narrator.done("write to the device, fsync", &format!("1 MiB, sha256 {digest}…"));
    scene.take_from(&volume, &in_use).await?;
    let in_use = scene.use_on(&volume, 1, "pod-7").await?;
    let digest = data::find_device(&in_use.published.path, "pvc-raw")?;
    scene.narrator.done("read the same bytes on node-b", &format!("sha256 {digest}…"));
    Ok(())
}
