//! The table of everything served right now: built-in kinds plus what the CustomResourceDefinitions added.
//!
//! A table is immutable; a change makes a new one. Requests keep the table they started with.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use serde_json::Value;

use crate::{
    builtin::{self, Builtin},
    discovery, openapi,
    resource::{Resource, Version},
    schema,
    store::{Collection, Object},
};

/// An immutable table of resources.
#[derive(Debug)]
pub(crate) struct Registry {
    resources: Vec<Arc<Resource>>,
    /// What is served under each plural name, in each group and version.
    by_plural: HashMap<String, Vec<Served>>,
    /// Made when the first client asks; most never do.
    documents: OnceLock<Vec<Document>>,
}

/// The OpenAPI document of one group and version.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) path: String,
    pub(crate) hash: String,
    pub(crate) bytes: Bytes,
}

impl Registry {
    pub(crate) fn new(custom: impl IntoIterator<Item = Arc<Resource>>) -> Self {
        let mut resources: Vec<Arc<Resource>> = builtin::resources().into_iter().map(Arc::new).collect();
        resources.extend(custom);
        let mut by_plural: HashMap<String, Vec<Served>> = HashMap::new();
        for resource in &resources {
            for index in 0..resource.versions.len() {
                let served = Served {
                    resource: resource.clone(),
                    index,
                };
                if served.version().served {
                    by_plural.entry(resource.plural.clone()).or_default().push(served);
                }
            }
        }
        Self {
            resources,
            by_plural,
            documents: OnceLock::new(),
        }
    }

    pub(crate) fn resources(&self) -> &[Arc<Resource>] {
        &self.resources
    }

    /// The resource and its version behind `/apis/<group>/<version>/…/<plural>`.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Served> {
        let mut namesakes = self.by_plural.get(plural)?.iter();
        namesakes
            .find(|served| served.resource.group == group && served.version().name == version)
            .cloned()
    }

    /// The resource that owns a collection, at the version its objects are stored in.
    pub(crate) fn of_collection(&self, collection: &Collection) -> Option<Served> {
        let resource = self
            .resources
            .iter()
            .find(|resource| resource.collection == *collection)?
            .clone();
        let index = resource.versions.iter().position(|version| version.storage)?;
        Some(Served { resource, index })
    }

    /// The OpenAPI documents of this table.
    pub(crate) fn documents(&self) -> &[Document] {
        self.documents.get_or_init(|| {
            let group_versions = discovery::group_versions(&self.resources).into_iter();
            group_versions
                .map(|(group, version)| self.make_document(group, version))
                .collect()
        })
    }

    fn make_document(&self, group: &str, version: &str) -> Document {
        let mut components = serde_json::Map::new();
        let of_group = self.resources.iter().filter(|resource| resource.group == group);
        for kind in of_group.filter_map(|resource| resource.builtin) {
            if let Value::Object(found) = builtin::openapi(kind) {
                components.extend(found.iter().map(|(name, schema)| (name.clone(), schema.clone())));
            }
        }
        let document = openapi::document(&self.resources, group, version, &components);
        let bytes: Bytes = document.to_string().into();
        Document {
            path: openapi::path(group, version),
            hash: discovery::content_hash(&bytes),
            bytes,
        }
    }
}

/// A resource at one of its versions.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) resource: Arc<Resource>,
    index: usize,
}

impl Served {
    pub(crate) fn version(&self) -> &Version {
        // The index was found in this very resource, which never changes.
        &self.resource.versions[self.index]
    }

    pub(crate) fn api_version(&self) -> String {
        self.resource.api_version(&self.version().name)
    }

    /// The version in which objects are stored.
    fn storage(&self) -> &Version {
        let stored = self.resource.versions.iter().find(|version| version.storage);
        stored.unwrap_or(self.version())
    }
}

impl Served {
    /// The stored bytes, where they are exactly what this version shows.
    pub(crate) fn raw<'o>(&self, object: &'o Object) -> Option<&'o Bytes> {
        let version = self.version();
        let current = object.revision >= version.since_revision;
        (version.storage && current && self.resource.builtin != Some(Builtin::Event)).then_some(&object.json)
    }

    /// A stored object as this version shows it.
    pub(crate) fn present(&self, object: &Object) -> Value {
        let mut value = object.value();
        let storage = self.storage();
        if object.revision < storage.since_revision {
            // The definition has changed since, perhaps even the version in which objects are stored.
            self.dress(&mut value, storage);
            schema::default::default_in_place(&mut value, &storage.schema);
        }
        self.present_value(value)
    }

    /// An object in its stored form as this version shows it.
    pub(crate) fn present_value(&self, mut value: Value) -> Value {
        if self.resource.builtin == Some(Builtin::Event) {
            return builtin::to_events_v1(&value);
        }
        if !self.version().storage {
            self.dress(&mut value, self.version());
        }
        value
    }

    /// An object of this version in the form in which it is stored. What the stored version does not know is lost, as in
    /// every conversion that only changes the version.
    pub(crate) fn to_storage(&self, mut value: Value) -> Value {
        if self.resource.builtin == Some(Builtin::Event) {
            return builtin::to_core(&value);
        }
        if !self.version().storage {
            let storage = self.storage();
            self.dress(&mut value, storage);
            schema::default::default_in_place(&mut value, &storage.schema);
        }
        value
    }

    /// Makes an object one of another version.
    fn dress(&self, value: &mut Value, version: &Version) {
        value["apiVersion"] = self.resource.api_version(&version.name).into();
        schema::prune::prune(value, &version.schema, true, None);
    }
}
