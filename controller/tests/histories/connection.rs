//! The connection between one replica and EC2: it is cut when the replica dies, and the replica's
//! clock may be wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use aws_smithy_async::time::TimeSource;
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use ec2_sim::{Delivery, Millis, Reply};

use super::fault_plan::FaultPlan;
use super::known_bug::KnownBug;
use super::seeded_random::SeededRandom;
use crate::world::in_process::{InProcess, deliver};
use ebs_csi_controller::ordered_watch::OrderedWatch;

/// The difference of the signing time, in either direction, that EC2 accepts.
const SIGNED_WITHIN_MS: u64 = 5 * 60 * 1000;

/// A replica's clock: EC2's time plus an error.
#[derive(Clone, Debug)]
pub(crate) struct WrongClock {
    pub(crate) ec2: InProcess,
    pub(crate) ahead_ms: Arc<AtomicI64>,
}

impl TimeSource for WrongClock {
    fn now(&self) -> SystemTime {
        let ms = self.ec2.now().0 + self.ahead_ms.load(Ordering::Relaxed);
        SystemTime::UNIX_EPOCH + Duration::from_millis(ms.unsigned_abs())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) ec2: InProcess,
    pub(crate) faults: Arc<FaultPlan>,
    pub(crate) random: Arc<SeededRandom>,
    pub(crate) is_dead: Arc<OrderedWatch<bool>>,
    /// The bug that the driver seems to have.
    pub(crate) bug: Option<KnownBug>,
}

impl HttpConnector for Connection {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        match self.send(&request) {
            Some(reply) => {
                let is_dead = Arc::clone(&self.is_dead);
                HttpConnectorFuture::new(async move {
                    tokio::select! {
                        biased;
                        _ = is_dead.wait_for(|is_dead| *is_dead) => std::future::pending().await,
                        answer = deliver(reply) => answer,
                    }
                })
            }
            None => HttpConnectorFuture::new(std::future::pending()),
        }
    }
}

impl Connection {
    /// Returns the reply that is on its way, or `None` when the process is dead.
    fn send(&self, request: &HttpRequest) -> Option<Reply> {
        if self.is_dead.get() {
            return None;
        }
        if let Some(reply) = self.refuse_expired(request) {
            return Some(reply);
        }
        let form = request.body().bytes().unwrap_or_default().to_vec();
        if form.starts_with(b"Action=Describe") {
            return Some(self.handle(request, &form));
        }
        let is_killed = !self.faults.is_calm() && self.random.chance(self.faults.crash);
        if is_killed && self.random.chance(0.3) {
            self.kill_process("before", &form);
            return None;
        }
        let reply = self.handle(request, &form);
        if is_killed {
            self.kill_process("after", &form);
            return None;
        }
        Some(reply)
    }

    fn handle(&self, request: &HttpRequest, form: &[u8]) -> Reply {
        let reply = self.ec2.handle(request);
        match self.bug {
            Some(bug) => bug.change(form, reply),
            None => reply,
        }
    }

    fn kill_process(&self, when: &str, form: &[u8]) {
        self.ec2.note(format!("killed {when} {}", String::from_utf8_lossy(form)));
        self.is_dead.set(true);
    }

    /// Returns EC2's answer to a signature that is too old or from the future.
    fn refuse_expired(&self, request: &HttpRequest) -> Option<Reply> {
        let signed = request.headers().get("x-amz-date").and_then(signed_at)?;
        let now = self.ec2.now();
        if now.since(signed).max(signed.since(now)) <= SIGNED_WITHIN_MS {
            return None;
        }
        self.ec2.note("a request of another time".to_owned());
        Some(Reply {
            status: 400,
            content_type: "text/xml;charset=UTF-8",
            request_id: "00000000-0000-0000-0000-000000000000".to_owned(),
            retry_after_ms: None,
            body: b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>RequestExpired</Code><Message>Request has expired.</Message></Error></Errors><RequestID>00000000-0000-0000-0000-000000000000</RequestID></Response>".to_vec(),
            delay_ms: 20,
            delivery: Delivery::Normal,
        })
    }
}

/// Parses a time of the form `20260101T000000Z`.
fn signed_at(header: &str) -> Option<Millis> {
    let part = |from: usize, to: usize| header.get(from..to);
    Millis::parse(&format!(
        "{}-{}-{}T{}:{}:{}Z",
        part(0, 4)?,
        part(4, 6)?,
        part(6, 8)?,
        part(9, 11)?,
        part(11, 13)?,
        part(13, 15)?
    ))
}
