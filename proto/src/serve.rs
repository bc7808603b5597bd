//! Serves gRPC services on a bound listener until a stop is requested, then drains.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tonic::service::Routes;
use tonic::transport::Server;
use tower::layer::layer_fn;

use crate::endpoint::Listener;
use crate::observe::Observed;
use crate::program::Exit;

/// Serves `routes` until `stop` resolves, then waits at most `grace` for the calls in flight.
///
/// Must run inside a tokio runtime with I/O and time. A call that is still running after `grace` is
/// cut off; the caller retries it at the next process, which finds the work by its key.
///
/// # Errors
/// When the listener cannot be used or the transport fails.
pub async fn serve(
    listener: Listener,
    routes: Routes,
    stop: impl Future<Output = ()> + Send + 'static,
    grace: Duration,
) -> Result<(), Exit> {
    // Each layer of futures below holds its input twice, once as its argument: unboxed, these two
    // futures grew to more than a hundred KiB of stack, which the process keeps.
    serve_boxed(listener, routes, Box::pin(stop), grace).await
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

fn serve_boxed(
    listener: Listener,
    routes: Routes,
    stop: Boxed<()>,
    grace: Duration,
) -> Boxed<Result<(), Exit>> {
    Box::pin(async move {
        let (stop_sender, mut stop_receiver) = tokio::sync::watch::channel(false);
        let signal: Boxed<()> = Box::pin(async move {
            stop.await;
            let _ = stop_sender.send(true);
        });
        let mut serving = serve_until(listener, routes, signal);
        let grace_expired = async {
            // An error means that the sender was dropped without a signal: serving itself has ended
            // then.
            if stop_receiver.wait_for(|stopping| *stopping).await.is_ok() {
                tokio::time::sleep(grace).await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            ended = &mut serving => ended,
            () = grace_expired => {
                tracing::warn!(grace_seconds = grace.as_secs(), "calls were still running after the grace period; their callers will retry");
                Ok(())
            }
        }
    })
}

/// Accepts and serves until `signal` resolves, then until the last call has ended.
fn serve_until(listener: Listener, routes: Routes, signal: Boxed<()>) -> Boxed<Result<(), Exit>> {
    let router = Server::builder().layer(layer_fn(Observed)).add_routes(routes);
    let serve_error = |e: &dyn std::error::Error| Exit::failed(format_args!("serving gRPC: {e}"));
    match listener {
        Listener::Unix(listener) => Box::pin(async move {
            let listener =
                tokio::net::UnixListener::from_std(listener).map_err(|e| serve_error(&e))?;
            let incoming = tokio_stream::wrappers::UnixListenerStream::new(listener);
            router.serve_with_incoming_shutdown(incoming, signal).await.map_err(|e| serve_error(&e))
        }),
        Listener::Tcp(listener) => Box::pin(async move {
            let listener =
                tokio::net::TcpListener::from_std(listener).map_err(|e| serve_error(&e))?;
            let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
            router.serve_with_incoming_shutdown(incoming, signal).await.map_err(|e| serve_error(&e))
        }),
    }
}

/// Returns a future that resolves at SIGTERM or SIGINT.
///
/// # Errors
/// When the handlers cannot be installed.
pub fn stop_signal() -> std::io::Result<impl Future<Output = ()> + Send + 'static> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: draining"),
            _ = interrupt.recv() => tracing::info!("SIGINT: draining"),
        }
    })
}
