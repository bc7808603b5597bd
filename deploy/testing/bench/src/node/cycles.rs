//! The life cycle of a volume on a node, compared with the same steps as bare system calls, in
//! alternating order (A-B-B-A).

use ebs_csi_wire::FsType;

use super::bare::{LoopDevice, blank, format};
use super::testbed::{Attached, Testbed};
use crate::contestant::Contestant;
use crate::delay::Latency;
use crate::error::Result;
use crate::extent::Extent;
use crate::report::figure::{Figure, Role, Statistic};
use crate::world::{millis, order};

/// The steps of a cycle: the name in a figure's key, the title, the bare steps, and the RPC. The
/// first is the stage and publish of a blank volume.
const STEPS: [(&str, &str, &str, &str); 6] = [
    ("fresh", "stage and publish of a fresh volume", "mkfs, mount(2), mkdir(2), bind", ""),
    ("clean", "stage of a clean volume", "mount(2)", "NodeStageVolume"),
    ("publish", "publish of a staged volume", "mkdir(2), bind", "NodePublishVolume"),
    ("stats", "statistics of a published volume", "statvfs(3)", "NodeGetVolumeStats"),
    ("unpublish", "unpublish", "umount2(2), rmdir(2)", "NodeUnpublishVolume"),
    ("unstage", "unstage", "umount2(2)", "NodeUnstageVolume"),
];

/// Milliseconds.
#[derive(Default)]
struct Samples {
    steps: [Vec<f64>; STEPS.len()],
    /// For a fresh volume: the stage alone; in the bare cycle: mkfs alone.
    part: Vec<f64>,
}

pub(super) async fn measure(
    contestants: &[Contestant],
    latency: Option<Latency>,
    extent: Extent,
    kind: FsType,
) -> Result<Vec<Figure>> {
    let mut testbeds = Vec::new();
    for contestant in contestants {
        testbeds.push((contestant, Testbed::make(contestant, latency).await?));
    }
    let measured = interleaved(&testbeds, extent, kind).await?;
    for (_, testbed) in testbeds {
        testbed.end().await?;
    }
    Ok(figures(kind, measured))
}

struct Measured {
    role: Role,
    name: String,
    samples: Samples,
}

/// Returns the samples of the drivers and of the bare steps; the bare ones follow this driver's.
async fn interleaved(
    testbeds: &[(&Contestant, Testbed)],
    extent: Extent,
    kind: FsType,
) -> Result<Vec<Measured>> {
    let name = format!("pvc-cycle-{}", kind.as_str());
    let [(_, first), ..] = testbeds else {
        return Ok(Vec::new());
    };
    let device = first.bare(&name)?;
    let measured =
        |role, name: &str| Measured { role, name: name.to_owned(), samples: Samples::default() };
    let mut turns = vec![(Subject::Bare(&device), measured(Role::Bound, "bare"))];
    for (contestant, testbed) in testbeds {
        let attached = testbed.attach(&name, kind.as_str()).await?;
        let subject = Subject::Driver(testbed, attached.into());
        turns.push((subject, measured(contestant.role, &contestant.name)));
    }
    // This driver's turn and the bare turn are neighbours.
    turns.swap(0, 1);
    // The first cycle of each contestant warms up and is not counted.
    for (subject, _) in &turns {
        subject.run_cycle(kind, &mut Samples::default()).await?;
    }
    for round in 0..extent.of(2, 120, 400) {
        for index in order(round, turns.len()) {
            let (subject, measured) = &mut turns[index];
            subject.run_cycle(kind, &mut measured.samples).await?;
        }
    }
    Ok(turns.into_iter().map(|(_, measured)| measured).collect())
}

/// What a cycle runs on.
enum Subject<'p> {
    Driver(&'p Testbed, Box<Attached>),
    Bare(&'p LoopDevice),
}

impl Subject<'_> {
    async fn run_cycle(&self, kind: FsType, samples: &mut Samples) -> Result<()> {
        match self {
            Self::Driver(testbed, attached) => through_driver(testbed, attached, samples).await,
            Self::Bare(device) => without_driver(device, kind, samples),
        }
    }
}

async fn through_driver(
    testbed: &Testbed,
    attached: &Attached,
    samples: &mut Samples,
) -> Result<()> {
    let Attached { volume, attachment } = attached;
    let (kubelet, pod) = (&testbed.kubelet, "pod-cycle");
    blank(&testbed.device(attached)?)?;
    kubelet.stage(volume, attachment).await?;
    kubelet.publish(volume, attachment, pod, false).await?;
    let staged = testbed.duration_of("NodeStageVolume");
    if let Some((stage, publish)) = staged.zip(testbed.duration_of("NodePublishVolume")) {
        samples.steps[0].push(millis(stage + publish));
        samples.part.push(millis(stage));
    }
    kubelet.unpublish(volume, pod).await?;
    kubelet.unstage(volume).await?;
    kubelet.stage(volume, attachment).await?;
    let target = kubelet.publish(volume, attachment, pod, false).await?;
    kubelet.stats(volume, &target).await?;
    kubelet.unpublish(volume, pod).await?;
    kubelet.unstage(volume).await?;
    for (samples, (.., rpc)) in samples.steps.iter_mut().zip(STEPS).skip(1) {
        samples.extend(testbed.duration_of(rpc).map(millis));
    }
    Ok(())
}

fn without_driver(device: &LoopDevice, kind: FsType, samples: &mut Samples) -> Result<()> {
    blank(device.node())?;
    let format = format(device.node(), kind)?;
    samples.part.push(millis(format));
    let fresh = format + device.mount(kind)? + device.bind()?;
    device.unbind()?;
    device.unmount()?;
    let (clean, publish, stats) = (device.mount(kind)?, device.bind()?, device.space()?);
    let took = [fresh, clean, publish, stats, device.unbind()?, device.unmount()?];
    for (samples, took) in samples.steps.iter_mut().zip(took) {
        samples.push(millis(took));
    }
    Ok(())
}

fn figures(kind: FsType, mut measured: Vec<Measured>) -> Vec<Figure> {
    let fs = kind.as_str();
    STEPS
        .into_iter()
        .enumerate()
        .map(|(at, (key, title, bare, _))| {
            let mut figure = Figure::new(&format!("node-{key}-{fs}"), &format!("{title}, {fs}"), "ms");
            for one in &mut measured {
                let samples = std::mem::take(&mut one.samples.steps[at]);
                figure = match one.role {
                    Role::Bound => figure.row(one.role, &format!("bare: {bare}"), samples),
                    _ => figure.row(one.role, &one.name, samples),
                };
            }
            if key == "fresh" {
                for one in &mut measured {
                    let part = std::mem::take(&mut one.samples.part);
                    let label = match one.role {
                        Role::Bound => "of the bare: mkfs".to_owned(),
                        _ => format!("of the {}'s: stage", one.name),
                    };
                    figure = figure.row(Role::Part, &label, part);
                }
                figure = figure.note(
                    "A loop device of 1 GiB that reads as zeros; driver and bare give mkfs the same arguments.",
                );
            }
            match (key, kind) {
                ("fresh", FsType::Ext4) => figure
                    .at_most_times_bound(Statistic::Median, 1.05)
                    .at_most_times_bound(Statistic::Least, 1.05),
                ("clean", FsType::Ext4) => figure.at_most(Statistic::P99, 2.0),
                _ => figure,
            }
        })
        .collect()
}
