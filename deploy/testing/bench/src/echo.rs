//! A server that answers CreateVolume and ControllerPublishVolume with messages like a driver's and
//! does no work: it shows the cost of the transport alone.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::path::Path;
use std::task::{Context, Poll};

use csi::{
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, CreateVolumeRequest,
    CreateVolumeResponse, ProbeRequest, ProbeResponse,
};
use ebs_csi_proto::csi;
use prost::Message;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::error::Result;

/// The Controller service, or the Identity service.
#[derive(Clone, Copy)]
struct Echo<const CONTROLLER: bool>;

struct Answer<F>(F);

impl<M, R, F: FnMut(M) -> R> UnaryService<M> for Answer<F> {
    type Response = R;
    type Future = Ready<Result<Response<R>, Status>>;

    fn call(&mut self, request: Request<M>) -> Self::Future {
        ready(Ok(Response::new((self.0)(request.into_inner()))))
    }
}

fn create(request: CreateVolumeRequest) -> CreateVolumeResponse {
    let volume = csi::Volume {
        capacity_bytes: request.capacity_range.unwrap_or_default().required_bytes,
        volume_id: "vol-0123456789abcdef0".to_owned(),
        accessible_topology: request.accessibility_requirements.unwrap_or_default().preferred,
        ..csi::Volume::default()
    };
    CreateVolumeResponse { volume: Some(volume) }
}

fn publish(_: ControllerPublishVolumeRequest) -> ControllerPublishVolumeResponse {
    let publish_context = HashMap::from([("devicePath".to_owned(), "/dev/xvdaa".to_owned())]);
    ControllerPublishVolumeResponse { publish_context }
}

async fn answered<M: Message + Default + 'static, R: Message + Default + 'static>(
    answer: fn(M) -> R,
    request: http::Request<Body>,
) -> http::Response<Body> {
    Grpc::new(ProstCodec::default()).unary(Answer(answer), request).await
}

impl<const CONTROLLER: bool> NamedService for Echo<CONTROLLER> {
    const NAME: &'static str = if CONTROLLER { "csi.v1.Controller" } else { "csi.v1.Identity" };
}

impl<const CONTROLLER: bool> Service<http::Request<Body>> for Echo<CONTROLLER> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            Ok(match request.uri().path().rsplit('/').next() {
                Some("CreateVolume") => answered(create, request).await,
                Some("ControllerPublishVolume") => answered(publish, request).await,
                Some("Probe") => {
                    answered(|_: ProbeRequest| ProbeResponse::default(), request).await
                }
                _ => {
                    let mut reply = http::Response::new(Body::empty());
                    *reply.status_mut() = http::StatusCode::NOT_FOUND;
                    reply
                }
            })
        })
    }
}

/// Serves on `endpoint` (`unix://PATH`) until the process is killed.
pub(crate) fn serve(endpoint: &str) -> Result<()> {
    let socket = Path::new(endpoint.strip_prefix("unix://").unwrap_or(endpoint));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::UnixListener::bind(socket)?;
        Ok(tonic::transport::Server::builder()
            .add_service(Echo::<true>)
            .add_service(Echo::<false>)
            .serve_with_incoming(UnixListenerStream::new(listener))
            .await?)
    })
}
