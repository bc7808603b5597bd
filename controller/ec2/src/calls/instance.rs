//! Calls about instances.

use aws_sdk_ec2::types as sdk;
use ebs_csi_wire::InstanceId;

use crate::call::Call;
use crate::calls::Action;
use crate::client::Ec2;
use crate::describe::page::read_all;
use crate::error::Ec2Error;
use crate::model::instance::InstanceType;
use crate::sdk::call::{accept_dry_run, send};

/// How an instance is turned off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerOff {
    /// Stop the instance; its volumes stay.
    Stop,
    /// Terminate the instance for good.
    Terminate,
}

impl PowerOff {
    /// Returns the word in metrics and log lines.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Terminate => "terminate",
        }
    }
}

impl Ec2 {
    /// Returns what an instance type can attach. Asks by name, because a page of a filtered list
    /// may lack the type.
    ///
    /// # Errors
    /// Those of every call; EC2 refuses a name that it does not know.
    pub async fn instance_type(
        &self,
        call: &Call,
        name: &str,
    ) -> Result<Option<InstanceType>, Ec2Error> {
        let action = Action::DescribeInstanceTypes;
        self.core
            .read(call, action, || async {
                let request =
                    self.core.client.describe_instance_types().instance_types(name.into());
                let output = send!(action, request);
                let found = read_all(action, output.instance_types(), InstanceType::read)?;
                Ok(found.into_iter().find(|kind| kind.name == name))
            })
            .await
    }

    /// Checks by a dry run, which changes nothing, whether the instance may be stopped or
    /// terminated.
    ///
    /// # Errors
    /// [`Unauthorized`](crate::Ec2ErrorKind::Unauthorized) when it may not, and the errors of
    /// every call.
    pub async fn may_power_off(
        &self,
        call: &Call,
        instance: &InstanceId,
        how: PowerOff,
    ) -> Result<(), Ec2Error> {
        accept_dry_run(self.send_power_off(call, instance, how, true).await.map(drop))
    }

    /// Stops or terminates the instance. Returns as soon as EC2 accepts, with the state that EC2
    /// then shows.
    ///
    /// A stop is forced: EC2 asks the guest to shut down, and stops the instance without the guest
    /// when the guest does not answer (EC2 API reference, `StopInstances`, `Force`).
    ///
    /// # Errors
    /// Any [`Ec2Error`]; after one that may have happened, look at the instance.
    pub async fn power_off(
        &self,
        call: &Call,
        instance: &InstanceId,
        how: PowerOff,
    ) -> Result<String, Ec2Error> {
        self.send_power_off(call, instance, how, false).await
    }

    async fn send_power_off(
        &self,
        call: &Call,
        instance: &InstanceId,
        how: PowerOff,
        dry_run: bool,
    ) -> Result<String, Ec2Error> {
        let (client, dry_run) = (&self.core.client, dry_run.then_some(true));
        match how {
            PowerOff::Stop => {
                let action = Action::StopInstances;
                self.core
                    .send_change(call, action, || async {
                        let request = client.stop_instances().instance_ids(instance.as_str());
                        let output = send!(action, request.force(true).set_dry_run(dry_run));
                        Ok(state(output.stopping_instances()))
                    })
                    .await
            }
            PowerOff::Terminate => {
                let action = Action::TerminateInstances;
                self.core
                    .send_change(call, action, || async {
                        let request = client.terminate_instances().instance_ids(instance.as_str());
                        let output = send!(action, request.set_dry_run(dry_run));
                        Ok(state(output.terminating_instances()))
                    })
                    .await
            }
        }
    }
}

fn state(changes: &[sdk::InstanceStateChange]) -> String {
    let state = changes.first().and_then(|change| change.current_state()?.name());
    state.map_or_else(String::new, |name| name.as_str().to_owned())
}
