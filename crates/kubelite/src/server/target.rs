//! What a request is about.

use crate::{builtin::Endpoint, error::Subject, server::registry::Served, store::Key};

/// One object, or a collection of them where `name` is empty.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) served: Served,
    /// Empty for cluster-scoped kinds and for lists over all namespaces.
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) endpoint: Endpoint,
}

impl Target {
    pub(crate) fn new(served: Served, namespace: &str, name: &str) -> Self {
        Self {
            served,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            endpoint: Endpoint::Main,
        }
    }

    pub(crate) fn key(&self) -> Key {
        Key {
            namespace: self.namespace.as_str().into(),
            name: self.name.as_str().into(),
        }
    }

    pub(crate) fn subject(&self) -> Subject<'_> {
        self.subject_named(&self.name)
    }

    pub(crate) fn subject_named<'a>(&'a self, name: &'a str) -> Subject<'a> {
        Subject {
            group: &self.served.resource.group,
            resource: &self.served.resource.plural,
            kind: &self.served.resource.kind,
            name,
        }
    }
}
