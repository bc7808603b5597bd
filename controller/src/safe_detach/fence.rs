//! Stops or terminates an instance, so that its volumes may leave it: only when permitted, limited
//! by a brake, and logged.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebs_csi_ec2::{Call, Ec2, Ec2Error, ExpiringCache, Instance, LookResult, PowerOff, Volume};
use ebs_csi_parameters::tag::{CLAIM_NAME, CLUSTER, VOLUME_NAME};
use ebs_csi_proto::{Condition, Failure, lock};
use ebs_csi_safe_detach::{Fact, Power, Verdict, decide_instance};
use ebs_csi_wire::{InstanceId, VolumeId, listed_enum};
use tokio::time::Instant;

use super::checks;
use super::evidence::instance_look_to_fact;
use crate::metrics::Metrics;

/// The brake's window.
const WINDOW: Duration = Duration::from_secs(600);
/// How long this process remembers that it fenced an instance.
const FENCE_TTL: Duration = Duration::from_secs(3600);

listed_enum! {
    /// What a fence may do, the least permission first; the labels are the values of the flag.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum FencePermission with pub fn label -> &'static str {
        /// Nothing.
        Off = "off",
        /// Stop instances.
        Stop = "stop",
        /// Stop and terminate them.
        Terminate = "terminate",
    }
}

impl fmt::Display for FencePermission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl FromStr for FencePermission {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|permission| permission.label() == text);
        found.ok_or_else(|| "give off, stop or terminate".to_owned())
    }
}

/// Settings of the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceSettings {
    /// What a fence may do.
    pub permission: FencePermission,
    /// The brake: the most instances in ten minutes.
    pub limit: u32,
}

impl Default for FenceSettings {
    fn default() -> Self {
        Self { permission: FencePermission::Off, limit: 1 }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Fence {
    pub(super) instance: InstanceId,
    pub(super) how: PowerOff,
    /// The process that asks, and its reason.
    pub(super) by: String,
    pub(super) dry_run: bool,
    /// Whether to refuse the fence while EC2's status checks pass or are unknown.
    pub(super) only_impaired: bool,
}

/// A fence that was refused or failed: the outcome for the metric, and the failure for the caller.
struct FenceError {
    outcome: &'static str,
    failure: Failure,
}

impl From<Ec2Error> for FenceError {
    fn from(error: Ec2Error) -> Self {
        Self { outcome: "failed", failure: error.into() }
    }
}

/// The instances that this process fenced, and the count for the brake. Clones share their state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fences {
    settings: FenceSettings,
    recent: Arc<Mutex<VecDeque<(Instant, InstanceId)>>>,
    done: ExpiringCache<()>,
}

impl Fences {
    pub(crate) fn new(settings: FenceSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Returns `Present` when this process has fenced the instance.
    pub(crate) fn of(&self, instance: &InstanceId) -> Fact<()> {
        match self.done.get(instance.as_str()) {
            Some(()) => Fact::Present(()),
            None => Fact::Absent,
        }
    }

    /// Fences the instance, unless it is off or on its way there. Returns the state that EC2 shows
    /// or answers; empty when a dry run would have fenced.
    ///
    /// # Errors
    /// [`Condition::NotPrepared`] without permission, when the status checks were required to fail
    /// and do not, or when EC2 would delete a claim's volume; [`Condition::QuotaExhausted`] when
    /// the brake holds; and EC2's errors.
    pub(super) async fn fence(
        &self,
        ec2: &Ec2,
        call: &Call,
        metrics: &Metrics,
        fence: &Fence,
    ) -> Result<String, Failure> {
        let Fence { instance, how, by, dry_run, only_impaired } = fence;
        tracing::warn!(
            node.id = instance.as_str(),
            mode = how.label(),
            by,
            dry_run,
            only_impaired,
            "a fence is asked for"
        );
        let result = self.try_fence(ec2, call, fence).await;
        let outcome = match &result {
            Ok(_) if *dry_run => "allowed",
            Ok((_, true)) => "accepted",
            Ok((_, false)) => "not-needed",
            Err(error) => error.outcome,
        };
        metrics.fenced(how.label(), outcome);
        let error = result.as_ref().err().map(|not| not.failure.to_string());
        tracing::warn!(
            node.id = instance.as_str(),
            mode = how.label(),
            by,
            outcome,
            error,
            "the fence"
        );
        result.map(|(state, _)| state).map_err(|error| error.failure)
    }

    /// Returns the state, and whether anything was sent.
    async fn try_fence(
        &self,
        ec2: &Ec2,
        call: &Call,
        fence: &Fence,
    ) -> Result<(String, bool), FenceError> {
        let Fence { instance, how, dry_run, .. } = fence;
        let required = match how {
            PowerOff::Stop => FencePermission::Stop,
            PowerOff::Terminate => FencePermission::Terminate,
        };
        if self.settings.permission < required {
            let text = format!(
                "instance {instance} is left alone: --safe-detach-fence={} gives no leave to {} it",
                self.settings.permission,
                how.label()
            );
            return Err(FenceError {
                outcome: "no-leave",
                failure: Failure::new(Condition::NotPrepared, text),
            });
        }
        let look = ec2.look_instance(call, instance).await;
        let fact = instance_look_to_fact(&look);
        if let Fact::Present(shown) = fact {
            let is_off = matches!(decide_instance(&fact, Fact::Absent), Verdict::Safe(_));
            if is_off || matches!(shown.power, Power::Stopping | Power::ShuttingDown) {
                return Ok((shown.power.label().to_owned(), false));
            }
        }
        if fence.only_impaired {
            require_impaired(ec2, call, instance).await?;
        }
        if *how == PowerOff::Terminate {
            require_kept_volumes(ec2, call, look).await?;
        }
        // EC2 says whether the call is permitted before the brake counts it.
        ec2.may_power_off(call, instance, *how).await?;
        if *dry_run {
            return Ok((String::new(), false));
        }
        self.count_against_limit(instance)?;
        let answered = ec2.power_off(call, instance, *how).await;
        if answered.is_ok() {
            self.done.put(instance.as_str(), (), FENCE_TTL);
        }
        Ok((answered?, true))
    }

    /// Counts the instance against the brake; a second request for the same instance is not
    /// counted.
    fn count_against_limit(&self, instance: &InstanceId) -> Result<(), FenceError> {
        let mut recent = lock(&self.recent);
        let now = Instant::now();
        while recent.front().is_some_and(|(at, _)| now.duration_since(*at) >= WINDOW) {
            recent.pop_front();
        }
        if recent.iter().any(|(_, fenced)| fenced == instance) {
            return Ok(());
        }
        if recent.len() >= self.settings.limit as usize {
            let text = format!(
                "instance {instance} is left alone: {} were fenced within {} minutes, as many as --safe-detach-fence-limit allows; look at what fails before you raise it",
                recent.len(),
                WINDOW.as_secs() / 60
            );
            return Err(FenceError {
                outcome: "brake",
                failure: Failure::new(Condition::QuotaExhausted, text),
            });
        }
        recent.push_back((now, instance.clone()));
        Ok(())
    }
}

/// Refuses the fence unless EC2's status checks fail now: they may have passed again since the
/// caller saw them.
async fn require_impaired(ec2: &Ec2, call: &Call, instance: &InstanceId) -> Result<(), FenceError> {
    let status = ec2.look_instance_status(call, instance).await;
    let text = checks::describe(instance, &status);
    if checks::impaired(&status) == Fact::Present(()) {
        tracing::warn!(node.id = instance.as_str(), text, "its checks fail");
        return Ok(());
    }
    if let LookResult::Unknown(error) = status {
        return Err(error.into());
    }
    let text = format!(
        "instance {instance} is left alone: it was to be fenced only while its status checks fail, and they do not; {text}. Bring its node back, or power it off by hand"
    );
    Err(FenceError { outcome: "not-impaired", failure: Failure::new(Condition::NotPrepared, text) })
}

/// Refuses to terminate an instance with which EC2 would delete a volume of a claim. AttachVolume
/// leaves `DeleteOnTermination` off, but ModifyInstanceAttribute can set it later.
async fn require_kept_volumes(
    ec2: &Ec2,
    call: &Call,
    look: LookResult<Instance>,
) -> Result<(), FenceError> {
    let instance = match look {
        LookResult::Present(instance) => instance,
        // EC2 refuses the call itself.
        LookResult::Absent => return Ok(()),
        LookResult::Unknown(error) => return Err(error.into()),
    };
    let deleted: Vec<VolumeId> = instance
        .devices
        .iter()
        .filter(|device| device.delete_on_termination)
        .filter_map(|device| device.volume.clone())
        .filter(|volume| instance.root_device_of(volume).is_none())
        .collect();
    for look in ec2.look_volumes(call, &deleted).await {
        let volume = match look {
            LookResult::Present(volume) => volume,
            LookResult::Absent => continue,
            LookResult::Unknown(error) => return Err(error.into()),
        };
        if is_of_claim(&volume) {
            let text = format!(
                "instance {} is left alone: EC2 would delete volume {} with it (DeleteOnTermination is set); clear that flag with ModifyInstanceAttribute, or stop the instance instead",
                instance.id, volume.id
            );
            let failure = Failure::new(Condition::NotPrepared, text);
            return Err(FenceError { outcome: "volume-deleted", failure });
        }
    }
    Ok(())
}

/// Returns whether this driver, the Go driver or the in-tree driver made the volume.
fn is_of_claim(volume: &Volume) -> bool {
    [VOLUME_NAME, CLUSTER, CLAIM_NAME].iter().any(|key| volume.tags.contains_key(*key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn fence_limit_counts_each_instance_once_per_window() {
        let fences = Fences::new(FenceSettings { permission: FencePermission::Stop, limit: 2 });
        let id = |n: u8| InstanceId::parse(&format!("i-0aaaaaaaaaaaaaaa{n}")).unwrap();
        for n in [1, 1, 2, 1] {
            assert!(fences.count_against_limit(&id(n)).is_ok());
        }
        let refused = fences.count_against_limit(&id(3)).err().unwrap();
        assert_eq!(refused.failure.condition(), Condition::QuotaExhausted);
        assert_eq!(refused.outcome, "brake");
        tokio::time::advance(WINDOW).await;
        assert!(fences.count_against_limit(&id(3)).is_ok());
    }

    #[test]
    fn fence_permissions_are_ordered_and_round_trip() {
        assert!(
            FencePermission::Off < FencePermission::Stop
                && FencePermission::Stop < FencePermission::Terminate
        );
        for permission in FencePermission::ALL {
            assert_eq!(permission.to_string().parse(), Ok(permission));
        }
    }
}
