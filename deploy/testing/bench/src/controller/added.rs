//! The time that the driver adds to EC2's own.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

use ebs_csi_sandbox::{Co, World};
use serde_json::Value;

use super::load::claim;
use crate::contestant::{Contestant, in_world};
use crate::error::{BenchError, Result};
use crate::extent::Extent;
use crate::report::figure::{Figure, Role, Statistic};
use crate::world::{actions, calls_by_name, instance, join_all};

/// Replies take 30 ms, state transitions 0.5 to 4 s.
const SCENARIO: &str = "profile = \"instant\"\n[latency]\napi_read = { fixed_ms = 30 }\napi_write = { fixed_ms = 30 }\nvolume_create = { uniform_ms = [500, 4000] }\nattach = { uniform_ms = [500, 4000] }\ndetach = { uniform_ms = [500, 4000] }\n";

/// Number of volumes whose life cycles run at the same time.
const AT_ONCE: usize = 6;

/// The shortest time between the request for an attach and the detach. EC2's reads are eventually
/// consistent: during this time, the driver waits for later reads when one shows no attachment,
/// because that read may show the state from before the attach. The measurement would then depend
/// on how short the two transitions happened to be.
const SETTLED: Duration = Duration::from_secs(2);

/// The RPC, the EC2 action behind it, and the target in seconds.
const KINDS: [(&str, &str, f64); 3] = [
    ("create", "CreateVolume", 0.08),
    ("attach", "AttachVolume", 0.12),
    ("detach", "DetachVolume", 0.12),
];

struct Call {
    kind: usize,
    volume: String,
    began: SystemTime,
    ended: SystemTime,
}

/// The times at which EC2's own transitions end, in milliseconds since 1970, by kind and volume.
type Ends = HashMap<(usize, String), i64>;

pub(super) async fn measure(contestants: &[Contestant], extent: Extent) -> Result<Vec<Figure>> {
    let lives = extent.of(2, 60, 60);
    let settling = format!(
        " No volume is detached less than {} s after its attach was asked for: the driver takes no read without the attachment for true before, since reads lag.",
        SETTLED.as_secs()
    );
    let mut figures: Vec<Figure> = KINDS
        .iter()
        .map(|(name, _, target)| {
            Figure::new(&format!("added-{name}"), &format!("time that {name} takes beyond EC2's own"), "s")
                .at_most(Statistic::Median, *target)
                .at_most(Statistic::P99, 0.25)
                .note(format!("{lives} volumes, {AT_ONCE} at once, default request rates; replies in 30 ms, states after 0.5 to 4 s. EC2's own time: from the arrival of the request to the end of the state change, from the simulator's journal and state. The bound is one round trip: the last look that sees the change.{}", if *name == "detach" { &settling } else { "" }))
        })
        .collect();
    let mut polls = Figure::new("added-polls", "Describe requests per second, sustained", "1/s")
        .at_most(Statistic::Greatest, 10.0)
        .note("In the same runs; EC2 refills 20 a second for each Describe action, and half is the target.");
    for contestant in contestants {
        let world = contestant.world(AT_ONCE, SCENARIO).await?;
        let (added, rates) = in_world(world, async |world| watched(world, lives).await).await?;
        for (figure, samples) in figures.iter_mut().zip(added) {
            *figure = figure.clone().row(contestant.role, &contestant.name, samples);
        }
        let (names, rates): (Vec<String>, Vec<f64>) = rates.into_iter().unzip();
        let label = format!("{}: {}", contestant.name, names.join(", "));
        polls = polls.row(contestant.role, &label, rates);
    }
    for figure in &mut figures {
        *figure = figure.clone().row(Role::Bound, "one round trip", vec![0.03]);
    }
    figures.push(polls);
    Ok(figures)
}

/// The added seconds of each kind, and each Describe action's calls per second.
type Watched = (Vec<Vec<f64>>, Vec<(String, f64)>);

async fn watched(world: &World, lives: usize) -> Result<Watched> {
    let began = Instant::now();
    let working = async {
        let mut workers = Vec::new();
        for worker in 0..AT_ONCE {
            workers.push(tokio::spawn(run_life_cycles(world.co()?, worker, lives)));
        }
        Ok::<_, BenchError>(join_all(workers).await?.into_iter().flatten())
    };
    let mut ends = Ends::new();
    let calls = tokio::select! {
        calls = working => calls?,
        never = watch(world, &mut ends) => return Err(never),
    };
    let seconds = began.elapsed().as_secs_f64();
    let arrivals = arrivals(world).await?;
    let mut added = vec![Vec::new(); KINDS.len()];
    for call in calls {
        let key = (call.kind, call.volume);
        // A transition that ended before [`watch`] saw it gives no sample.
        if let Some((arrived, end)) = arrivals.get(&key).zip(ends.get(&key)) {
            let whole = call.ended.duration_since(call.began).unwrap_or_default();
            let own = Duration::from_millis(u64::try_from(end - arrived).unwrap_or(0));
            added[call.kind].push(whole.as_secs_f64() - own.as_secs_f64());
        }
    }
    let actions = actions(world).await?;
    let polls = calls_by_name(&actions, "Describe");
    let polls = polls.map(|(action, calls)| (action.clone(), calls / seconds)).collect();
    Ok((added, polls))
}

async fn run_life_cycles(co: Co, worker: usize, lives: usize) -> Result<Vec<Call>> {
    let node = instance(worker);
    let mut calls = Vec::new();
    for index in (worker..lives).step_by(AT_ONCE) {
        let began = SystemTime::now();
        let volume = co.create(&claim(index)).await?;
        let created = SystemTime::now();
        let settled = tokio::time::Instant::now() + SETTLED;
        co.attach(&volume, &node).await?;
        let attached = SystemTime::now();
        tokio::time::sleep_until(settled).await;
        let unwanted = SystemTime::now();
        co.detach(&volume.id, &node).await?;
        let detached = SystemTime::now();
        co.delete(&volume.id).await?;
        let times = [(began, created), (created, attached), (unwanted, detached)];
        calls.extend(times.into_iter().enumerate().map(|(kind, (began, ended))| Call {
            kind,
            volume: volume.id.clone(),
            began,
            ended,
        }));
    }
    Ok(calls)
}

/// Polls the simulator's state and records when transitions will end.
async fn watch(world: &World, ends: &mut Ends) -> BenchError {
    loop {
        match world.simulator.get("/v1/state").await {
            Ok(state) => record_ends(&state, ends),
            Err(e) => return e.into(),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn record_ends(state: &Value, ends: &mut Ends) {
    match state {
        Value::Object(fields) => {
            if let (Some(id), Some(life)) =
                (fields.get("id").and_then(Value::as_str), fields.get("life"))
            {
                let mut add = |kind: usize, until: &Value| {
                    if let Some(until) = until.as_i64() {
                        ends.insert((kind, id.to_owned()), until);
                    }
                };
                if life["at"] == "creating" {
                    add(0, &life["until"]);
                }
                for attachment in
                    fields.get("attachments").and_then(Value::as_array).into_iter().flatten()
                {
                    let phase = &attachment["phase"];
                    match phase["at"].as_str() {
                        Some("attaching") => add(1, &phase["until"]),
                        Some("detaching") => add(2, &phase["until"]),
                        _ => {}
                    }
                }
                return;
            }
            fields.values().for_each(|inner| record_ends(inner, ends));
        }
        Value::Array(items) => items.iter().for_each(|inner| record_ends(inner, ends)),
        _ => {}
    }
}

/// Returns the arrival times of the requests that began the transitions.
async fn arrivals(world: &World) -> Result<Ends> {
    let mut found = Ends::new();
    for record in world.simulator.journal(0).await? {
        let Some(kind) = KINDS.iter().position(|(_, action, _)| record["action"] == *action) else {
            continue;
        };
        let id = match kind {
            0 => &record["effects"][0],
            _ => &record["parameters"]["VolumeId"],
        };
        let at = record["at"].as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok());
        if let (Some(id), Some(at), true) = (id.as_str(), at, record["code"].is_null()) {
            found.entry((kind, id.to_owned())).or_insert(at.as_millisecond());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn creating_attaching_and_detaching_end_times_are_collected() {
        let state = json!({"realms": [{"volumes": [
            {"id": "vol-1", "life": {"at": "creating", "until": 7}, "attachments": []},
            {"id": "vol-2", "life": {"at": "ready"}, "attachments": [{"phase": {"at": "attaching", "until": 8}}]},
            {"id": "vol-3", "life": {"at": "ready"}, "attachments": [{"phase": {"at": "detaching", "until": 9}}]},
            {"id": "vol-4", "life": {"at": "deleting", "until": 1}, "attachments": [{"phase": {"at": "attached"}}]},
        ]}]});
        let mut ends = Ends::new();
        record_ends(&state, &mut ends);
        let mut found: Vec<_> = ends.into_iter().collect();
        found.sort();
        let expected = [(0, "vol-1", 7), (1, "vol-2", 8), (2, "vol-3", 9)];
        assert_eq!(found, expected.map(|(kind, id, until)| ((kind, id.to_owned()), until)));
    }
}
