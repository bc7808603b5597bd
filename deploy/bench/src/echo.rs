//! A server that answers CreateVolume and ControllerPublishVolume with messages like a driver's and
//! does no work: it shows the cost of the transport alone.

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::Path;
use std::task::{Context, Poll};

use csi::{
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, CreateVolumeRequest,
    CreateVolumeResponse, ProbeRequest, ProbeResponse,
};
use ebs_csi_proto::csi;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::error::BenchError;

#[derive(Clone, Copy)]
struct Controller;

#[derive(Clone, Copy)]
struct Identity;

struct Create;
struct Publish;
struct Probe;

impl UnaryService<CreateVolumeRequest> for Create {
    type Response = CreateVolumeResponse;
    type Future = BoxFuture<Response<Self::Response>, Status>;

    fn call(&mut self, request: Request<CreateVolumeRequest>) -> Self::Future {
        let asked = request.into_inner();
        let topology = asked.accessibility_requirements.unwrap_or_default();
        let volume = csi::Volume {
            capacity_bytes: asked.capacity_range.unwrap_or_default().required_bytes,
            volume_id: "vol-0123456789abcdef0".to_owned(),
            accessible_topology: topology.preferred,
            ..csi::Volume::default()
        };
        Box::pin(std::future::ready(Ok(Response::new(CreateVolumeResponse {
            volume: Some(volume),
        }))))
    }
}

impl UnaryService<ControllerPublishVolumeRequest> for Publish {
    type Response = ControllerPublishVolumeResponse;
    type Future = BoxFuture<Response<Self::Response>, Status>;

    fn call(&mut self, _: Request<ControllerPublishVolumeRequest>) -> Self::Future {
        let publish_context = HashMap::from([("devicePath".to_owned(), "/dev/xvdaa".to_owned())]);
        Box::pin(std::future::ready(Ok(Response::new(ControllerPublishVolumeResponse {
            publish_context,
        }))))
    }
}

impl UnaryService<ProbeRequest> for Probe {
    type Response = ProbeResponse;
    type Future = BoxFuture<Response<Self::Response>, Status>;

    fn call(&mut self, _: Request<ProbeRequest>) -> Self::Future {
        Box::pin(std::future::ready(Ok(Response::new(ProbeResponse::default()))))
    }
}

impl NamedService for Controller {
    const NAME: &'static str = "csi.v1.Controller";
}

impl NamedService for Identity {
    const NAME: &'static str = "csi.v1.Identity";
}

impl Service<http::Request<Body>> for Controller {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let reply = match request.uri().path().rsplit('/').next() {
                Some("CreateVolume") => {
                    let mut grpc = tonic::server::Grpc::new(ProstCodec::default());
                    grpc.unary(Create, request).await
                }
                Some("ControllerPublishVolume") => {
                    let mut grpc = tonic::server::Grpc::new(ProstCodec::default());
                    grpc.unary(Publish, request).await
                }
                _ => not_here(),
            };
            Ok(reply)
        })
    }
}

impl Service<http::Request<Body>> for Identity {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::default());
            Ok(grpc.unary(Probe, request).await)
        })
    }
}

fn not_here() -> http::Response<Body> {
    let mut reply = http::Response::new(Body::empty());
    *reply.status_mut() = http::StatusCode::NOT_FOUND;
    reply
}

/// Serves on `endpoint` (`unix://PATH`) until the process is killed.
///
/// # Errors
/// Returns an error when the socket cannot be bound.
pub fn serve(endpoint: &str) -> Result<(), BenchError> {
    let socket = Path::new(endpoint.strip_prefix("unix://").unwrap_or(endpoint));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::UnixListener::bind(socket)?;
        tonic::transport::Server::builder()
            .add_service(Controller)
            .add_service(Identity)
            .serve_with_incoming(UnixListenerStream::new(listener))
            .await
            .map_err(|e| BenchError::Other(e.to_string()))
    })
}
