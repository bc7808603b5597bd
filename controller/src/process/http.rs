//! The pages of the HTTP endpoint, with TLS where a certificate is given.

mod tls;

use std::sync::{Arc, Mutex, PoisonError};

use ebs_csi_ec2::{Ec2, LaneLevel};
use ebs_csi_proto::http_endpoint::{self, PlainText, StatusCode};
use tokio::time::Instant;

pub(crate) use tls::CertificateFiles;
use tls::Tls;

use crate::metrics::Metrics;
use crate::process::probe::Probe;

/// Scrapes per second that are answered, and how many at once; further scrapes get status 429.
const RATE: f64 = 5.0;
const BURST: f64 = 10.0;

/// The pages of the endpoint.
#[derive(Debug)]
pub(crate) struct Pages {
    ec2: Ec2,
    metrics: Arc<Metrics>,
    probe: Arc<Probe>,
    limiter: Mutex<RequestLimiter>,
}

impl Pages {
    /// Creates the pages: `/metrics` shows the lanes of the EC2 layer, too, and `/readyz` the
    /// result of the probe.
    pub(crate) fn new(ec2: Ec2, metrics: Arc<Metrics>, probe: Arc<Probe>) -> Self {
        Self { ec2, metrics, probe, limiter: Mutex::new(RequestLimiter::full(Instant::now())) }
    }

    fn try_allow(&self) -> bool {
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        limiter.try_take(Instant::now())
    }

    /// Returns the lanes, each under the name of its action.
    fn lanes(&self) -> Vec<(&'static str, LaneLevel)> {
        let levels = self.ec2.lane_levels().into_iter();
        levels.map(|(action, level)| (action.name(), level)).collect()
    }
}

impl http_endpoint::Pages for Pages {
    async fn metrics(&self) -> Result<String, StatusCode> {
        if !self.try_allow() {
            return Err(StatusCode::TOO_MANY_REQUESTS);
        }
        Ok(self.metrics.encode(&self.lanes()))
    }

    async fn ready(&self) -> Result<(), String> {
        self.probe.unready().map_or(Ok(()), |why| Err(why.to_owned()))
    }
}

/// A token bucket of the requests that may be answered.
#[derive(Debug)]
struct RequestLimiter {
    level: f64,
    at: Instant,
}

impl RequestLimiter {
    fn full(now: Instant) -> Self {
        Self { level: BURST, at: now }
    }

    fn try_take(&mut self, now: Instant) -> bool {
        let refill = now.duration_since(self.at).as_secs_f64() * RATE;
        self.level = (self.level + refill).min(BURST);
        self.at = now;
        let is_allowed = self.level >= 1.0;
        if is_allowed {
            self.level -= 1.0;
        }
        is_allowed
    }
}

/// Starts to serve the pages on the listener, which was bound before the process confined itself.
/// Must run inside a tokio runtime.
///
/// # Errors
/// A text that says why a file cannot be used.
pub(crate) fn start(
    listener: std::net::TcpListener,
    certificate: Option<CertificateFiles>,
    pages: Pages,
) -> Result<(), String> {
    match certificate.map(Tls::new).transpose()? {
        Some(tls) => tokio::spawn(http_endpoint::serve(listener, tls, pages)),
        None => tokio::spawn(http_endpoint::serve(listener, PlainText, pages)),
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn limit_allows_10_requests_then_5_per_second() {
        let start = Instant::now();
        let mut limiter = RequestLimiter::full(start);
        let mut answered = |after_ms: u64, asked: usize| {
            let now = start + Duration::from_millis(after_ms);
            (0..asked).filter(|_| limiter.try_take(now)).count()
        };
        assert_eq!(answered(0, 12), 10);
        assert_eq!(answered(150, 3), 0);
        assert_eq!(answered(1_150, 9), 5);
        assert_eq!(answered(60_000, 30), 10);
    }
}
