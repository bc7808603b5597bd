use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_smithy_http_client::tls::TlsContext;
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use tokio::task::JoinHandle;

use super::*;
use crate::calls::Action;
use crate::error::Sent;
use crate::sdk::connector::ByScheme;
use crate::sdk::settings::Ec2Settings;

/// A source that answers from memory after a delay, and records the questions.
#[derive(Default)]
struct Memory {
    state: Mutex<Remembered>,
    calls: AtomicUsize,
}

#[derive(Default)]
struct Remembered {
    values: BTreeMap<u32, u64>,
    asked: Vec<(Instant, Vec<u32>)>,
    failures: VecDeque<Ec2ErrorKind>,
    latency: Duration,
}

impl Memory {
    fn with<T>(&self, f: impl FnOnce(&mut Remembered) -> T) -> T {
        f(&mut self.state.lock().unwrap())
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    fn set_at(self: &Arc<Self>, at: Instant, key: u32, value: u64) {
        let memory = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep_until(at).await;
            memory.with(|m| m.values.insert(key, value));
        });
    }
}

impl Source for Arc<Memory> {
    type Key = u32;
    type Value = u64;
    const ACTION: Action = Action::DescribeVolumes;

    async fn fetch(
        &self,
        keys: &[u32],
        _: Instant,
    ) -> Result<BTreeMap<u32, LookResult<u64>>, Ec2Error> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let (latency, failure, answer) = self.with(|memory| {
            memory.asked.push((Instant::now(), keys.to_vec()));
            let found = keys
                .iter()
                .filter_map(|key| Some((*key, LookResult::Present(*memory.values.get(key)?))));
            (memory.latency, memory.failures.pop_front(), found.collect())
        });
        tokio::time::sleep(latency).await;
        match failure {
            Some(kind) => Err(Ec2Error::new(kind, Self::ACTION, Sent::Answered, "")),
            None => Ok(answer),
        }
    }
}

fn poller() -> (Poller<Arc<Memory>>, Arc<Memory>) {
    let config = aws_sdk_ec2::Config::builder()
        .behavior_version(aws_sdk_ec2::config::BehaviorVersion::latest())
        .http_client(SharedHttpClient::new(ByScheme::new(TlsContext::default())))
        .build();
    let client = aws_sdk_ec2::Client::from_conf(config);
    let core = Arc::new(Core::new(client, None, Ec2Settings::default(), Arc::new(())));
    let rate = Action::DescribeVolumes.documented_rate();
    let budget = Arc::new(Budget::new(rate, Instant::now()));
    let memory = Arc::new(Memory::default());
    memory.with(|m| m.latency = Duration::from_millis(100));
    (Poller::new(Arc::clone(&memory), core, budget), memory)
}

fn after(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

fn spawn_look(
    poller: &Poller<Arc<Memory>>,
    key: u32,
    needed: Option<Instant>,
) -> JoinHandle<LookResult<u64>> {
    let poller = poller.clone();
    tokio::spawn(async move { poller.look(&key, needed, after(60)).await.result })
}

fn until_present(look: &DatedLook<u64>) -> Option<u64> {
    look.result.present().copied()
}

#[track_caller]
fn assert_unknown(look: LookResult<u64>, kind: Ec2ErrorKind) {
    assert_eq!(look.known().unwrap_err().kind, kind);
}

#[tokio::test(start_paused = true)]
async fn idle_poller_calls_at_once_then_stays_silent() {
    let (poller, memory) = poller();
    memory.with(|m| m.values.insert(1, 10));
    let start = Instant::now();
    assert_eq!(poller.look(&1, None, after(60)).await.result.present(), Some(&10));
    assert_eq!(start.elapsed(), Duration::from_millis(100));
    assert!(matches!(poller.look(&2, None, after(60)).await.result, LookResult::Absent));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(memory.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn simultaneous_looks_for_150_keys_share_1_call() {
    let (poller, memory) = poller();
    for key in 0..150 {
        memory.with(|m| m.values.insert(key, u64::from(key)));
    }
    let looks: Vec<_> = (0..300).map(|n| spawn_look(&poller, n % 150, None)).collect();
    for (n, look) in looks.into_iter().enumerate() {
        assert_eq!(look.await.unwrap().present(), Some(&(n as u64 % 150)));
    }
    assert_eq!(memory.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn call_under_way_does_not_serve_later_look() {
    let (poller, memory) = poller();
    memory.with(|m| m.values.insert(1, 1));
    let early = spawn_look(&poller, 1, None);
    tokio::time::sleep(Duration::from_millis(50)).await;
    // The first call is under way with the old value.
    memory.with(|m| m.values.insert(1, 2));
    let late = poller.look(&1, None, after(60)).await.result;
    assert_eq!(early.await.unwrap().present(), Some(&1));
    assert_eq!(late.present(), Some(&2));
}

#[tokio::test(start_paused = true)]
async fn keys_beyond_filter_limit_are_split_without_repeats() {
    let (poller, memory) = poller();
    let looks: Vec<_> = (0..950).map(|key| spawn_look(&poller, key, None)).collect();
    for look in looks {
        assert!(matches!(look.await.unwrap(), LookResult::Absent));
    }
    let asked = memory.with(|m| m.asked.clone());
    assert_eq!(asked.len(), 5);
    let mut keys: Vec<u32> = asked.into_iter().flat_map(|(_, keys)| keys).collect();
    keys.sort_unstable();
    assert_eq!(keys, (0..950).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn large_looks_15_ms_apart_share_1_call() {
    let (poller, memory) = poller();
    let keys: Vec<u32> = (0..150).collect();
    let look_all_after = |delay| {
        let (poller, keys) = (poller.clone(), keys.clone());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(delay)).await;
            let pending = poller.queue_looks(&keys);
            await_answers::<Arc<Memory>>(pending, after(60)).await.len()
        })
    };
    let start = Instant::now();
    let (one, two) = (look_all_after(0), look_all_after(15));
    assert_eq!((one.await.unwrap(), two.await.unwrap()), (150, 150));
    assert_eq!(memory.calls(), 1);
    assert_eq!(start.elapsed(), Duration::from_millis(120));
    // Further such questions, each before the last one is sent, do not delay the call again and
    // again.
    let looks: Vec<_> = (0..10).map(|number| look_all_after(15 * number)).collect();
    for look in looks {
        look.await.unwrap();
    }
    let begun = memory.with(|m| m.asked[1].0);
    assert_eq!(begun - start, Duration::from_millis(140));
}

/// Transient errors are retried; a missing permission or lasting server errors end the look as
/// unknown.
#[tokio::test(start_paused = true)]
async fn failed_call_makes_no_key_absent_and_retries() {
    let (poller, memory) = poller();
    memory.with(|m| {
        m.values.insert(1, 1);
        m.failures = VecDeque::from([
            Ec2ErrorKind::ServerError,
            Ec2ErrorKind::Throttled,
            Ec2ErrorKind::Unreadable,
        ]);
    });
    assert_eq!(poller.look(&1, None, after(60)).await.result.present(), Some(&1));
    memory.with(|m| m.failures = VecDeque::from([Ec2ErrorKind::Unauthorized]));
    assert_unknown(poller.look(&1, None, after(60)).await.result, Ec2ErrorKind::Unauthorized);
    memory.with(|m| m.failures = std::iter::repeat_n(Ec2ErrorKind::ServerError, 100).collect());
    let start = Instant::now();
    assert_unknown(poller.look(&1, None, after(60)).await.result, Ec2ErrorKind::ServerError);
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn throttled_look_retries_with_backoff_until_deadline() {
    let (poller, memory) = poller();
    memory.with(|m| m.failures = std::iter::repeat_n(Ec2ErrorKind::Throttled, 10_000).collect());
    assert_unknown(poller.look(&1, None, after(120)).await.result, Ec2ErrorKind::Throttled);
    assert!(memory.calls() < 150);
}

#[tokio::test(start_paused = true)]
async fn watch_delivers_answers_until_callback_breaks() {
    let (poller, memory) = poller();
    memory.with(|m| m.latency = Duration::from_millis(5));
    memory.set_at(after(2), 1, 7);
    let start = Instant::now();
    let mut absent = 0;
    let watch = poller.watch(&1, None, Duration::ZERO, after(60), |look| {
        absent += u32::from(matches!(look.result, LookResult::Absent));
        until_present(look)
    });
    assert_eq!(watch.await, Some(7));
    // Seen within one poll of the change, and not without calls.
    assert!(start.elapsed() < Duration::from_millis(2120), "{:?}", start.elapsed());
    assert!((15..40).contains(&absent), "{absent}");
}

/// With answers that take 400 ms, a change is seen within 270 ms plus one answer.
#[tokio::test(start_paused = true)]
async fn watch_keeps_polling_during_slow_answers() {
    let (poller, memory) = poller();
    memory.with(|m| m.latency = Duration::from_millis(400));
    memory.set_at(after(2), 1, 7);
    let start = Instant::now();
    let watch = poller.watch(&1, None, Duration::ZERO, after(60), until_present);
    assert_eq!(watch.await, Some(7));
    // Less than the time of an answer, plus the answer itself.
    assert!(start.elapsed() < Duration::from_millis(2000 + 270 + 400), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn watch_ends_at_deadline_and_stops_polling() {
    let (poller, memory) = poller();
    let ended: Option<()> = poller.watch(&1, None, Duration::ZERO, after(5), |_| None::<()>).await;
    assert_eq!(ended, None);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let calls = memory.calls();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(memory.calls(), calls);
}

/// 1,500 watches share the calls, and each key is still queried within 30 seconds.
#[tokio::test(start_paused = true)]
async fn long_watches_take_at_most_half_of_refill() {
    let (poller, memory) = poller();
    for key in 0..1500u32 {
        let poller = poller.clone();
        tokio::spawn(async move {
            poller.watch(&key, None, Duration::ZERO, after(300), |_| None::<()>).await
        });
    }
    tokio::time::sleep(Duration::from_secs(280)).await;
    let calls = memory.calls();
    // 10 a second is half of DescribeVolumes' 20; the burst is a third of its bucket.
    assert!(calls <= 2800 + 40, "{calls}");
    // All keys are asked for in turn: none starves.
    let asked = memory.with(|m| m.asked.clone());
    let late = Instant::now() - Duration::from_secs(30);
    let keys: std::collections::BTreeSet<u32> =
        asked.into_iter().filter(|(at, _)| *at >= late).flat_map(|(_, keys)| keys).collect();
    assert_eq!(keys.len(), 1500);
}

/// The changes take about the same time each.
#[tokio::test(start_paused = true)]
async fn changes_of_usual_duration_are_polled_when_due() {
    let (poller, memory) = poller();
    memory.with(|m| m.latency = Duration::from_millis(30));
    let random = crate::pacing::random::Random::new(1);
    let mut late = Vec::new();
    let mut calls = 0;
    for key in 0..60u32 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        if key == 30 {
            calls = memory.calls();
        }
        let end = Instant::now() + Duration::from_millis(2000 + random.number() % 200);
        memory.set_at(end, key, 1);
        let watch = poller.watch(&key, None, Duration::ZERO, after(600), until_present);
        assert!(watch.await.is_some());
        late.push((end.elapsed() - Duration::from_millis(30)).as_millis());
    }
    let calls = memory.calls() - calls;
    late.drain(..30);
    late.sort_unstable();
    println!("{late:?} ms, {calls} calls");
    // A poll every 80 ms, as for changes of unknown length, would make 27 calls for each change and
    // see it 40 ms late.
    assert!(calls <= 30 * 15 && late[15] <= 30, "{calls} {late:?}");
}

/// Simulates six concurrent callers, each with a look before most of its watches. Changes take 0.5
/// to 4 s, as in EC2, and answers take 30 ms. The three kinds of change alternate. Returns how late
/// each end was seen, in milliseconds beyond the time of the answer itself, and the calls per
/// second.
async fn watch_many_changes(seed: u64) -> (Vec<u128>, f64) {
    let (poller, memory) = poller();
    memory.with(|m| m.latency = Duration::from_millis(30));
    let random = Arc::new(crate::pacing::random::Random::new(seed));
    let kinds: [Arc<DurationEstimate>; 3] = Default::default();
    let begin = Instant::now();
    let callers: Vec<_> = (0..6u32)
        .map(|caller| {
            let (poller, memory, random, kinds) =
                (poller.clone(), Arc::clone(&memory), Arc::clone(&random), kinds.clone());
            tokio::spawn(async move {
                let mut late = Vec::new();
                for turn in 0..30u32 {
                    let key = caller * 1000 + turn;
                    if turn % 3 != 0 {
                        poller.look(&key, None, after(600)).await;
                    }
                    let end = Instant::now() + Duration::from_millis(500 + random.number() % 3500);
                    memory.set_at(end, key, 1);
                    let kind = Some(&kinds[(turn % 3) as usize]);
                    let watch = poller.watch(&key, kind, Duration::ZERO, after(600), until_present);
                    assert!(watch.await.is_some());
                    late.push((end.elapsed() - Duration::from_millis(30)).as_millis());
                }
                late
            })
        })
        .collect();
    let mut late = Vec::new();
    for caller in callers {
        late.extend(caller.await.unwrap());
    }
    late.sort_unstable();
    let calls = memory.calls() as f64;
    (late, calls / begin.elapsed().as_secs_f64())
}

/// The median delay is at most 65 ms and the 99th percentile 180 ms, at no more than 10 calls per
/// second.
#[tokio::test(start_paused = true)]
async fn changes_are_seen_soon_within_half_of_refill() {
    for seed in [1, 2, 3] {
        let (late, rate) = watch_many_changes(seed).await;
        let (median, p99) = (late[late.len() / 2], late[late.len() * 99 / 100]);
        println!("seed {seed}: {median} ms, {p99} ms, {rate} calls a second");
        assert!(median <= 65 && p99 <= 180, "seed {seed}: {median} {p99}");
        // Over the whole run, including the tokens saved before it.
        assert!(rate <= 10.0, "seed {seed}: {rate}");
    }
}

/// A look alone is sent when its answer is needed; an earlier call of another look serves both.
#[tokio::test(start_paused = true)]
async fn look_needed_later_joins_another_call() {
    let (poller, memory) = poller();
    let start = Instant::now();
    let needed = Some(after(2));
    let alone = poller.look(&1, needed, after(60)).await.result;
    assert!(matches!(alone, LookResult::Absent));
    // The call began when the answer was needed, because no earlier answer showed how long answers
    // take.
    assert_eq!(start.elapsed(), Duration::from_millis(2100));
    let calls = memory.calls();
    let needed = Some(after(2));
    let patient = spawn_look(&poller, 1, needed);
    tokio::time::sleep(Duration::from_millis(500)).await;
    poller.look(&2, None, after(60)).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(patient.is_finished());
    assert_eq!(memory.calls(), calls + 1);
}
