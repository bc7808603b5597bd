//! The SafeDetach service.

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ebs_csi_ec2::{
    Call, Ec2, Instance, InstanceState, InstanceStatus, LookResult, PowerOff, Timestamp,
};
use ebs_csi_proto::safe_detach::instance_types_server::InstanceTypesServer;
use ebs_csi_proto::safe_detach::safe_detach_server::{self, SafeDetachServer};
use ebs_csi_proto::safe_detach::{
    Ask, BreakGlassRequest, BreakGlassResponse, FenceRequest, FenceResponse, Outcome,
    QueryInstancesRequest, QueryInstancesResponse, QueryRequest, QueryResponse, Report, Subject,
    Verdict as WireVerdict, fence_request, query_instances_response, query_response,
};
use ebs_csi_proto::{Condition, Failure, caller_timeout};
use ebs_csi_safe_detach::{
    AttachTime, Fact, Facts, InstanceFact, Mode, Verdict, decide, decide_instance,
};
use ebs_csi_wire::{InstanceId, VolumeId};
use tokio::time::Instant;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::transport::server::UdsConnectInfo;
use tonic::{Request, Response, Status, Streaming};

use super::evidence::{gather_all, instance_look_to_fact};
use super::fence::Fence;
use super::{ClusterEvidence, checks, verdict_text};
use crate::attach::InstanceTypes;
use crate::metrics::Metrics;
use crate::request::Pair;

/// How long a call without its own deadline waits for EC2.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// The most volumes or instances that one call may name.
const MAX_SUBJECTS: usize = 10_000;

/// The service. Clones share their state.
#[derive(Clone, Debug)]
pub struct Service {
    pub(crate) ec2: Ec2,
    pub(crate) instance_types: InstanceTypes,
    pub(crate) mode: Mode,
    pub(crate) cluster_evidence: ClusterEvidence,
    pub(crate) metrics: Arc<Metrics>,
}

pub(super) type RpcResult<T> = Result<Response<T>, Status>;

impl Service {
    /// Returns the routes of the socket, for callers with these user ids only. With safe detach off
    /// it tells what EC2 says of instance types, and nothing else.
    pub fn routes(self, peers: Vec<u32>) -> Routes {
        let checked = move |request: Request<()>| check_peer(&peers, request);
        let types = InstanceTypesServer::with_interceptor(self.clone(), checked.clone());
        let routes = Routes::new(types);
        match self.mode {
            Mode::Off => routes,
            Mode::Ec2Only | Mode::Enforce => {
                routes.add_service(SafeDetachServer::with_interceptor(self, checked))
            }
        }
    }

    fn call<T>(request: &Request<T>) -> Call {
        Call::until(Self::deadline(request))
    }

    pub(super) fn deadline<T>(request: &Request<T>) -> Instant {
        let timeout = caller_timeout::of(request.metadata()).unwrap_or(DEFAULT_TIMEOUT);
        Instant::now() + timeout
    }

    fn volume_answer(pair: &Pair, facts: &Facts) -> query_response::Answer {
        let verdict = decide(facts);
        let since = match facts.attachment {
            Fact::Present(attachment) => attachment.since,
            Fact::Absent | Fact::Unknown => None,
        };
        let text = verdict_text::of_volume(verdict, pair, &facts.instance);
        query_response::Answer {
            subject: Some(Subject {
                volume_id: pair.volume.to_string(),
                instance_id: pair.node.to_string(),
            }),
            verdict: Some(verdict_to_wire(verdict, text, &facts.instance)),
            attached_since: since
                .map(|AttachTime { seconds, nanoseconds }| {
                    Timestamp { seconds, nanoseconds }.to_string()
                })
                .unwrap_or_default(),
        }
    }

    fn instance_answer(
        &self,
        id: &InstanceId,
        look: &LookResult<Instance>,
        status: Option<&LookResult<InstanceStatus>>,
    ) -> query_instances_response::Answer {
        let fact = instance_look_to_fact(look);
        let verdict = decide_instance(&fact, self.cluster_evidence.fences.of(id));
        let launched = look.present().and_then(|instance| instance.launched);
        let text = verdict_text::of_instance(verdict, id, &fact);
        query_instances_response::Answer {
            instance_id: id.to_string(),
            verdict: Some(verdict_to_wire(verdict, text, &fact)),
            launch_time: launched.map(|at| at.to_string()).unwrap_or_default(),
            status_checks: status.map(checks::to_wire).unwrap_or_default().into(),
            status_checks_text: status
                .map(|status| checks::describe(id, status))
                .unwrap_or_default(),
        }
    }
}

#[tonic::async_trait]
impl safe_detach_server::SafeDetach for Service {
    async fn query(&self, request: Request<QueryRequest>) -> RpcResult<QueryResponse> {
        let call = Self::call(&request);
        let subjects = request.into_inner().subjects;
        check_count(subjects.len())?;
        let pairs = subjects.iter().map(parse_pair).collect::<Result<Vec<_>, _>>()?;
        let gathered =
            gather_all(&self.ec2, &call, self.mode, &pairs, &self.cluster_evidence).await;
        let answers = pairs.iter().zip(&gathered);
        let answers =
            answers.map(|(pair, gathered)| Self::volume_answer(pair, &gathered.facts)).collect();
        Ok(Response::new(QueryResponse { answers }))
    }

    async fn query_instances(
        &self,
        request: Request<QueryInstancesRequest>,
    ) -> RpcResult<QueryInstancesResponse> {
        let call = Self::call(&request);
        let QueryInstancesRequest { instance_ids, status_checks_of } = request.into_inner();
        check_count(instance_ids.len())?;
        let ids =
            instance_ids.iter().map(|id| parse_instance(id)).collect::<Result<Vec<_>, _>>()?;
        let looks = self.ec2.look_instances(&call, &ids).await;
        let wanted: HashSet<&str> = status_checks_of.iter().map(String::as_str).collect();
        let checked: Vec<InstanceId> = ids
            .iter()
            .zip(&looks)
            .filter(|(id, look)| wanted.contains(id.as_str()) && is_running(look))
            .map(|(id, _)| id.clone())
            .collect();
        let statuses = self.ec2.look_instance_statuses(&call, &checked).await;
        let statuses: HashMap<_, _> = checked.iter().zip(&statuses).collect();
        let answers = ids.iter().zip(&looks);
        let answers = answers
            .map(|(id, look)| self.instance_answer(id, look, statuses.get(id).copied()))
            .collect();
        Ok(Response::new(QueryInstancesResponse { answers }))
    }

    type ObserveStream = Pin<Box<dyn Stream<Item = Result<Ask, Status>> + Send>>;

    async fn observe(&self, request: Request<Streaming<Report>>) -> RpcResult<Self::ObserveStream> {
        let (observer, asks) = self.cluster_evidence.reports.observe();
        let mut reports = request.into_inner();
        let metrics = Arc::clone(&self.metrics);
        metrics.observer(1);
        tracing::info!("an observer of nodes connected");
        tokio::spawn(async move {
            // The stream has ended or failed; either ends the observer.
            while let Ok(Some(report)) = reports.message().await {
                observer.report(report);
            }
            metrics.observer(-1);
            tracing::info!("the observer of nodes disconnected");
        });
        let asks = tokio_stream::StreamExt::map(ReceiverStream::new(asks), Ok);
        Ok(Response::new(Box::pin(asks)))
    }

    async fn fence(&self, request: Request<FenceRequest>) -> RpcResult<FenceResponse> {
        let call = Self::call(&request);
        let by = describe_peer(&request, &request.get_ref().reason);
        let wire = request.into_inner();
        let how = match wire.mode() {
            fence_request::Mode::Stop => PowerOff::Stop,
            fence_request::Mode::Terminate => PowerOff::Terminate,
            fence_request::Mode::Unspecified => {
                return Err(Failure::invalid("mode", "give STOP or TERMINATE").into());
            }
        };
        let fence = Fence {
            instance: parse_instance(&wire.instance_id)?,
            how,
            by,
            dry_run: wire.dry_run,
            only_impaired: wire.only_impaired,
        };
        let (this, metrics) = (self.cluster_evidence.fences.clone(), Arc::clone(&self.metrics));
        let ec2 = self.ec2.clone();
        // The fence continues when the caller no longer waits, so that a fence that was begun is
        // also logged.
        let fence_task =
            tokio::spawn(async move { this.fence(&ec2, &call, &metrics, &fence).await });
        let instance_state = fence_task.await.map_err(|_| fault())??;
        Ok(Response::new(FenceResponse { instance_state }))
    }

    async fn break_glass(
        &self,
        request: Request<BreakGlassRequest>,
    ) -> RpcResult<BreakGlassResponse> {
        let by = describe_peer(&request, &request.get_ref().ordered_by);
        let wire = request.into_inner();
        let pair = parse_pair(wire.subject.as_ref().ok_or_else(|| Failure::missing("subject"))?)?;
        let since = Timestamp::parse(&wire.attached_since).ok_or_else(|| {
            Failure::invalid("attached_since", "give the time that Query tells, as RFC 3339")
        })?;
        let since = AttachTime { seconds: since.seconds, nanoseconds: since.nanoseconds };
        let is_taken = self.cluster_evidence.overrides.order(&pair, since, &by);
        tracing::warn!(
            volume.id = pair.volume.as_str(),
            node.id = pair.node.as_str(),
            attached_since = wire.attached_since,
            by,
            is_taken,
            "an override order for a detach whatever else is known"
        );
        if !is_taken {
            let text = format!(
                "volume {} is left at node {}: no detach of it that was asked for over CSI within fifteen minutes waits for an order; delete the VolumeAttachment first",
                pair.volume, pair.node
            );
            return Err(Failure::new(Condition::NotPrepared, text).into());
        }
        Ok(Response::new(BreakGlassResponse {}))
    }
}

/// Returns whether EC2 shows the instance running: EC2 checks no other instances.
fn is_running(look: &LookResult<Instance>) -> bool {
    let state = look.present().map(|instance| &instance.state);
    state == Some(&InstanceState::Running)
}

fn verdict_to_wire(verdict: Verdict, text: String, instance: &Fact<InstanceFact>) -> WireVerdict {
    let outcome = match verdict {
        Verdict::Done => Outcome::Done,
        Verdict::Safe(_) => Outcome::Safe,
        Verdict::Wait(_) => Outcome::Wait,
        Verdict::Refuse(_) => Outcome::Refuse,
    };
    WireVerdict {
        outcome: outcome.into(),
        token: verdict.label().1.to_owned(),
        text,
        instance_state: match instance {
            Fact::Present(instance) => instance.power.label().to_owned(),
            Fact::Absent | Fact::Unknown => String::new(),
        },
    }
}

fn parse_pair(subject: &Subject) -> Result<Pair, Failure> {
    Ok(Pair {
        volume: VolumeId::parse(&subject.volume_id)
            .map_err(|why| Failure::invalid("volume_id", why))?,
        node: parse_instance(&subject.instance_id)?,
    })
}

fn parse_instance(id: &str) -> Result<InstanceId, Failure> {
    InstanceId::parse(id).map_err(|why| Failure::invalid("instance_id", why))
}

pub(super) fn check_count(number: usize) -> Result<(), Failure> {
    match number {
        0..=MAX_SUBJECTS => Ok(()),
        _ => Err(Failure::invalid(
            "subjects",
            format!("{number} in one call; ask for at most {MAX_SUBJECTS}"),
        )),
    }
}

fn fault() -> Failure {
    Failure::new(
        Condition::Bug,
        "a fault of the driver; it is in the controller's log, please report it",
    )
}

/// The most characters of a peer's own words in the log.
const MAX_WORDS: usize = 256;

/// Returns the process that calls, by the kernel's statement, and its own words about the call.
fn describe_peer<T>(request: &Request<T>, words: &str) -> String {
    let peer = request.extensions().get::<UdsConnectInfo>().and_then(|info| info.peer_cred);
    let words: String = words.chars().take(MAX_WORDS).collect();
    match peer.map(|peer| (peer.uid(), peer.pid())) {
        Some((uid, Some(pid))) => format!("process {pid} of user {uid}, which says {words:?}"),
        Some((uid, None)) => format!("a process of user {uid}, which says {words:?}"),
        None => format!("an unknown process, which says {words:?}"),
    }
}

/// Refuses the call of a peer whose user id is not listed. The kernel's statement about the peer
/// counts (`SO_PEERCRED`, unix(7)); without one, the call is refused.
fn check_peer(allowed: &[u32], request: Request<()>) -> Result<Request<()>, Status> {
    let peer = request.extensions().get::<UdsConnectInfo>().and_then(|info| info.peer_cred);
    match peer {
        Some(peer) if allowed.contains(&peer.uid()) => Ok(request),
        Some(peer) => {
            tracing::warn!(peer.uid = peer.uid(), "a call on the SafeDetach socket is refused");
            Err(refused(&format!("user id {} is not one of them", peer.uid())))
        }
        None => Err(refused("who calls is not known")),
    }
}

fn refused(why: &str) -> Status {
    let text = format!("only the processes of --safe-detach-peers may call here: {why}");
    Failure::new(Condition::NotPermitted, text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_without_peer_credentials_is_denied() {
        let refused = check_peer(&[0, 64532], Request::new(())).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::PermissionDenied);
    }
}
