//! Lives of one volume on a node beside the same steps done with bare system calls, in turns A-B-B-A.

use std::time::Duration;

use ebs_csi_sandbox::bare::{LoopDevice, blank};
use ebs_csi_sandbox::binaries::Binaries;
use ebs_csi_wire::FsType;

use super::place::{Attached, Place};
use crate::error::BenchError;
use crate::extent::Extent;
use crate::figure::{Figure, Role, Statistic, Target};

/// The steps of a cycle, in their order.
const STEPS: [Step; 6] = [
    Step::Fresh,
    Step::Clean,
    Step::Publish,
    Step::Stats,
    Step::Unpublish,
    Step::Unstage,
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Stage and publish of a blank volume.
    Fresh,
    /// Stage of a volume with a clean file system.
    Clean,
    Publish,
    Stats,
    Unpublish,
    Unstage,
}

#[derive(Default)]
struct Samples {
    steps: [Vec<f64>; STEPS.len()],
    /// Of a fresh volume: the stage alone, and of the bare cycle mkfs alone.
    part: Vec<f64>,
}

impl Samples {
    fn add(&mut self, step: Step, took: Duration) {
        if let Some(at) = STEPS.iter().position(|known| *known == step) {
            self.steps[at].push(took.as_secs_f64() * 1e3);
        }
    }
}

pub(super) async fn measure(
    binaries: &Binaries,
    extent: Extent,
    kind: FsType,
) -> Result<Vec<Figure>, BenchError> {
    let place = Place::make(binaries).await?;
    let measured = interleaved(&place, extent, kind).await;
    place.end().await?;
    let (driver, bare) = measured?;
    Ok(figures(kind, driver, bare))
}

async fn interleaved(
    place: &Place,
    extent: Extent,
    kind: FsType,
) -> Result<(Samples, Samples), BenchError> {
    let name = format!("pvc-cycle-{}", kind.as_str());
    let attached = place.attach(&name, kind.as_str()).await?;
    let device = LoopDevice::make(&place.world.state_dir().join("bare"), &name, 1 << 30)?;
    let (mut driver, mut bare) = (Samples::default(), Samples::default());
    let (mut warm, mut cold) = (Samples::default(), Samples::default());
    through_driver(place, &attached, &mut warm).await?;
    by_hand(&device, kind, &mut cold)?;
    for round in 0..extent.of(2, 120, 400) {
        if round % 2 == 0 {
            through_driver(place, &attached, &mut driver).await?;
            by_hand(&device, kind, &mut bare)?;
        } else {
            by_hand(&device, kind, &mut bare)?;
            through_driver(place, &attached, &mut driver).await?;
        }
    }
    Ok((driver, bare))
}

async fn through_driver(
    place: &Place,
    attached: &Attached,
    samples: &mut Samples,
) -> Result<(), BenchError> {
    let Attached { volume, attachment } = attached;
    let (kubelet, pod) = (&place.kubelet, "pod-cycle");
    blank(&place.device(attached)?)?;
    kubelet.stage(volume, attachment).await?;
    kubelet.publish(volume, attachment, pod, false).await?;
    let staged = place.took("NodeStageVolume");
    if let Some((stage, publish)) = staged.zip(place.took("NodePublishVolume")) {
        samples.add(Step::Fresh, stage + publish);
        samples.part.push(stage.as_secs_f64() * 1e3);
    }
    kubelet.unpublish(volume, pod).await?;
    kubelet.unstage(volume).await?;
    kubelet.stage(volume, attachment).await?;
    let target = kubelet.publish(volume, attachment, pod, false).await?;
    kubelet.stats(volume, &target).await?;
    kubelet.unpublish(volume, pod).await?;
    kubelet.unstage(volume).await?;
    for (step, rpc) in [
        (Step::Clean, "NodeStageVolume"),
        (Step::Publish, "NodePublishVolume"),
        (Step::Stats, "NodeGetVolumeStats"),
        (Step::Unpublish, "NodeUnpublishVolume"),
        (Step::Unstage, "NodeUnstageVolume"),
    ] {
        if let Some(took) = place.took(rpc) {
            samples.add(step, took);
        }
    }
    Ok(())
}

fn by_hand(device: &LoopDevice, kind: FsType, samples: &mut Samples) -> Result<(), BenchError> {
    device.blank()?;
    let format = device.format(kind)?;
    samples.part.push(format.as_secs_f64() * 1e3);
    samples.add(Step::Fresh, format + device.mount(kind)? + device.bind()?);
    device.unbind()?;
    device.unmount()?;
    samples.add(Step::Clean, device.mount(kind)?);
    samples.add(Step::Publish, device.bind()?);
    samples.add(Step::Stats, device.space()?);
    samples.add(Step::Unpublish, device.unbind()?);
    samples.add(Step::Unstage, device.unmount()?);
    Ok(())
}

fn figures(kind: FsType, driver: Samples, bare: Samples) -> Vec<Figure> {
    let fs = kind.as_str();
    let (mut driver_part, mut bare_part) = (driver.part, bare.part);
    STEPS
        .into_iter()
        .zip(driver.steps.into_iter().zip(bare.steps))
        .map(|(step, (driver, bare))| {
            let (key, title, by_hand) = words(step);
            let mut figure = Figure::new(&format!("node-{key}-{fs}"), &format!("{title}, {fs}"), "ms")
                .row(Role::Ours, "driver", driver)
                .row(Role::Bound, &format!("bare: {by_hand}"), bare);
            if step == Step::Fresh {
                figure = figure
                    .row(Role::Part, "of the driver's: stage", std::mem::take(&mut driver_part))
                    .row(Role::Part, "of the bare: mkfs", std::mem::take(&mut bare_part))
                    .note("A loop device of 1 GiB that reads as zeros; both give mkfs the same arguments.");
            }
            match (step, kind) {
                (Step::Fresh, FsType::Ext4) => {
                    figure
                        .target(Target::at_most(Statistic::Median, 1.05).times_the_bound())
                        .target(Target::at_most(Statistic::Least, 1.05).times_the_bound())
                }
                (Step::Clean, FsType::Ext4) => figure.target(Target::at_most(Statistic::P99, 2.0)),
                _ => figure,
            }
        })
        .collect()
}

fn words(step: Step) -> (&'static str, &'static str, &'static str) {
    match step {
        Step::Fresh => (
            "fresh",
            "stage and publish of a fresh volume",
            "mkfs, mount(2), mkdir(2), bind",
        ),
        Step::Clean => ("clean", "stage of a clean volume", "mount(2)"),
        Step::Publish => ("publish", "publish of a staged volume", "mkdir(2), bind"),
        Step::Stats => ("stats", "statistics of a published volume", "statvfs(3)"),
        Step::Unpublish => ("unpublish", "unpublish", "umount2(2), rmdir(2)"),
        Step::Unstage => ("unstage", "unstage", "umount2(2)"),
    }
}
