//! DescribeInstanceTypes.

use crate::call::Call;
use crate::calls::Action;
use crate::client::Ec2;
use crate::describe::page::read_all;
use crate::error::Ec2Error;
use crate::model::instance::InstanceType;
use crate::sdk::call::send;

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
}
