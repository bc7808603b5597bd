//! Load like that of the sidecars: a queue, workers, a deadline for each call, and exponential
//! backoff that occupies no worker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ebs_csi_sandbox::co::{Claim, RetryPolicy};
use ebs_csi_sandbox::{Co, CoError, World};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::contestant::PER_INSTANCE;
use crate::error::{BenchError, Result};
use crate::world::{instance, join_all};

/// HTTP/2 streams per connection: a sidecar with 100 workers uses so many.
const PER_CHANNEL: usize = 100;

/// The longest wait between two attempts, as in the sidecars.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, Debug)]
pub(super) struct EndedCall {
    /// The begin of the first attempt, when a worker was free.
    pub(super) began: Instant,
    /// The end of the last attempt.
    pub(super) ended: Instant,
    pub(super) queued: Instant,
    pub(super) attempts: u32,
}

impl EndedCall {
    /// Returns the seconds from the first attempt to the end.
    pub(super) fn seconds(&self) -> f64 {
        (self.ended - self.began).as_secs_f64()
    }

    pub(super) fn seconds_queued(&self) -> f64 {
        (self.ended - self.queued).as_secs_f64()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Workers {
    free: Arc<Semaphore>,
}

impl Workers {
    pub(super) fn new(number: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(number)) }
    }

    /// Repeats `call` until it succeeds, at most twelve times; an error without a gRPC code is
    /// final. The semaphore is fair: callers are served in order of arrival.
    pub(super) async fn run<T, F>(&self, mut call: impl FnMut() -> F) -> Result<(T, EndedCall)>
    where
        F: Future<Output = Result<T, CoError>>,
    {
        let queued = Instant::now();
        let mut began = None;
        let mut wait = Duration::from_secs(1);
        for attempts in 1.. {
            let worker = self.free.acquire().await?;
            let began = *began.get_or_insert_with(Instant::now);
            let answer = call().await;
            drop(worker);
            match answer {
                Ok(answer) => {
                    let ended = Instant::now();
                    let done = EndedCall { began, ended, queued, attempts };
                    return Ok((answer, done));
                }
                Err(e) if e.code().is_none() || attempts >= 12 => return Err(e.into()),
                Err(_) => {
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(LONGEST_WAIT);
                }
            }
        }
        Err("attempts are endless".into())
    }
}

/// As many connections to a controller as the workers need.
#[derive(Clone, Debug)]
pub(super) struct Sidecars {
    channels: Vec<Co>,
}

impl Sidecars {
    /// Opens connections for `workers` workers of each kind.
    pub(super) fn new(world: &World, workers: usize) -> Result<Self> {
        let channels = (0..workers.div_ceil(PER_CHANNEL).max(1))
            .map(|_| {
                let mut co = world.co()?;
                co.provisioner = RetryPolicy::PROVISIONER.once();
                co.attacher = RetryPolicy::ATTACHER.once();
                Ok(co)
            })
            .collect::<Result<_, CoError>>()?;
        Ok(Self { channels })
    }

    /// Returns the connection for item `index`.
    pub(super) fn of(&self, index: usize) -> &Co {
        &self.channels[index % self.channels.len()]
    }
}

/// Returns the claim of the load: 4 GiB of gp3.
pub(super) fn claim(index: usize) -> Claim {
    Claim::filesystem(&format!("pvc-{index:08}"), "ext4", 4).parameter("type", "gp3")
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) create: EndedCall,
    pub(super) attach: EndedCall,
}

/// Creates and attaches `volumes` volumes in order, each as soon as one of `workers` creators and
/// one of as many attachers is free; distributes the volumes over the instances in turn. Returns
/// also how many seconds that took.
pub(super) async fn create_and_attach(
    world: &World,
    workers: usize,
    volumes: usize,
) -> Result<(Vec<Pair>, f64)> {
    let sidecars = Sidecars::new(world, workers)?;
    let (creators, attachers) = (Workers::new(workers), Workers::new(workers));
    let instances = volumes.div_ceil(PER_INSTANCE);
    let began = Instant::now();
    let tasks = (0..volumes).map(|index| {
        let (co, creators, attachers) =
            (sidecars.of(index).clone(), creators.clone(), attachers.clone());
        tokio::spawn(async move {
            let claim = claim(index);
            let (volume, create) = creators.run(|| co.create(&claim)).await?;
            let node = instance(index % instances);
            let (_, attach) = attachers.run(|| co.attach(&volume, &node)).await?;
            Ok::<_, BenchError>(Pair { create, attach })
        })
    });
    let pairs = join_all(tasks.collect()).await?;
    Ok((pairs, began.elapsed().as_secs_f64()))
}

/// Returns for each call how many seconds later it ended than its place in the queue implies: the
/// n-th call to begin should be the n-th to end.
pub(super) fn delays_behind_place(calls: &[EndedCall]) -> Vec<f64> {
    let mut by_begin: Vec<&EndedCall> = calls.iter().collect();
    by_begin.sort_by_key(|call| call.began);
    let mut ends: Vec<Instant> = calls.iter().map(|call| call.ended).collect();
    ends.sort();
    by_begin
        .iter()
        .zip(ends)
        .map(|(call, place)| call.ended.saturating_duration_since(place).as_secs_f64())
        .collect()
}

/// Returns the percentage of an action's calls that EC2 throttled, from its counts by action.
pub(super) fn throttled_share(actions: &Value, action: &str) -> f64 {
    let of = |what: &str| actions[action][what].as_f64().unwrap_or(0.0);
    100.0 * of("throttled") / of("calls").max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overtaken_call_reports_delay_against_queue_order() {
        let zero = Instant::now();
        let call = |began: u64, ended: u64| EndedCall {
            queued: zero,
            began: zero + Duration::from_secs(began),
            ended: zero + Duration::from_secs(ended),
            attempts: 1,
        };
        assert_eq!(delays_behind_place(&[call(0, 5), call(1, 6), call(2, 7)]), [0.0; 3]);
        assert_eq!(delays_behind_place(&[call(0, 9), call(1, 5), call(2, 6)]), [4.0, 0.0, 0.0]);
    }

    #[tokio::test(start_paused = true)]
    async fn single_worker_serves_retried_and_other_call() {
        let workers = Workers::new(1);
        let refused = || CoError::Refused {
            rpc: "CreateVolume",
            code: tonic::Code::Aborted,
            message: String::new(),
            attempts: 1,
            elapsed: Duration::ZERO,
        };
        let mut answers = vec![Ok(()), Err(refused())];
        let slow = workers.run(|| std::future::ready(answers.pop().unwrap_or(Ok(()))));
        let quick = workers.run(|| std::future::ready(Ok::<_, CoError>(())));
        let (slow, quick) = tokio::join!(slow, quick);
        let (slow, quick) = (slow.unwrap().1, quick.unwrap().1);
        assert_eq!((slow.attempts, quick.attempts), (2, 1));
    }
}
