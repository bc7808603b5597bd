//! Runs the simulator in the driver's own thread, under virtual time: requests reach the simulator
//! without a socket.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_smithy_async::time::{SharedTimeSource, TimeSource};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use ebs_csi_ec2::{Ec2, Ec2Settings, Surroundings};
use ec2_sim::{Delivery, FaultRule, Millis, Reply, Request, Sim};
use serde_json::Value;
use tokio::time::Instant;

use super::{access_within, scenario};

/// 2026-01-01T00:00:00Z, in milliseconds since the epoch.
const BEGIN: i64 = 1_767_225_600_000;

#[derive(Clone, Copy, Debug)]
struct Clock(Instant);

impl Clock {
    fn millis(self) -> Millis {
        Millis(BEGIN + i64::try_from(self.0.elapsed().as_millis()).unwrap())
    }
}

impl TimeSource for Clock {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(BEGIN.unsigned_abs()) + self.0.elapsed()
    }
}

/// A connection that carries requests to the simulator without a socket, and records them.
#[derive(Clone)]
pub(crate) struct InProcess {
    sim: Arc<Mutex<Sim>>,
    clock: Clock,
    log_lines: Arc<Mutex<Vec<String>>>,
}

impl std::fmt::Debug for InProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InProcess")
    }
}

impl HttpConnector for InProcess {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        HttpConnectorFuture::new(deliver(self.handle(&request)))
    }
}

/// Runs to the end on this thread, under virtual time.
pub(crate) fn block_on<T>(run: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap().block_on(run)
}

/// Delivers the reply to the client after its delay, or an error when the reply is lost.
pub(crate) async fn deliver(reply: Reply) -> Result<HttpResponse, ConnectorError> {
    tokio::time::sleep(Duration::from_millis(reply.delay_ms)).await;
    let lost =
        || ConnectorError::io(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into());
    match reply.delivery {
        Delivery::Normal | Delivery::Slow { .. } => {}
        Delivery::Hang(how_long) => {
            tokio::time::sleep(how_long).await;
            return Err(lost());
        }
        Delivery::Close | Delivery::Reset | Delivery::Short => return Err(lost()),
    }
    let response = http::Response::builder()
        .status(reply.status)
        .header("x-amzn-requestid", reply.request_id)
        .body(SdkBody::from(reply.body))
        .expect("a response");
    Ok(HttpResponse::try_from(response).expect("a response"))
}

impl InProcess {
    /// Returns a simulator with the default scenario, overridden by these settings; its time begins
    /// now. Must be called under paused time.
    pub(crate) fn new(overrides: Value) -> Self {
        let clock = Clock(Instant::now());
        let sim = Sim::new(&scenario(overrides), clock.millis()).expect("a simulator");
        Self { sim: Arc::new(Mutex::new(sim)), clock, log_lines: Arc::default() }
    }

    pub(crate) fn handle(&self, request: &HttpRequest) -> Reply {
        let form = request.body().bytes().unwrap_or_default().to_vec();
        let now = self.clock.millis();
        let line = String::from_utf8_lossy(&form).into_owned();
        let reply = self.sim.lock().unwrap().handle(
            now,
            &Request {
                form,
                authorization: request.headers().get("authorization").map(str::to_owned),
                ..Request::default()
            },
        );
        self.note(format!("{line} {} {:?}", reply.status, reply.delivery));
        reply
    }

    pub(crate) fn note(&self, line: String) {
        let at = self.clock.millis().0 - BEGIN;
        self.log_lines.lock().unwrap().push(format!("{at} {line}"));
    }

    pub(crate) async fn access(&self, seed: u64) -> Ec2 {
        let settings = Ec2Settings { seed, ..Ec2Settings::default() };
        self.access_with(settings).await
    }

    pub(crate) async fn access_with(&self, settings: Ec2Settings) -> Ec2 {
        self.access_by(self.clone(), SharedTimeSource::new(self.clock), settings).await
    }

    pub(crate) async fn access_by(
        &self,
        connector: impl HttpConnector + 'static,
        clock: SharedTimeSource,
        settings: Ec2Settings,
    ) -> Ec2 {
        let connector = SharedHttpConnector::new(connector);
        let surroundings = Surroundings {
            http: Some(http_client_fn(move |_, _| connector.clone())),
            clock,
            ..Surroundings::default()
        };
        access_within("http://ec2.test", settings, surroundings).await
    }

    pub(crate) fn now(&self) -> Millis {
        self.clock.millis()
    }

    /// Acts on the simulator itself, after its state has been brought up to the present.
    pub(crate) fn act<T>(&self, act: impl FnOnce(&mut Sim, Millis) -> T) -> T {
        let now = self.clock.millis();
        let mut sim = self.sim.lock().expect("not poisoned");
        sim.settle(now);
        act(&mut sim, now)
    }

    pub(crate) fn fault(&self, rule: Value) {
        let rule: FaultRule = serde_json::from_value(rule).expect("a rule");
        self.act(|sim, now| sim.faults.add(rule, now));
    }

    /// Returns what exists in EC2 now, and which of EC2's rules were broken.
    pub(crate) fn report(&self) -> Value {
        self.act(|sim, _| sim.invariants.json(sim.realm(), &Value::Null))
    }

    /// Returns the record of requests between the driver and EC2.
    pub(crate) fn log_lines(&self) -> Vec<String> {
        self.log_lines.lock().expect("not poisoned").clone()
    }
}
