//! The first stage of a copy of somebody else's volume, which the driver examines in full, and a
//! stage of the same volume after it has grown, compared with the same steps by programs and
//! mount(2).

use crate::node::bare::{LoopDevice, blank, format, grows_ext_mounted, resize};
use ebs_csi_proto::publish_context::{ORIGIN, SNAPSHOT};
use ebs_csi_wire::FsType;

use super::testbed::{Attached, Testbed};
use crate::contestant::Contestant;
use crate::delay::Latency;
use crate::error::Result;
use crate::extent::Extent;
use crate::report::figure::{Figure, Role};
use crate::world::millis;

/// The size of a disk before and after its growth.
const SIZES: [u64; 2] = [1 << 30, 2 << 30];

/// The samples of one type of file system.
#[derive(Default)]
struct Samples {
    restore: Vec<f64>,
    restore_bare: Vec<f64>,
    grow: Vec<f64>,
    grow_bare: Vec<f64>,
}

pub(super) async fn measure(
    contestant: &Contestant,
    latency: Option<Latency>,
    extent: Extent,
) -> Result<Vec<Figure>> {
    let testbed = Testbed::make(contestant, latency).await?;
    let measured = both(&testbed, extent.of(2, 50, 50)).await;
    testbed.end().await?;
    measured
}

async fn both(testbed: &Testbed, rounds: usize) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for kind in [FsType::Ext4, FsType::Xfs] {
        let name = format!("pvc-restore-{}", kind.as_str());
        let device = testbed.bare(&name)?;
        let mut samples = Samples::default();
        for round in 0..=rounds {
            // The driver examines a copy once for each attachment.
            let attached = testbed.attach(&format!("{name}-{round}"), kind.as_str()).await?;
            through_driver(testbed, attached, kind, &mut samples).await?;
            without_driver(&device, kind, &mut samples)?;
            if round == 0 {
                // The first round warms up and is not counted.
                samples = Samples::default();
            }
        }
        figures.extend(of_kind(kind, samples));
    }
    Ok(figures)
}

async fn through_driver(
    testbed: &Testbed,
    attached: Attached,
    kind: FsType,
    samples: &mut Samples,
) -> Result<()> {
    let device = testbed.device(&attached)?;
    let Attached { volume, mut attachment } = attached;
    attachment.insert(ORIGIN.to_owned(), SNAPSHOT.to_owned());
    format(&device, kind)?;
    for (size, samples) in SIZES.into_iter().zip([&mut samples.restore, &mut samples.grow]) {
        resize(&device, size)?;
        testbed.kubelet.stage(&volume, &attachment).await?;
        samples.extend(testbed.duration_of("NodeStageVolume").map(millis));
        testbed.kubelet.unstage(&volume).await?;
    }
    // Gives the memory back.
    Ok(blank(&device)?)
}

fn without_driver(device: &LoopDevice, kind: FsType, samples: &mut Samples) -> Result<()> {
    resize(device.node(), SIZES[0])?;
    blank(device.node())?;
    format(device.node(), kind)?;
    let restore = device.check(kind)? + device.mount(kind)?;
    device.unmount()?;
    resize(device.node(), SIZES[1])?;
    let grow = device.mount_and_grow(kind)?;
    device.unmount()?;
    samples.restore_bare.push(millis(restore));
    samples.grow_bare.push(millis(grow));
    Ok(())
}

fn of_kind(kind: FsType, samples: Samples) -> [Figure; 2] {
    let fs = kind.as_str();
    let (check, grow) = match kind {
        FsType::Xfs => ("xfs_repair -n", "mount(2), xfs_growfs"),
        _ if grows_ext_mounted() => ("e2fsck -f -p", "mount(2), resize2fs"),
        _ => ("e2fsck -f -p", "e2fsck -f -p, resize2fs, mount(2)"),
    };
    let figure = |key: &str, title: &str| {
        Figure::new(&format!("node-{key}-{fs}"), &format!("{title}, {fs}"), "ms")
    };
    [
        figure("restore", "first stage of a copy of somebody else's volume")
            .row(Role::Ours, "driver", samples.restore)
            .row(Role::Bound, &format!("bare: {check}, mount(2)"), samples.restore_bare),
        figure("grow", "stage of a volume that has grown from 1 to 2 GiB")
            .row(Role::Ours, "driver", samples.grow)
            .row(Role::Bound, &format!("bare: {grow}"), samples.grow_bare),
    ]
}
