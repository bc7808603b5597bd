//! The files of `policy/iam`, also with single actions removed.

use std::collections::BTreeMap;

use ebs_csi_e2e::repository;
use ec2_sim::{Document, OneOrMany};

use super::CLUSTER;

#[derive(Clone, Debug)]
pub(crate) struct Policies(pub(super) BTreeMap<String, Document>);

/// Reads files of `policy/iam`, with the cluster's name where an operator writes it.
pub(crate) fn read_policies(names: &[&str]) -> Policies {
    let read = |name: &&str| {
        let text = repository::read(&format!("policy/iam/{name}.json"));
        let text = text.replace("/NAME", &format!("/{CLUSTER}"));
        let document: Document = serde_json::from_str(&text).expect("a policy document");
        ((*name).to_owned(), document)
    };
    Policies(names.iter().map(read).collect())
}

impl Policies {
    pub(super) fn without(&self, policy: &str, statement: &str, action: &str) -> Self {
        let mut out = self.clone();
        let document = out.0.get_mut(policy).expect("the policy");
        let mut statements = document.statement.all().to_vec();
        for s in &mut statements {
            if s.sid.as_deref() == Some(statement) {
                let mut left = s.action.all().to_vec();
                left.retain(|a| a != action);
                s.action = OneOrMany::Many(left);
            }
        }
        statements.retain(|s| !s.action.all().is_empty());
        document.statement = OneOrMany::Many(statements);
        out
    }
}
