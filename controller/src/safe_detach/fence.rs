//! Stopping or terminating an instance, so that its volumes may leave it: only with leave, behind a brake, and written down.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ebs_csi_proto::{Condition, Failure};
use ebs_csi_safe_detach::{Fact, Power, Verdict, decide_instance};
use ebs_csi_wire::InstanceId;
use tokio::time::Instant;

use super::evidence::instance_seen;
use crate::ec2::{Ec2, PowerOff};
use crate::ec2_failure::failure;
use crate::metrics::Metrics;
use crate::remembered::Remembered;

/// The brake's window.
pub(crate) const WINDOW: Duration = Duration::from_secs(600);
/// For so long it is remembered that this process fenced an instance.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// What a fence may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum FenceLeave {
    /// Nothing.
    #[default]
    Off,
    /// Stop instances.
    Stop,
    /// Stop and terminate them.
    Terminate,
}

impl FenceLeave {
    /// All, the least first.
    pub const ALL: [Self; 3] = [Self::Off, Self::Stop, Self::Terminate];

    /// The word of the flag.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Stop => "stop",
            Self::Terminate => "terminate",
        }
    }
}

impl fmt::Display for FenceLeave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl FromStr for FenceLeave {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|leave| leave.label() == text);
        found.ok_or_else(|| "give off, stop or terminate".to_owned())
    }
}

/// Settings of the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceSettings {
    /// What it may do.
    pub leave: FenceLeave,
    /// The brake: instances in ten minutes, at most.
    pub limit: u32,
}

impl Default for FenceSettings {
    fn default() -> Self {
        Self {
            leave: FenceLeave::Off,
            limit: 1,
        }
    }
}

/// One request for a fence.
#[derive(Clone, Debug)]
pub(super) struct Fence {
    pub(super) instance: InstanceId,
    pub(super) how: PowerOff,
    pub(super) reason: String,
    pub(super) dry_run: bool,
}

/// What was fenced, and how much more may be. Clones share everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fences {
    settings: FenceSettings,
    lately: Arc<Mutex<VecDeque<(Instant, InstanceId)>>>,
    done: Remembered<()>,
}

impl Fences {
    pub(crate) fn new(settings: FenceSettings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// Present when this process has fenced the instance.
    pub(crate) fn of(&self, instance: &InstanceId) -> Fact<()> {
        match self.done.get(instance.as_str()) {
            Some(()) => Fact::Present(()),
            None => Fact::Absent,
        }
    }

    /// Fences the instance, unless it is off or on its way there. The state that EC2 shows or answers; empty after a dry run.
    ///
    /// # Errors
    /// [`Condition::NotPrepared`] without leave, [`Condition::QuotaExhausted`] behind the brake, and what EC2 says.
    pub(super) async fn fence(
        &self,
        ec2: &Ec2,
        metrics: &Metrics,
        fence: &Fence,
    ) -> Result<String, Failure> {
        let Fence {
            instance,
            how,
            reason,
            dry_run,
        } = fence;
        tracing::warn!(
            node.id = instance.as_str(),
            mode = how.label(),
            reason,
            dry_run,
            "a fence is asked for"
        );
        let result = self.try_fence(ec2, fence).await;
        let outcome = match &result {
            Ok(_) if *dry_run => "allowed",
            Ok((_, true)) => "accepted",
            Ok((_, false)) => "not-needed",
            Err(failure) if failure.condition() == Condition::QuotaExhausted => "brake",
            Err(failure) if failure.condition() == Condition::NotPrepared => "no-leave",
            Err(_) => "failed",
        };
        metrics.fenced(how.label(), outcome);
        let error = result.as_ref().err().map(ToString::to_string);
        tracing::warn!(
            node.id = instance.as_str(),
            mode = how.label(),
            reason,
            outcome,
            error,
            "the fence"
        );
        result.map(|(state, _)| state)
    }

    /// The state, and whether anything was sent.
    async fn try_fence(&self, ec2: &Ec2, fence: &Fence) -> Result<(String, bool), Failure> {
        let Fence {
            instance,
            how,
            dry_run,
            ..
        } = fence;
        let needed = match how {
            PowerOff::Stop => FenceLeave::Stop,
            PowerOff::Terminate => FenceLeave::Terminate,
        };
        if self.settings.leave < needed {
            return Err(Failure::new(
                Condition::NotPrepared,
                format!(
                    "instance {instance} is left alone: --safe-detach-fence={} gives no leave to {} it",
                    self.settings.leave,
                    how.label()
                ),
            ));
        }
        let seen = ec2.look_instance(instance).await;
        let seen = instance_seen(&seen);
        if let Fact::Present(shown) = seen {
            let is_off = matches!(decide_instance(&seen, Fact::Absent), Verdict::Safe(_));
            if is_off || matches!(shown.power, Power::Stopping | Power::ShuttingDown) {
                return Ok((shown.power.label().to_owned(), false));
            }
        }
        // EC2 says whether it would be allowed before the brake is spent.
        ec2.may_power_off(instance, *how)
            .await
            .map_err(|e| failure(&e))?;
        if *dry_run {
            return Ok((String::new(), false));
        }
        self.spend(instance)?;
        let answered = ec2.power_off(instance, *how).await;
        if answered.is_ok() {
            self.done.put(instance.as_str(), (), REMEMBERED);
        }
        answered.map(|state| (state, true)).map_err(|e| failure(&e))
    }

    /// Counts the instance against the brake; a second request for the same one is free.
    fn spend(&self, instance: &InstanceId) -> Result<(), Failure> {
        let mut lately = self.lately.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while lately
            .front()
            .is_some_and(|(at, _)| now.duration_since(*at) >= WINDOW)
        {
            lately.pop_front();
        }
        if lately.iter().any(|(_, fenced)| fenced == instance) {
            return Ok(());
        }
        if lately.len() >= self.settings.limit as usize {
            return Err(Failure::new(
                Condition::QuotaExhausted,
                format!(
                    "instance {instance} is left alone: {} were fenced within {} minutes, as many as --safe-detach-fence-limit allows; look at what fails before you raise it",
                    lately.len(),
                    WINDOW.as_secs() / 60
                ),
            ));
        }
        lately.push_back((now, instance.clone()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_brake_holds_for_its_window_and_counts_an_instance_once() {
        let fences = Fences::new(FenceSettings {
            leave: FenceLeave::Stop,
            limit: 2,
        });
        let id = |n: u8| InstanceId::parse(&format!("i-0aaaaaaaaaaaaaaa{n}")).unwrap();
        for n in [1, 1, 2, 1] {
            fences.spend(&id(n)).unwrap();
        }
        let refused = fences.spend(&id(3)).unwrap_err();
        assert_eq!(refused.condition(), Condition::QuotaExhausted);
        tokio::time::advance(WINDOW).await;
        fences.spend(&id(3)).unwrap();
    }

    #[test]
    fn leave_is_ordered_and_read_as_it_is_written() {
        assert!(FenceLeave::Off < FenceLeave::Stop && FenceLeave::Stop < FenceLeave::Terminate);
        for leave in FenceLeave::ALL {
            assert_eq!(leave.to_string().parse(), Ok(leave));
        }
    }
}
