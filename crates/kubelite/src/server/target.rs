//! What a request is about.

use crate::{builtin::Endpoint, error::Subject, server::registry::Served, store::Key};

/// One object, or a collection of them where `name` is empty.
#[derive(Clone, Debug)]
pub struct Target {
    pub served: Served,
    /// Empty for cluster-scoped kinds and for lists over all namespaces.
    pub namespace: String,
    pub name: String,
    pub endpoint: Endpoint,
}

impl Target {
    pub fn new(served: Served, namespace: &str, name: &str) -> Self {
        Self { served, namespace: namespace.to_owned(), name: name.to_owned(), endpoint: Endpoint::Main }
    }

    pub fn key(&self) -> Key {
        Key { namespace: self.namespace.as_str().into(), name: self.name.as_str().into() }
    }

    pub fn subject(&self) -> Subject<'_> {
        self.subject_named(&self.name)
    }

    pub fn subject_named<'a>(&'a self, name: &'a str) -> Subject<'a> {
        Subject {
            group: &self.served.resource.group,
            resource: &self.served.resource.plural,
            kind: &self.served.resource.kind,
            name,
        }
    }
}
