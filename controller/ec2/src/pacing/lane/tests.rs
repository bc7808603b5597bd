use std::time::Duration;

use super::*;

/// Creates a lane; its bucket keeps one second's refill in reserve.
fn lane(capacity: f64, refill: f64, most: usize) -> Arc<Lane> {
    Arc::new(Lane::new(
        Action::AttachVolume,
        Rate { capacity, refill },
        Ceiling::Start,
        most,
        Instant::now(),
    ))
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

/// Takes a place and waits for its turn in another task.
fn spawn_turn(lane: &Arc<Lane>) -> tokio::task::JoinHandle<Result<(), Ec2Error>> {
    let place = lane.take_place();
    tokio::spawn(async move { place.wait_for_turn(far()).await.map(drop) })
}

async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn turns_follow_arrival_order_at_bucket_rate() {
    let lane = lane(4.0, 1.0, 100);
    let start = Instant::now();
    let (report, mut order) = tokio::sync::mpsc::unbounded_channel();
    for n in 0..20u64 {
        let (lane, report) = (Arc::clone(&lane), report.clone());
        tokio::spawn(async move {
            let place = lane.take_place();
            let permit = place.wait_for_turn(far()).await.unwrap();
            report.send((n, start.elapsed().as_secs_f64())).unwrap();
            drop(permit);
        });
        settle().await;
    }
    drop(report);
    let mut seen = Vec::new();
    while let Some(entry) = order.recv().await {
        seen.push(entry);
    }
    assert_eq!(seen.iter().map(|(n, _)| *n).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
    // 3 at once (4 less the reserve of 1), then one each second.
    assert!((seen[19].1 - 17.0).abs() < 0.1, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_are_under_way_than_allowed() {
    let lane = lane(1000.0, 100.0, 2);
    let (first, second) = (lane.take_place(), lane.take_place());
    let held = first.wait_for_turn(far()).await.unwrap();
    let _also = second.wait_for_turn(far()).await.unwrap();
    let third = lane.take_place();
    let late = third.wait_for_turn(Instant::now() + Duration::from_secs(1)).await;
    assert!(late.is_err());
    drop(held);
    assert!(third.wait_for_turn(far()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn abandoned_turn_does_not_delay_next_caller() {
    let lane = lane(4.0, 1.0, 100);
    for _ in 0..3 {
        drop(lane.take_place().wait_for_turn(far()).await.unwrap());
    }
    let impatient = spawn_turn(&lane);
    settle().await;
    let patient = spawn_turn(&lane);
    settle().await;
    let start = Instant::now();
    impatient.abort();
    patient.await.unwrap().unwrap();
    assert!(start.elapsed() <= Duration::from_millis(1100), "{:?}", start.elapsed());
    assert_eq!(lane.level(Instant::now()).waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn a_throttled_call_keeps_its_place() {
    let lane = lane(4.0, 1.0, 100);
    let early = lane.take_place();
    let permit = early.wait_for_turn(far()).await.unwrap();
    // Tokens are left, so this one passes at once.
    spawn_turn(&lane).await.unwrap().unwrap();
    permit.end(CallOutcome::Throttled);
    let newcomer = spawn_turn(&lane);
    settle().await;
    let _turn = early.wait_for_turn(far()).await.unwrap();
    assert!(!newcomer.is_finished());
    newcomer.await.unwrap().unwrap();
}

/// A turn is near when its estimated time is at most 2 seconds away.
#[tokio::test(start_paused = true)]
async fn distant_turn_waits_until_near() {
    let lane = lane(4.0, 1.0, 100);
    let start = Instant::now();
    let places: Vec<_> = (0..8).map(|_| lane.take_place()).collect();
    let mut near = Vec::new();
    // Three tokens are there, and two more come within 2 s.
    for place in &places[..5] {
        near.push(place.wait_until_near(far()).await.unwrap() - start);
    }
    assert_eq!(near, [0, 0, 0, 1, 2].map(Duration::from_secs));
    assert_eq!(places[5].estimated_wait(), Duration::from_secs(3));
    let soon = start + Duration::from_millis(100);
    let sixth = places[5].wait_until_near(soon).await.unwrap_err();
    assert_eq!(sixth.kind, crate::Ec2ErrorKind::Deadline);
    for place in &places[..3] {
        drop(place.wait_for_turn(far()).await.unwrap());
    }
    // Two callers are left before this one; three more tokens, counted from 0.1 s, take 3 s.
    let turn = places[5].wait_until_near(far()).await.unwrap() - start;
    assert!((3100..3110).contains(&turn.as_millis()), "{turn:?}");
    let waited = start.elapsed().as_millis();
    assert!((1100..1110).contains(&waited), "{waited} ms");
}

#[tokio::test(start_paused = true)]
async fn dropped_queue_places_advance_next_caller_at_once() {
    let lane = lane(4.0, 1.0, 100);
    let places: Vec<_> = (0..6).map(|_| lane.take_place()).collect();
    for place in &places[..5] {
        place.wait_until_near(far()).await.unwrap();
    }
    let last = lane.take_place();
    let waits = {
        let lane = Arc::clone(&lane);
        tokio::spawn(async move {
            let at = last.wait_until_near(far()).await.unwrap();
            (at, lane.level(Instant::now()).waiting)
        })
    };
    settle().await;
    assert!(!waits.is_finished());
    drop(places);
    let (at, waiting) = waits.await.unwrap();
    assert_eq!((at, waiting), (Instant::now(), 0));
}

#[tokio::test(start_paused = true)]
async fn unsent_call_returns_its_token() {
    let lane = lane(4.0, 1.0, 100);
    for _ in 0..10 {
        lane.take_place().wait_for_turn(far()).await.unwrap().end(CallOutcome::NotSent);
    }
    assert_eq!(lane.level(Instant::now()).tokens, 3.0);
}
