//! A layer around each CSI call that measures its duration and confines a panic to the call.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ebs_csi_proto::{Failure, code_name};
use tokio::time::Instant;
use tonic::service::Routes;
use tonic::{Code, Status};
use tower::{Layer, Service};

use crate::metrics::Metrics;

/// Adds the guard and the metrics to services.
pub fn guarded(routes: Routes, metrics: Arc<Metrics>) -> Routes {
    Routes::from(routes.into_axum_router().layer(Guard { metrics }))
}

#[derive(Clone, Debug)]
struct Guard {
    metrics: Arc<Metrics>,
}

impl<S> Layer<S> for Guard {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { inner, metrics: Arc::clone(&self.metrics) }
    }
}

/// A service behind the guard.
#[derive(Clone, Debug)]
pub struct Guarded<S> {
    inner: S,
    metrics: Arc<Metrics>,
}

impl<S, A, B> Service<http::Request<A>> for Guarded<S>
where
    S: Service<http::Request<A>, Response = http::Response<B>>,
    S::Future: Send + 'static,
    B: Default,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<A>) -> Self::Future {
        let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let metrics = Arc::clone(&self.metrics);
        let started = Instant::now();
        let answer_future = Caught(Box::pin(self.inner.call(request)));
        Box::pin(async move {
            let (answer, code) = match answer_future.await {
                Ok(Ok(response)) => {
                    // A unary error is an answer without a body; its status is in the headers.
                    let code = Status::from_header_map(response.headers())
                        .map_or(Code::Ok, |status| status.code());
                    (Ok(response), code)
                }
                Ok(Err(error)) => (Err(error), Code::Unknown),
                Err(panic) => {
                    tracing::error!(
                        method,
                        panic = panic_text(panic.as_ref()),
                        "a call panicked; the others go on"
                    );
                    // The effect of what the call had begun may exist, so the code must not make a
                    // sidecar forget it.
                    let failure = Failure::pending(format!(
                        "{method} met a fault of the driver, and what it had done by then is not known; the fault is in the controller's log, please report it"
                    ));
                    let status = Status::from(failure);
                    let code = status.code();
                    (Ok(status.into_http()), code)
                }
            };
            // The caller chooses the name of a method that does not exist, so such names must not
            // fill the metrics.
            if code != Code::Unimplemented {
                metrics.rpc(&method, code_name(code), started.elapsed().as_secs_f64());
            }
            answer
        })
    }
}

/// A future that turns a panic into a result.
struct Caught<F>(Pin<Box<F>>);

impl<F: Future> Future for Caught<F> {
    type Output = Result<F::Output, Box<dyn Any + Send>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // After a panic the future is dropped and never polled again; state that it shares is
        // behind locks that survive a panic.
        match catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx))) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without words")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone)]
    struct Panics;

    impl Service<http::Request<()>> for Panics {
        type Response = http::Response<String>;
        type Error = std::convert::Infallible;
        type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: http::Request<()>) -> Self::Future {
            Box::pin(async {
                tokio::task::yield_now().await;
                panic!("on purpose")
            })
        }
    }

    #[tokio::test]
    async fn panic_in_handler_returns_aborted_and_is_counted() {
        let metrics = Arc::new(Metrics::default());
        let mut service = Guard { metrics: Arc::clone(&metrics) }.layer(Panics);
        let request =
            http::Request::builder().uri("/csi.v1.Controller/CreateVolume").body(()).unwrap();
        let response = service.call(request).await.unwrap();
        let status = Status::from_header_map(response.headers()).unwrap();
        // Not final: the effect of what the call had begun may exist.
        assert_eq!(status.code(), Code::Aborted);
        let text = metrics.encode(&[]);
        let labels = r#"{method="CreateVolume",code="Aborted"}"#;
        let line = format!("aws_ebs_csi_rpc_duration_seconds_count{labels} 1");
        assert!(text.contains(&line), "{text}");
    }
}
