//! Objects as read from the API server. Of kinds with large objects, only the fields that are used
//! are parsed, and of every object only what is needed is kept, so that a page of a list costs
//! little more memory than its text.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::de::{Deserialize, DeserializeOwned, Deserializer};

/// The retained part of a kind of object.
pub(crate) trait Retained: Sized {
    type Kind: Resource<DynamicType = ()>;
    /// The used fields of `spec`.
    type Spec: DeserializeOwned + Default;
    /// The used fields of `status`.
    type Status: DeserializeOwned + Default;

    /// Creates the retained part of an object; `None` when nothing of the object is needed.
    fn new(object: Object<Self::Spec, Self::Status>) -> Option<Self>;
}

#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(bound = "S: DeserializeOwned + Default, U: DeserializeOwned + Default")]
pub(crate) struct Object<S, U> {
    #[serde(default)]
    pub(crate) metadata: Meta,
    #[serde(default)]
    pub(crate) spec: S,
    #[serde(default)]
    pub(crate) status: U,
}

/// The used fields of `metadata`. The name is empty in the metadata of lists and bookmarks.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Meta {
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) deletion_timestamp: Option<Time>,
    pub(crate) owner_references: Vec<Owner>,
}

#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Owner {
    pub(crate) kind: String,
    pub(crate) uid: String,
    /// Whether the owner manages the object.
    pub(crate) controller: bool,
}

/// Returns the key of an object in a table: `NAMESPACE/NAME`, or the name alone.
pub(crate) fn key_of(meta: &ObjectMeta) -> String {
    let name = meta.name.as_deref().unwrap_or_default();
    match &meta.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

/// An object from a list or a watch: its retained part, with its name and version.
#[derive(Debug)]
pub(crate) struct Watched<T> {
    meta: ObjectMeta,
    row: Option<Arc<T>>,
}

impl<T> Watched<T> {
    /// Returns the retained part; `None` when nothing of the object is needed.
    pub(crate) fn row(self) -> Option<Arc<T>> {
        self.row
    }
}

impl<T> Clone for Watched<T> {
    fn clone(&self) -> Self {
        Self { meta: self.meta.clone(), row: self.row.clone() }
    }
}

impl<'de, T: Retained> Deserialize<'de> for Watched<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Object::<T::Spec, T::Status>::deserialize(deserializer)?;
        let meta = ObjectMeta {
            name: Some(object.metadata.name.clone()),
            namespace: object.metadata.namespace.clone(),
            resource_version: Some(object.metadata.resource_version.clone()),
            ..ObjectMeta::default()
        };
        let row = T::new(object).map(Arc::new);
        Ok(Self { meta, row })
    }
}

impl<T: Retained> Resource for Watched<T> {
    type DynamicType = ();
    type Scope = <T::Kind as Resource>::Scope;

    fn kind(_: &()) -> Cow<'_, str> {
        T::Kind::kind(&())
    }

    fn group(_: &()) -> Cow<'_, str> {
        T::Kind::group(&())
    }

    fn version(_: &()) -> Cow<'_, str> {
        T::Kind::version(&())
    }

    fn plural(_: &()) -> Cow<'_, str> {
        T::Kind::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

/// Returns the retained part of an object that is given as JSON.
#[cfg(test)]
pub(crate) fn retained<T: Retained>(object: serde_json::Value) -> Option<T> {
    T::new(serde_json::from_value(object).expect("an object of that kind"))
}
