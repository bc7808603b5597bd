//! A client of the controller in the same pod, which reports what EC2 proves.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use ebs_csi_proto::safe_detach::attach_limits_response::{Answer as TypeAnswer, Kind};
use ebs_csi_proto::safe_detach::fence_request::Mode as FenceMode;
use ebs_csi_proto::safe_detach::instance_types_client::InstanceTypesClient;
use ebs_csi_proto::safe_detach::safe_detach_client::SafeDetachClient;
use ebs_csi_proto::safe_detach::{
    AttachLimitsRequest, FenceRequest, Outcome, QueryInstancesRequest, QueryRequest, StatusChecks,
    Subject, Verdict as WireVerdict,
};
use ebs_csi_safe_detach::lifecycle::{InstanceEvidence, VolumeEvidence};
use ebs_csi_safe_detach::{Evidence, Fact, Refusal, Verdict, Waiting};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

mod agent_page;
pub mod node_reports;
pub(crate) mod override_orders;
pub(crate) mod promise_requests;

/// Limit for one request: without an answer, nothing is known.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A connection that is opened when it is needed, and again after it broke.
#[derive(Clone, Debug)]
pub struct Controller {
    channel: Channel,
}

/// The attachment slots of an instance type, as EC2 says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    pub(crate) count: u32,
    /// Whether network interfaces take from the same slots.
    pub(crate) shared: bool,
}

/// The controller's answers. What is missing is unknown.
#[derive(Clone, Debug, Default)]
pub struct ControllerAnswers {
    /// By instance and volume.
    pub volumes: BTreeMap<(String, String), VolumeEvidence>,
    /// By instance.
    pub instances: BTreeMap<String, InstanceAnswer>,
}

/// The controller's answer about an instance.
#[derive(Clone, Debug)]
pub struct InstanceAnswer {
    /// What it proves.
    pub evidence: InstanceEvidence,
    /// The controller's text about the instance.
    pub text: String,
    /// The controller's text about the status checks; empty where they were not requested.
    pub checks: String,
}

impl Controller {
    /// Creates a client for this unix socket.
    pub fn new(socket: PathBuf) -> Self {
        // The address is not used: the connector has the socket's path.
        let endpoint = Endpoint::from_static("http://controller.invalid");
        let connector = tower::service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        Self { channel: endpoint.connect_with_connector_lazy(connector) }
    }

    /// A client of the service.
    pub fn client(&self) -> SafeDetachClient<Channel> {
        SafeDetachClient::new(self.channel.clone())
    }

    /// Makes the controller stop or terminate an instance; with `only_impaired`, only while its
    /// status checks fail.
    ///
    /// # Errors
    /// The controller's status: the fence is not permitted, the controller's fence limit is
    /// reached, or EC2 refuses.
    pub async fn fence(
        &self,
        instance: &str,
        how: FenceMode,
        only_impaired: bool,
        reason: &str,
    ) -> Result<(), tonic::Status> {
        let request = with_timeout(FenceRequest {
            instance_id: instance.to_owned(),
            mode: how.into(),
            reason: reason.to_owned(),
            dry_run: false,
            only_impaired,
        });
        self.client().fence(request).await.map(drop)
    }

    /// Returns the slots of those of the instance types of which the controller knows them.
    ///
    /// # Errors
    /// The controller's status; one of an earlier release answers UNIMPLEMENTED.
    pub(crate) async fn attach_limits(
        &self,
        instance_types: Vec<String>,
    ) -> Result<Vec<(String, Slots)>, tonic::Status> {
        let request = with_timeout(AttachLimitsRequest { instance_types });
        let mut client = InstanceTypesClient::new(self.channel.clone());
        let answers = client.attach_limits(request).await?.into_inner().answers;
        let known = answers.into_iter().filter_map(|answer| {
            let slots = parse_slots(&answer)?;
            Some((answer.instance_type, slots))
        });
        Ok(known.collect())
    }

    /// Queries all pairs of instance and volume, and all their instances, at once; and the status
    /// checks of some instances.
    ///
    /// # Errors
    /// The controller's status when it does not answer: nothing is known then.
    pub async fn query(
        &self,
        questions: &[(String, String)],
        checks: &BTreeSet<String>,
    ) -> Result<ControllerAnswers, tonic::Status> {
        let instances: BTreeSet<&String> = questions.iter().map(|(instance, _)| instance).collect();
        let of_volumes = about_volumes(questions);
        let of_instances = with_timeout(QueryInstancesRequest {
            instance_ids: instances.into_iter().cloned().collect(),
            status_checks_of: checks.iter().cloned().collect(),
        });
        let (mut one, mut two) = (self.client(), self.client());
        let (volumes, instances) =
            tokio::try_join!(one.query(of_volumes), two.query_instances(of_instances))?;
        let mut answers = ControllerAnswers::default();
        for answer in volumes.into_inner().answers {
            let Some(subject) = answer.subject else {
                continue;
            };
            let verdict = parse_verdict(answer.verdict.as_ref());
            let key = (subject.instance_id, subject.volume_id);
            answers.volumes.insert(key, verdict.into());
        }
        for answer in instances.into_inner().answers {
            let wire = answer.verdict.as_ref();
            let text = wire.map(|wire| wire.text.clone()).unwrap_or_default();
            let impaired = parse_status_checks(answer.status_checks());
            let evidence = InstanceEvidence::new(parse_verdict(wire), answer.launch_time, impaired);
            let checks = answer.status_checks_text;
            let answer_of_instance = InstanceAnswer { evidence, text, checks };
            answers.instances.insert(answer.instance_id, answer_of_instance);
        }
        Ok(answers)
    }

    /// Returns the pairs of instance and volume whose detach would not be refused now: the
    /// controller would send DetachVolume, or EC2 shows no attachment.
    ///
    /// # Errors
    /// The controller's status when it does not answer.
    pub async fn detachable(
        &self,
        questions: &[(String, String)],
    ) -> Result<BTreeSet<(String, String)>, tonic::Status> {
        let answers = self.client().query(about_volumes(questions)).await?.into_inner().answers;
        let detachable = answers.into_iter().filter(|answer| {
            let outcome = answer.verdict.as_ref().map(WireVerdict::outcome);
            matches!(outcome, Some(Outcome::Safe | Outcome::Done))
        });
        let pairs = detachable.filter_map(|answer| answer.subject);
        Ok(pairs.map(|subject| (subject.instance_id, subject.volume_id)).collect())
    }
}

fn about_volumes(questions: &[(String, String)]) -> tonic::Request<QueryRequest> {
    let subjects = questions.iter().map(|(instance, volume)| Subject {
        volume_id: volume.clone(),
        instance_id: instance.clone(),
    });
    with_timeout(QueryRequest { subjects: subjects.collect() })
}

fn with_timeout<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(REQUEST_TIMEOUT);
    request
}

/// Converts the slots of a type; `None` when they are not known, or of a kind that this version
/// does not know.
fn parse_slots(answer: &TypeAnswer) -> Option<Slots> {
    let shared = match answer.kind() {
        Kind::Shared => true,
        Kind::Dedicated => false,
        Kind::Unspecified => return None,
    };
    (answer.limit > 0).then_some(Slots { count: answer.limit, shared })
}

/// Converts EC2's status checks to a fact. A value that this version does not know counts as
/// unspecified.
fn parse_status_checks(wire: StatusChecks) -> Fact<()> {
    match wire {
        StatusChecks::Failed => Fact::Present(()),
        StatusChecks::Passed => Fact::Absent,
        StatusChecks::Unspecified => Fact::Unknown,
    }
}

/// Converts the controller's verdict to this version's types. An unknown verdict proves nothing.
fn parse_verdict(wire: Option<&WireVerdict>) -> Verdict {
    let unknown = Verdict::Refuse(Refusal::InstanceUnknown);
    let Some(wire) = wire else {
        return unknown;
    };
    match wire.outcome() {
        Outcome::Done => Verdict::Done,
        Outcome::Safe => Evidence::ALL
            .into_iter()
            .find(|evidence| evidence.label() == wire.token)
            .map_or(unknown, Verdict::Safe),
        Outcome::Wait => Verdict::Wait(Waiting::Transition),
        Outcome::Refuse if wire.token == Refusal::Running.token() => {
            Verdict::Refuse(Refusal::Running)
        }
        Outcome::Refuse | Outcome::Unspecified => unknown,
    }
}

#[cfg(test)]
mod tests {
    use ebs_csi_proto::safe_detach::query_instances_response::Answer;

    use super::*;

    #[test]
    fn unknown_or_missing_verdict_is_unproven() {
        let off = InstanceEvidence::Off { launched: String::new() };
        let rows = [
            (Outcome::Done as i32, "no-attachment", VolumeEvidence::Proven, false),
            (Outcome::Safe as i32, "stopped", VolumeEvidence::Proven, true),
            (Outcome::Safe as i32, "terminated", VolumeEvidence::Proven, true),
            (Outcome::Safe as i32, "fenced", VolumeEvidence::Proven, true),
            (Outcome::Safe as i32, "kubelet-report", VolumeEvidence::Proven, false),
            (Outcome::Safe as i32, "trusted", VolumeEvidence::Unproven, false),
            (Outcome::Safe as i32, "evidence-of-later", VolumeEvidence::Unproven, false),
            (Outcome::Safe as i32, "", VolumeEvidence::Unproven, false),
            (Outcome::Wait as i32, "transition", VolumeEvidence::Waiting, false),
            (Outcome::Refuse as i32, "no-report", VolumeEvidence::Unproven, false),
            (Outcome::Unspecified as i32, "stopped", VolumeEvidence::Unproven, false),
            (77, "stopped", VolumeEvidence::Unproven, false),
        ];
        for (outcome, token, evidence, is_off) in rows {
            let wire = WireVerdict { outcome, token: token.to_owned(), ..WireVerdict::default() };
            let verdict = parse_verdict(Some(&wire));
            assert_eq!(VolumeEvidence::from(verdict), evidence, "{outcome} {token}");
            let instance = InstanceEvidence::new(verdict, String::new(), Fact::Unknown);
            assert_eq!(instance == off, is_off, "{outcome} {token}");
        }
        assert_eq!(VolumeEvidence::from(parse_verdict(None)), VolumeEvidence::Unproven);
    }

    #[test]
    fn only_failed_status_checks_count_as_impaired() {
        let rows =
            [(0, Fact::Unknown), (1, Fact::Absent), (2, Fact::Present(())), (77, Fact::Unknown)];
        for (status_checks, want) in rows {
            let answer = Answer { status_checks, ..Answer::default() };
            assert_eq!(parse_status_checks(answer.status_checks()), want, "{status_checks}");
        }
    }

    #[test]
    fn slots_of_unknown_number_or_kind_are_unknown() {
        let slots = |count, shared| Some(Slots { count, shared });
        let rows = [
            (100, 2, slots(100, false)),
            (27, 1, slots(27, true)),
            (0, 2, None),
            (27, 0, None),
            (27, 77, None),
        ];
        for (limit, kind, want) in rows {
            let answer = TypeAnswer { limit, kind, ..TypeAnswer::default() };
            assert_eq!(parse_slots(&answer), want, "{limit} {kind}");
        }
    }
}
