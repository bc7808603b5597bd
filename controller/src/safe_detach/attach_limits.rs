//! What EC2 says of instance types, for node-lifecycle, which passes it on to nodes.

use std::time::Duration;

use ebs_csi_ec2::{Call, Slots};
use ebs_csi_proto::safe_detach::attach_limits_response::{Answer, Kind};
use ebs_csi_proto::safe_detach::instance_types_server::InstanceTypes;
use ebs_csi_proto::safe_detach::{AttachLimitsRequest, AttachLimitsResponse};
use tokio::time::Instant;
use tonic::{Request, Response};

use super::service::{RpcResult, Service, check_count};

/// How long one type waits for EC2. An attach may wait for the answer, too.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A longer name is none of EC2's.
const MAX_NAME: usize = 64;

#[tonic::async_trait]
impl InstanceTypes for Service {
    async fn attach_limits(
        &self,
        request: Request<AttachLimitsRequest>,
    ) -> RpcResult<AttachLimitsResponse> {
        let until = Self::deadline(&request);
        let instance_types = request.into_inner().instance_types;
        check_count(instance_types.len())?;
        let mut answers = Vec::with_capacity(instance_types.len());
        for instance_type in instance_types {
            let now = Instant::now();
            let slots = match instance_type.len() <= MAX_NAME && now < until {
                true => {
                    let call = Call::until(until.min(now + TIMEOUT));
                    self.instance_types.slots(&self.ec2, &call, &instance_type).await
                }
                false => None,
            };
            answers.push(answer(instance_type, slots));
        }
        Ok(Response::new(AttachLimitsResponse { answers }))
    }
}

fn answer(instance_type: String, slots: Option<Slots>) -> Answer {
    let kind = match slots {
        None => Kind::Unspecified,
        Some(Slots { shared: true, .. }) => Kind::Shared,
        Some(Slots { shared: false, .. }) => Kind::Dedicated,
    };
    let limit = slots.map(|slots| slots.count).unwrap_or_default();
    Answer { instance_type, limit, kind: kind.into() }
}
