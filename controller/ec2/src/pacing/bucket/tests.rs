use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;

use super::*;

mod tokens;

const ATTACH: Rate = Rate { capacity: 50.0, refill: 5.0 };

/// The time of a call to EC2, and the time of EC2's answer back.
const ONE_WAY: Duration = Duration::from_millis(15);
const PAUSE: Duration = Duration::from_millis(75);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Other,
    Arrival(Instant, bool),
    Answer(Instant, bool, bool),
    Again,
    Turn,
}

/// Another user of EC2's bucket: begin and end in seconds, and the time between its calls.
type Other = (u64, u64, Duration);

/// A simulation of EC2's bucket, the driver's bucket that learns from it, and calls that always
/// wait.
struct Simulation {
    ec2: Option<(Rate, Tokens)>,
    ours: Bucket,
    start: Instant,
    /// When each call was accepted.
    accepted: Vec<Instant>,
    throttled: u32,
}

impl Simulation {
    fn new(ec2: Option<Rate>, start: Rate, ceiling: Ceiling) -> Self {
        let now = Instant::now();
        Self {
            ec2: ec2.map(|rate| (rate, Tokens::full(rate.capacity, now))),
            ours: Bucket::new(start, ceiling, now),
            start: now,
            accepted: Vec::new(),
            throttled: 0,
        }
    }

    fn ec2_takes(&mut self, now: Instant) -> bool {
        let Some((rate, tokens)) = &mut self.ec2 else {
            return true;
        };
        tokens.refill(rate.refill, now);
        let takes = tokens.has_one();
        if takes {
            tokens.level -= 1.0;
        }
        takes
    }

    /// Runs until `calls` are accepted or `seconds` are over.
    fn run(&mut self, calls: usize, seconds: u64, other: Option<Other>) {
        let mut random = fractions(7);
        let end = self.start + Duration::from_secs(seconds);
        let mut events = BinaryHeap::from([Reverse((self.start, Event::Turn))]);
        let at = |seconds: u64| self.start + Duration::from_secs(seconds);
        if let Some((from, _, _)) = other {
            events.push(Reverse((at(from), Event::Other)));
        }
        let other_ends = other.map(|(_, to, _)| at(to));
        let (mut queue, mut turn) = (calls, None);
        let mut steps = 0;
        while self.accepted.len() < calls
            && let Some(Reverse((now, event))) = events.pop()
            && now < end
        {
            steps += 1;
            assert!(steps < 1_000_000, "the calls make no progress");
            match event {
                Event::Other => {
                    self.ec2_takes(now);
                    if let Some((_, _, apart)) = other
                        && other_ends.is_some_and(|end| now < end)
                    {
                        let next = now + apart.mul_f64(0.5 + random());
                        events.push(Reverse((next, Event::Other)));
                    }
                }
                Event::Arrival(sent, beyond) => {
                    let takes = self.ec2_takes(now);
                    events.push(Reverse((now + ONE_WAY, Event::Answer(sent, beyond, takes))));
                }
                Event::Answer(sent, beyond, takes) => {
                    let token = if beyond { Token::Probe } else { Token::Estimated };
                    if takes {
                        self.ours.note_end(now, sent, token, CallOutcome::Accepted);
                        self.accepted.push(now);
                    } else {
                        self.ours.note_end(now, sent, token, CallOutcome::Throttled);
                        self.throttled += 1;
                        events.push(Reverse((now + PAUSE, Event::Again)));
                    }
                }
                Event::Again => queue += 1,
                Event::Turn => {}
            }
            while queue > 0 {
                match self.ours.take(now) {
                    Ok(token) => {
                        queue -= 1;
                        let beyond = token == Token::Probe;
                        events.push(Reverse((now + ONE_WAY, Event::Arrival(now, beyond))));
                    }
                    Err(at) => {
                        if turn.is_none_or(|turn| turn <= now || at < turn) {
                            turn = Some(at);
                            events.push(Reverse((at, Event::Turn)));
                        }
                        break;
                    }
                }
            }
        }
    }

    fn seconds(&self) -> f64 {
        let last = self.accepted.last().expect("a call was accepted");
        last.duration_since(self.start).as_secs_f64()
    }

    fn throttled_percent(&self) -> f64 {
        let sent = f64::from(self.throttled) + count(self.accepted.len());
        100.0 * f64::from(self.throttled) / sent
    }

    fn per_second(&self, from: u64, to: u64) -> f64 {
        let within = |at: &&Instant| {
            let second = at.duration_since(self.start).as_secs();
            (from..to).contains(&second)
        };
        count(self.accepted.iter().filter(within).count()) / count((to - from) as usize)
    }
}

#[expect(clippy::cast_precision_loss, reason = "thousands")]
fn count(number: usize) -> f64 {
    number as f64
}

/// Returns random numbers in 0..1.
fn fractions(seed: u64) -> impl FnMut() -> f64 {
    let random = super::super::random::Random::new(seed);
    move || random.fraction()
}

fn drain(bucket: &mut Bucket, now: Instant) -> usize {
    // More than any bucket of these tests grants.
    let tokens = std::iter::from_fn(|| bucket.take(now).ok());
    tokens.take(1000).count()
}

fn rate(capacity: f64, refill: f64) -> Rate {
    Rate { capacity, refill }
}

#[tokio::test(start_paused = true)]
async fn full_bucket_grants_capacity_less_reserve_then_refill() {
    let now = Instant::now();
    let mut bucket = Bucket::new(ATTACH, Ceiling::Start, now);
    assert_eq!(drain(&mut bucket, now), 45);
    let next = bucket.take(now).unwrap_err();
    assert_eq!(next - now, Duration::from_millis(200));
    assert_eq!(bucket.take(next), Ok(Token::Estimated));
    assert_eq!(drain(&mut bucket, now + Duration::from_secs(1000)), 45);
}

#[tokio::test(start_paused = true)]
async fn throttled_burst_empties_bucket_and_keeps_rate() {
    let now = Instant::now();
    let mut bucket = Bucket::new(ATTACH, Ceiling::Open, now);
    assert_eq!(bucket.last_throttle(), None);
    let later = now + Duration::from_millis(50);
    for _ in 0..20 {
        bucket.note_end(later, now, Token::Estimated, CallOutcome::Throttled);
    }
    assert_eq!(bucket.last_throttle(), Some(later));
    assert_eq!(bucket.level(later), 0.0);
    assert_eq!(bucket.refill(), 5.0);
}

#[tokio::test(start_paused = true)]
async fn successive_throttles_lower_rate_and_quiet_restores_it() {
    let mut now = Instant::now();
    let mut bucket = Bucket::new(ATTACH, Ceiling::Start, now);
    for _ in 0..100 {
        let sent = now + Duration::from_millis(300);
        now = sent + Duration::from_millis(50);
        bucket.note_end(now, sent, Token::Estimated, CallOutcome::Throttled);
    }
    let low = bucket.refill();
    assert!((0.25..1.0).contains(&low), "{low}");
    bucket.level(now + Duration::from_secs(60));
    assert_eq!(bucket.refill(), 5.0);
}

/// Accepted calls raise the number beyond the estimate, unknown results do not; after 10 minutes a
/// throttle is forgotten.
#[tokio::test(start_paused = true)]
async fn few_calls_exceed_estimate_and_none_after_throttle() {
    let now = Instant::now();
    let mut bucket = Bucket::new(ATTACH, Ceiling::Open, now);
    // 45 of the estimate and one beyond.
    assert_eq!(drain(&mut bucket, now), 46);
    bucket.note_end(now, now, Token::Probe, CallOutcome::Accepted);
    bucket.note_end(now, now, Token::Estimated, CallOutcome::Accepted);
    assert_eq!(drain(&mut bucket, now), 1);
    bucket.note_end(now, now, Token::Probe, CallOutcome::Accepted);
    assert_eq!(drain(&mut bucket, now), 2);
    bucket.note_end(now, now, Token::Probe, CallOutcome::Unknown);
    assert_eq!(drain(&mut bucket, now), 1, "no answer is no permission");
    bucket.note_end(now, now, Token::Probe, CallOutcome::Throttled);
    assert_eq!(drain(&mut bucket, now), 0);
    let before = now + THROTTLE_REMEMBERED_FOR - Duration::from_millis(1);
    assert_eq!(drain(&mut bucket, before), 45);
    // Of the two calls beyond the estimate, one stays under way for ever in this test.
    bucket.note_end(before, now, Token::Probe, CallOutcome::Unknown);
    assert_eq!(drain(&mut bucket, now + THROTTLE_REMEMBERED_FOR), 1);
}

/// EC2's bucket and the expected result for calls that all wait from the beginning.
struct Burst {
    name: &'static str,
    ec2: Option<Rate>,
    start: Rate,
    calls: usize,
    /// The longest allowed time, as a multiple of the time that EC2's bucket allows.
    times: f64,
    seconds_more: f64,
    /// The largest allowed share of throttled calls, in percent.
    throttled: f64,
}

#[tokio::test(start_paused = true)]
async fn burst_uses_account_rate_with_few_throttles() {
    let (create, attach) = (rate(100.0, 5.0), ATTACH);
    let row = |name, ec2, start, calls, times, seconds_more, throttled| Burst {
        name,
        ec2,
        start,
        calls,
        times,
        seconds_more,
        throttled,
    };
    for row in [
        row("default", Some(attach), attach, 1000, 1.01, 0.0, 0.8),
        row("default", Some(create), create, 1000, 1.01, 0.0, 0.8),
        row("default", Some(attach), attach, 5000, 1.01, 0.0, 0.5),
        row("double", Some(rate(100.0, 10.0)), attach, 1000, 1.03, 0.0, 1.0),
        row("tenfold", Some(rate(500.0, 50.0)), attach, 2000, 1.05, 0.0, 0.9),
        row("tenfold", Some(rate(1000.0, 50.0)), create, 2000, 1.05, 0.0, 1.0),
        row("capacity", Some(rate(500.0, 5.0)), attach, 1000, 1.03, 0.0, 3.0),
        row("refill", Some(rate(50.0, 100.0)), attach, 2000, 3.0, 0.0, 1.0),
        row("half", Some(rate(25.0, 2.5)), attach, 1000, 1.03, 0.0, 5.0),
        row("no limit", None, attach, 2000, 1.0, 4.5, 0.0),
    ] {
        let shortest =
            row.ec2.map_or(0.0, |rate| (count(row.calls) - rate.capacity).max(0.0) / rate.refill);
        let mut simulation = Simulation::new(row.ec2, row.start, Ceiling::Open);
        simulation.run(row.calls, 100_000, None);
        let (seconds, percent) = (simulation.seconds(), simulation.throttled_percent());
        let summary = format!(
            "{} {}: {seconds:.1} s of {shortest:.1}, {percent:.2} % throttled",
            row.name, row.calls
        );
        println!("{summary}");
        assert!(seconds <= shortest * row.times + row.seconds_more, "{summary}");
        assert!(percent <= row.throttled, "{summary}");
    }
}

#[tokio::test(start_paused = true)]
async fn rate_yields_to_second_user_and_recovers() {
    let mut simulation = Simulation::new(Some(ATTACH), ATTACH, Ceiling::Open);
    // The other user takes half of the refill, from the first minute to the third.
    let other = (60, 180, Duration::from_millis(400));
    simulation.run(10_000, 300, Some(other));
    let (alone, shared, again) = (
        simulation.per_second(20, 60),
        simulation.per_second(90, 180),
        simulation.per_second(210, 300),
    );
    let percent = simulation.throttled_percent();
    println!("{alone:.2}, {shared:.2}, {again:.2} a second, {percent:.2} % throttled");
    assert!((4.5..=5.5).contains(&alone), "{alone}");
    assert!((2.25..=2.75).contains(&shared), "{shared}");
    assert!((4.5..=5.5).contains(&again), "{again}");
    assert!(percent < 3.0, "{percent}");
}

proptest! {
    #[test]
    fn granted_calls_never_exceed_ceiling(
        steps in proptest::collection::vec((0u64..2000, 0usize..20, 0u8..4), 1..60),
        most in prop_oneof![Just(None), (10u32..200, 1u32..20).prop_map(Some)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let _guard = runtime.enter();
        let start = Instant::now();
        let mut now = start;
        let most = most.map(|(capacity, refill)| rate(capacity.into(), refill.into()));
        let ceiling = most.map_or(Ceiling::Start, Ceiling::Rate);
        let allowed = most.unwrap_or(ATTACH);
        let mut bucket = Bucket::new(ATTACH, ceiling, now);
        let mut taken = 0.0;
        for (wait, calls, fate) in steps {
            now += Duration::from_millis(wait);
            for _ in 0..calls {
                match bucket.take(now) {
                    Ok(token) => {
                        taken += 1.0;
                        let outcome = match fate {
                            0 => CallOutcome::Throttled,
                            1 => CallOutcome::Unknown,
                            _ => CallOutcome::Accepted,
                        };
                        bucket.note_end(now, now, token, outcome);
                    }
                    Err(at) => prop_assert!(at > now),
                }
            }
            let allowed = allowed.capacity + allowed.refill * (now - start).as_secs_f64();
            prop_assert!(taken <= allowed + 1e-6, "{taken} of {allowed}");
            prop_assert!(bucket.level(now) >= 0.0);
        }
    }
}
