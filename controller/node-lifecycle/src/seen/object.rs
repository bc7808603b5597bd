//! Objects as they are read from the API server: only the fields that somebody looks at. The others are skipped while they are read, so that a
//! page of a list costs little more than its text.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::de::{Deserialize, DeserializeOwned, Deserializer};

/// What is kept of a kind of object.
pub trait Seen: Sized {
    /// The kind.
    type Kind: Resource<DynamicType = ()>;
    /// The fields of `spec` that matter.
    type Spec: DeserializeOwned + Default;
    /// The fields of `status` that matter.
    type Status: DeserializeOwned + Default;

    /// What matters of an object; `None`: nothing does.
    fn new(object: Object<Self::Spec, Self::Status>) -> Option<Self>;
}

/// An object's parts.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(bound = "S: DeserializeOwned + Default, U: DeserializeOwned + Default")]
pub struct Object<S, U> {
    /// `metadata`.
    #[serde(default)]
    pub metadata: Meta,
    /// `spec`.
    #[serde(default)]
    pub spec: S,
    /// `status`.
    #[serde(default)]
    pub status: U,
}

/// The fields of `metadata` that matter.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Empty in lists' and bookmarks' own metadata.
    pub name: String,
    /// Of namespaced objects.
    pub namespace: Option<String>,
    /// The object's, and no later one's of the same name.
    pub uid: String,
    /// Changes with every write.
    pub resource_version: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// When its deletion was asked for, if it was.
    pub deletion_timestamp: Option<Time>,
    /// What it belongs to.
    pub owner_references: Vec<Owner>,
}

/// An owner.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default)]
pub struct Owner {
    /// Its kind.
    pub kind: String,
    /// Its uid.
    pub uid: String,
    /// It is the one that manages the object.
    pub controller: bool,
}

/// How an object is found in a table: `NAMESPACE/NAME`, or the name alone.
pub fn key_of(meta: &ObjectMeta) -> String {
    let name = meta.name.as_deref().unwrap_or_default();
    match &meta.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

/// An object as it comes from a list or a watch: what matters of it, under its name and version.
#[derive(Debug)]
pub struct Watched<T> {
    meta: ObjectMeta,
    row: Option<Arc<T>>,
}

impl<T> Watched<T> {
    /// What matters of it; `None`: nothing does.
    pub fn row(self) -> Option<Arc<T>> {
        self.row
    }
}

impl<T> Clone for Watched<T> {
    fn clone(&self) -> Self {
        Self {
            meta: self.meta.clone(),
            row: self.row.clone(),
        }
    }
}

impl<'de, T: Seen> Deserialize<'de> for Watched<T> {
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

impl<T: Seen> Resource for Watched<T> {
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
