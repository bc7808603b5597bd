//! CSINodes: what kubelet recorded when this driver registered with it.

use ebs_csi_proto::DRIVER_NAME;
use ebs_csi_wire::InstanceId;
use k8s_openapi::api::storage::v1::{CSINode, CSINodeSpec};
use serde::de::IgnoredAny;

use super::object_table::{TableRow, Texts};
use super::{Object, Retained};

const NAME: usize = 0;
const NODE_UID: usize = 1;
const INSTANCE: usize = 2;

/// This driver's entry in a CSINode.
#[derive(Clone, Debug)]
pub(crate) struct CsiNodeRow {
    texts: Texts<3>,
    has_volume_limit: bool,
}

impl TableRow for CsiNodeRow {
    fn key(&self) -> &str {
        self.texts.get(NAME)
    }
}

impl Retained for CsiNodeRow {
    type Kind = CSINode;
    type Spec = CSINodeSpec;
    type Status = IgnoredAny;

    /// Returns `None` while this driver is not registered on the node.
    fn new(object: Object<CSINodeSpec, IgnoredAny>) -> Option<Self> {
        let meta = object.metadata;
        let mut drivers = object.spec.drivers.into_iter();
        let ours = drivers.find(|driver| driver.name == DRIVER_NAME)?;
        let owner = meta.owner_references.iter().find(|o| o.kind == "Node");
        let instance = ours.node_id.parse::<InstanceId>();
        Some(Self {
            has_volume_limit: ours.allocatable.and_then(|of| of.count).is_some(),
            texts: Texts::new([
                &meta.name,
                owner.map_or("", |owner| &owner.uid),
                instance.as_ref().map_or("", InstanceId::as_str),
            ]),
        })
    }
}

impl CsiNodeRow {
    /// Returns the instance, when the CSINode belongs to the Node object with this uid: a CSINode
    /// that outlived its Node may name an instance that had the node's name before.
    pub(crate) fn instance_of(&self, node_uid: &str) -> Option<&str> {
        let instance = self.texts.get(INSTANCE);
        (self.belongs_to(node_uid) && !instance.is_empty()).then_some(instance)
    }

    /// Returns whether the driver is registered at the Node with this uid and has reported how many
    /// volumes it takes.
    pub(crate) fn reports_volume_limit(&self, node_uid: &str) -> bool {
        self.has_volume_limit && self.belongs_to(node_uid)
    }

    /// Returns whether the driver is registered at the Node with this uid.
    pub(crate) fn belongs_to(&self, node_uid: &str) -> bool {
        !node_uid.is_empty() && self.texts.get(NODE_UID) == node_uid
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::object::retained;
    use serde_json::{Value, json};

    fn row(spec: Value) -> Option<CsiNodeRow> {
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"});
        retained(json!({"metadata": {"name": "n", "ownerReferences": [owner]}, "spec": spec}))
    }

    #[test]
    fn only_this_drivers_entry_counts() {
        let other =
            json!({"name": "other.example.com", "nodeID": "x", "allocatable": {"count": 3}});
        assert!(row(json!({"drivers": [other]})).is_none());
        assert!(row(json!({"drivers": null})).is_none() && row(json!({})).is_none());
        let ours =
            json!({"name": DRIVER_NAME, "nodeID": "i-0123456789abcdef0", "topologyKeys": []});
        let registered = row(json!({"drivers": [other, ours]})).expect("ours");
        assert_eq!(registered.instance_of("u"), Some("i-0123456789abcdef0"));
        assert_eq!(registered.instance_of("v"), None, "of another Node object");
        assert_eq!(registered.instance_of(""), None);
        assert!(!registered.reports_volume_limit("u"), "no limit is reported");
        let strange = json!({"name": DRIVER_NAME, "nodeID": "host-1", "allocatable": {"count": 0}});
        let strange = row(json!({"drivers": [strange]})).expect("ours");
        assert_eq!(strange.instance_of("u"), None, "no instance's id");
        assert!(strange.reports_volume_limit("u") && !strange.reports_volume_limit("v"));
    }
}
