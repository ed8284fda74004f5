//! What a request is about, and who sent it.

use crate::{error::Subject, server::registry::Served, store::Key};

/// Who sent a request.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Caller {
    pub user: String,
    pub groups: Vec<String>,
}

impl Caller {
    /// A caller inside the server itself.
    pub fn system(name: &str) -> Self {
        Self { user: format!("system:{name}"), groups: vec!["system:masters".to_owned()] }
    }
}

/// The part of an object that a request addresses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Part {
    Whole,
    Status,
    /// `namespaces/<name>/finalize`: only `spec.finalizers` changes.
    Finalize,
}

impl Part {
    /// As `managedFields[].subresource` names it.
    pub fn subresource(self) -> &'static str {
        match self {
            Self::Whole => "",
            Self::Status => "status",
            Self::Finalize => "finalize",
        }
    }
}

/// One object, or a collection of them where `name` is empty.
#[derive(Clone, Debug)]
pub struct Target {
    pub served: Served,
    /// Empty for cluster-scoped kinds and for lists over all namespaces.
    pub namespace: String,
    pub name: String,
    pub part: Part,
}

impl Target {
    pub fn new(served: Served, namespace: &str, name: &str) -> Self {
        Self { served, namespace: namespace.to_owned(), name: name.to_owned(), part: Part::Whole }
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
