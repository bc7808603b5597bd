//! The time from exec to the first successful Probe.

use crate::contestant::{Contestant, with_echo};
use crate::error::Result;
use crate::extent::Extent;
use crate::report::figure::{Figure, Role, Statistic};
use crate::world::{millis, order};

pub(super) async fn measure(contestants: &[Contestant], extent: Extent) -> Result<Vec<Figure>> {
    let all = with_echo(contestants)?;
    let mut worlds = Vec::new();
    for contestant in &all {
        worlds.push(contestant.world(1, "profile = \"instant\"\n").await?);
    }
    let mut samples = vec![Vec::new(); all.len()];
    for round in 0..extent.of(2, 40, 40) {
        for which in order(round, all.len()) {
            let world = &mut worlds[which];
            world.controller.kill().await?;
            samples[which].push(millis(world.start_controller().await?));
        }
    }
    for world in worlds {
        world.shutdown().await?;
    }
    let mut figure = Figure::new("start", "exec to the first good Probe, EC2 at 0 ms", "ms")
        .at_most(Statistic::Median, 15.0)
        .note("The client tries each half millisecond. The bound is the start of a gRPC server that does nothing, of the same build.");
    for (contestant, samples) in all.iter().zip(samples) {
        figure = figure.row(contestant.role, &contestant.name, samples);
    }
    figure.rows.sort_by_key(|row| row.role != Role::Ours);
    Ok(vec![figure])
}
