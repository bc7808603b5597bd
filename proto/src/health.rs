//! The gRPC health service (`grpc.health.v1.Health`), which kubelet's own gRPC probes call.
//!
//! The service name in the request chooses what is checked: `readiness` checks whether calls can
//! succeed now; the other known names (the empty name and `liveness`) check whether the process
//! answers. A liveness probe therefore never restarts a process because AWS is unreachable.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::codegen::http;
use tonic::server::{Grpc, NamedService};
use tonic::{Request, Response, Status};
use tower::Service;

use crate::failure::Failure;

/// Returns whether calls can succeed now. Called on each check, so it must be cheap.
pub type Ready = Arc<dyn Fn() -> bool + Send + Sync>;
/// As [`Ready`], where the answer comes from another process.
pub type ReadyLater = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = bool> + Send>> + Send + Sync>;

/// The question, by its field numbers in the gRPC health checking protocol.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HealthCheckRequest {
    /// The service to check; empty: the process.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// The answer, by its field numbers in the gRPC health checking protocol.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct HealthCheckResponse {
    /// A [`ServingStatus`].
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub status: i32,
}

/// The protocol's states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ServingStatus {
    /// Never returned here.
    Unknown = 0,
    /// The process serves.
    Serving = 1,
    /// The process does not serve now.
    NotServing = 2,
}

/// The health service.
#[derive(Clone)]
pub struct Health {
    ready: ReadyLater,
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").finish_non_exhaustive()
    }
}

impl Health {
    /// Creates the service with a check for `readiness`.
    pub fn new(ready: Ready) -> Self {
        Self::with_async_check(Arc::new(move || Box::pin(std::future::ready(ready()))))
    }

    /// Creates the service with an asynchronous check for `readiness`.
    pub fn with_async_check(ready: ReadyLater) -> Self {
        Self { ready }
    }

    async fn check(&self, service: &str) -> Result<ServingStatus, Failure> {
        match service {
            "" | "liveness" => Ok(ServingStatus::Serving),
            "readiness" if (self.ready)().await => Ok(ServingStatus::Serving),
            "readiness" => Ok(ServingStatus::NotServing),
            other => Err(Failure::not_found("health service", other)),
        }
    }
}

impl NamedService for Health {
    const NAME: &'static str = "grpc.health.v1.Health";
}

impl Service<http::Request<Body>> for Health {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let health = self.clone();
        Box::pin(async move {
            let path = request.uri().path();
            if path != "/grpc.health.v1.Health/Check" {
                // The protocol allows a server not to offer Watch; a client then polls.
                return Ok(Status::from(Failure::unimplemented(path)).into_http());
            }
            let check = tower::service_fn(move |request: Request<HealthCheckRequest>| {
                let health = health.clone();
                async move {
                    let status = health.check(&request.get_ref().service).await?.into();
                    Ok::<_, Status>(Response::new(HealthCheckResponse { status }))
                }
            });
            Ok(Grpc::new(tonic_prost::ProstCodec::default()).unary(check, request).await)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[tokio::test]
    async fn readiness_follows_the_process_and_liveness_does_not() {
        for (ready, service, expected) in [
            (true, "", Ok(ServingStatus::Serving)),
            (false, "", Ok(ServingStatus::Serving)),
            (false, "liveness", Ok(ServingStatus::Serving)),
            (true, "readiness", Ok(ServingStatus::Serving)),
            (false, "readiness", Ok(ServingStatus::NotServing)),
            (true, "csi.v1.Nothing", Err(Code::NotFound)),
        ] {
            let health = Health::new(Arc::new(move || ready));
            let answer =
                health.check(service).await.map_err(|failure| Status::from(failure).code());
            assert_eq!(answer, expected, "{ready} {service:?}");
        }
    }

    #[tokio::test]
    async fn health_watch_returns_unimplemented() {
        let mut health = Health::new(Arc::new(|| true));
        let request = http::Request::builder()
            .uri("/grpc.health.v1.Health/Watch")
            .body(Body::empty())
            .expect("a request");
        let answer = health.call(request).await.expect("an answer");
        let status = Status::from_header_map(answer.headers()).expect("a status");
        assert_eq!(status.code(), Code::Unimplemented);
    }
}
