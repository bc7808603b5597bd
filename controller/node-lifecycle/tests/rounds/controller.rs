//! A controller on a socket that reports every instance as stopped, and knows one instance type. It
//! counts the queries.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebs_csi_proto::Failure;
use ebs_csi_proto::safe_detach::attach_limits_response::{Answer, Kind};
use ebs_csi_proto::safe_detach::instance_types_server::{InstanceTypes, InstanceTypesServer};
use ebs_csi_proto::safe_detach::safe_detach_server::{SafeDetach, SafeDetachServer};
use ebs_csi_proto::safe_detach::{
    Ask, AttachLimitsRequest, AttachLimitsResponse, BreakGlassRequest, BreakGlassResponse,
    FenceRequest, FenceResponse, Outcome, QueryInstancesRequest, QueryInstancesResponse,
    QueryRequest, QueryResponse, Report, Verdict, query_instances_response, query_response,
};
use tokio::net::UnixListener;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

type GrpcResult<T> = Result<Response<T>, Status>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Controller {
    queries: Arc<AtomicUsize>,
    asked_types: Arc<AtomicUsize>,
}

impl Controller {
    /// Serves until the runtime ends.
    pub(crate) fn serve(socket: &Path) -> Self {
        let this = Self::default();
        let listener = UnixListener::bind(socket).expect("a socket");
        let connections = futures_util::stream::unfold(listener, |listener| async move {
            let accepted = listener.accept().await.map(|(stream, _)| stream);
            Some((accepted, listener))
        });
        let served = Server::builder()
            .add_service(SafeDetachServer::new(this.clone()))
            .add_service(InstanceTypesServer::new(this.clone()))
            .serve_with_incoming(connections);
        tokio::spawn(served);
        this
    }

    /// Returns the number of queries about volumes so far.
    pub(crate) fn queries(&self) -> usize {
        self.queries.load(Ordering::Relaxed)
    }

    /// Returns how many instance types have been asked about, each as often as it was.
    pub(crate) fn asked_types(&self) -> usize {
        self.asked_types.load(Ordering::Relaxed)
    }
}

fn stopped() -> Verdict {
    Verdict {
        outcome: Outcome::Safe.into(),
        token: "stopped".to_owned(),
        text: "it is off".to_owned(),
        instance_state: "stopped".to_owned(),
    }
}

#[tonic::async_trait]
impl InstanceTypes for Controller {
    async fn attach_limits(
        &self,
        request: Request<AttachLimitsRequest>,
    ) -> GrpcResult<AttachLimitsResponse> {
        let types = request.into_inner().instance_types;
        self.asked_types.fetch_add(types.len(), Ordering::Relaxed);
        let answers = types.into_iter().map(|instance_type| match instance_type.as_str() {
            "z9.large" => Answer { instance_type, limit: 100, kind: Kind::Dedicated.into() },
            _ => Answer { instance_type, ..Answer::default() },
        });
        let answers = answers.collect();
        Ok(Response::new(AttachLimitsResponse { answers }))
    }
}

#[tonic::async_trait]
impl SafeDetach for Controller {
    async fn query(&self, request: Request<QueryRequest>) -> GrpcResult<QueryResponse> {
        self.queries.fetch_add(1, Ordering::Relaxed);
        let subjects = request.into_inner().subjects.into_iter();
        let answers = subjects.map(|subject| query_response::Answer {
            subject: Some(subject),
            verdict: Some(stopped()),
            attached_since: String::new(),
        });
        let answers = answers.collect();
        Ok(Response::new(QueryResponse { answers }))
    }

    async fn query_instances(
        &self,
        request: Request<QueryInstancesRequest>,
    ) -> GrpcResult<QueryInstancesResponse> {
        let ids = request.into_inner().instance_ids.into_iter();
        let answers = ids.map(|instance_id| query_instances_response::Answer {
            instance_id,
            verdict: Some(stopped()),
            launch_time: "2026-01-01T00:00:00Z".to_owned(),
            ..query_instances_response::Answer::default()
        });
        let answers = answers.collect();
        Ok(Response::new(QueryInstancesResponse { answers }))
    }

    type ObserveStream = Pin<Box<dyn Stream<Item = Result<Ask, Status>> + Send>>;

    async fn observe(&self, _: Request<Streaming<Report>>) -> GrpcResult<Self::ObserveStream> {
        Ok(Response::new(Box::pin(tokio_stream::pending().map(Ok))))
    }

    async fn fence(&self, _: Request<FenceRequest>) -> GrpcResult<FenceResponse> {
        Err(Failure::unimplemented("Fence").into())
    }

    async fn break_glass(&self, _: Request<BreakGlassRequest>) -> GrpcResult<BreakGlassResponse> {
        Err(Failure::unimplemented("BreakGlass").into())
    }
}
