//! Tests the router between real sockets: a client, and two servers that name themselves.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use aws_ebs_csi_driver::route::Backend;
use aws_ebs_csi_driver::router;
use bytes::Bytes;
use ebs_csi_proto::csi;
use ebs_csi_proto::csi::identity_client::IdentityClient;
use ebs_csi_proto::csi::identity_server::IdentityServer;
use ebs_csi_proto::csi::node_client::NodeClient;
use ebs_csi_proto::identity::Identity;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tonic::Code;

/// Serves a reply that holds the server's name, the request's path and body, and gRPC trailers.
fn serve_echo(directory: &Path, backend: Backend) -> JoinHandle<()> {
    let listener = UnixListener::bind(directory.join(backend.socket())).unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = service_fn(move |request: Request<Incoming>| async move {
                let path = request.uri().path().to_owned();
                let timeout = request.headers().get("grpc-timeout").cloned();
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", HeaderValue::from_static("0"));
                let frames =
                    [Ok::<_, Infallible>(Frame::data(body)), Ok(Frame::trailers(trailers))];
                let mut reply = Response::new(StreamBody::new(tokio_stream::iter(frames)));
                reply.headers_mut().insert("served-by", HeaderValue::from_static(backend.name()));
                reply.headers_mut().insert("served-path", path.parse().unwrap());
                if let Some(timeout) = timeout {
                    reply.headers_mut().insert("served-timeout", timeout);
                }
                Ok::<_, Infallible>(reply)
            });
            tokio::spawn(
                hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service),
            );
        }
    })
}

fn start_router(directory: &Path) -> JoinHandle<()> {
    let listener = UnixListener::bind(directory.join("csi.sock")).unwrap();
    let directory = directory.to_owned();
    tokio::spawn(async move {
        let never = std::future::pending();
        router::serve(listener, &directory, never, Duration::from_secs(1)).await.unwrap();
    })
}

async fn send_request(directory: &Path, path: &str, body: Bytes) -> Response<Incoming> {
    let stream = UnixStream::connect(directory.join("csi.sock")).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let request = Request::post(format!("http://localhost{path}"))
        .header("te", "trailers")
        .header("grpc-timeout", "5S")
        .body(Full::new(body))
        .unwrap();
    sender.send_request(request).await.unwrap()
}

#[tokio::test]
async fn router_forwards_each_rpc_unchanged_to_its_backend() {
    let directory = tempfile::tempdir().unwrap();
    let _servers = (
        serve_echo(directory.path(), Backend::Controller),
        serve_echo(directory.path(), Backend::NodeAgent),
    );
    start_router(directory.path());
    // Larger than a flow-control window, and not a valid protobuf message.
    let body: Bytes = (0..300_000_u32).map(|n| n.to_le_bytes()[usize::from(n % 2 == 0)]).collect();
    for (path, backend) in [
        ("/csi.v1.Controller/CreateVolume", "controller"),
        ("/csi.v1.Identity/Probe", "controller"),
        ("/modify.v1.Modify/ModifyVolumeProperties", "controller"),
        ("/csi.v1.Node/NodeStageVolume", "node-agent"),
    ] {
        let reply = send_request(directory.path(), path, body.clone()).await;
        assert_eq!(reply.headers()["served-by"], backend, "{path}");
        assert_eq!(reply.headers()["served-path"], path);
        assert_eq!(reply.headers()["served-timeout"], "5S");
        let collected = reply.into_body().collect().await.unwrap();
        assert_eq!(collected.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(collected.to_bytes(), body, "{path}");
    }
}

#[tokio::test]
async fn a_service_that_no_process_offers_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    start_router(directory.path());
    let reply = send_request(
        directory.path(),
        "/csi.v1.SnapshotMetadata/GetMetadataAllocated",
        Bytes::new(),
    )
    .await;
    assert_eq!(reply.headers()["grpc-status"], (Code::Unimplemented as i32).to_string().as_str());
}

async fn channel(directory: &Path) -> tonic::transport::Channel {
    let address = format!("unix://{}", directory.join("csi.sock").display());
    tonic::transport::Endpoint::from_shared(address).unwrap().connect().await.unwrap()
}

#[tokio::test]
async fn absent_backend_is_unavailable_and_reconnects_after_restart() {
    let directory = tempfile::tempdir().unwrap();
    start_router(directory.path());
    let mut client = IdentityClient::new(channel(directory.path()).await);
    let unavailable = client.probe(csi::ProbeRequest {}).await.unwrap_err();
    assert_eq!(unavailable.code(), Code::Unavailable, "{unavailable:?}");
    assert!(unavailable.message().contains("controller"), "{unavailable:?}");
    for version in ["v1", "v2"] {
        let socket = directory.path().join(Backend::Controller.socket());
        let _ = std::fs::remove_file(&socket);
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        // Has its own runtime, so that the process's connections end with it.
        let process = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let entered = process.enter();
        let listener = UnixListener::from_std(listener).unwrap();
        let incoming = tokio_stream::wrappers::UnixListenerStream::new(listener);
        drop(entered);
        process.spawn(
            tonic::transport::Server::builder()
                .add_service(IdentityServer::new(Identity::always_ready(version)))
                .serve_with_incoming(incoming),
        );
        let info = loop {
            match client.get_plugin_info(csi::GetPluginInfoRequest {}).await {
                Ok(info) => break info.into_inner(),
                Err(e) => assert_eq!(e.code(), Code::Unavailable, "{e:?}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert_eq!(info.vendor_version, version);
        process.shutdown_background();
    }
}

#[tokio::test]
async fn absent_node_agent_does_not_affect_controller_calls() {
    let directory = tempfile::tempdir().unwrap();
    let _controller = serve_echo(directory.path(), Backend::Controller);
    start_router(directory.path());
    let mut node = NodeClient::new(channel(directory.path()).await);
    let error = node.node_get_info(csi::NodeGetInfoRequest {}).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    let reply =
        send_request(directory.path(), "/csi.v1.Controller/DeleteVolume", Bytes::from_static(b"x"))
            .await;
    assert_eq!(reply.headers()["served-by"], "controller");
}

#[tokio::test]
async fn router_stop_lets_call_in_flight_finish() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join(Backend::NodeAgent.socket());
    let listener = UnixListener::bind(&socket).unwrap();
    let (arrived, mut arrival) = tokio::sync::mpsc::channel::<()>(1);
    let (release, released) = tokio::sync::watch::channel(false);
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let service = service_fn(move |_: Request<Incoming>| {
            let (arrived, mut released) = (arrived.clone(), released.clone());
            async move {
                arrived.send(()).await.unwrap();
                released.wait_for(|released| *released).await.unwrap();
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"done"))))
            }
        });
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await;
    });
    let router_listener = UnixListener::bind(directory.path().join("csi.sock")).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let path = directory.path().to_owned();
    let routing = tokio::spawn(async move {
        let stop = async {
            let _ = stopped.await;
        };
        router::serve(router_listener, &path, stop, Duration::from_secs(10)).await
    });
    let path = directory.path().to_owned();
    let call = tokio::spawn(async move {
        let reply = send_request(&path, "/csi.v1.Node/NodeStageVolume", Bytes::new()).await;
        reply.into_body().collect().await.unwrap().to_bytes()
    });
    arrival.recv().await.unwrap();
    stop.send(()).unwrap();
    release.send(true).unwrap();
    assert_eq!(call.await.unwrap(), "done");
    routing.await.unwrap().unwrap();
}
