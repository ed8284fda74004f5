//! The kinds that are built in: what they look like, which values they take by default, what is wrong with an object of
//! theirs, and what the server fills in or refuses when one is written.
//!
//! Everything here is a pure function of objects. The server asks for it by matching on `Builtin`.

mod decode;
mod defaults;
mod definition;
mod events;
mod facts;
mod look;
mod prepare;
pub mod protobuf;
pub mod quantity;
mod resources;
mod reviews;
mod schema;

pub use decode::{DecodeError, DecodeProblem, decode};
pub use defaults::default;
pub use definition::{ConflictingName, NameConflict, crd_status, name_conflict};
pub use events::{to_core, to_events_v1};
pub use prepare::{prepare_create, prepare_update};
pub use resources::{resources, selectable_value};
pub use reviews::{User, self_subject_access_review, self_subject_review, token_review};
pub use schema::{component_name, openapi, schema};

use crate::resource::Scope;

/// A built-in kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Builtin {
    Namespace,
    Node,
    Pod,
    ConfigMap,
    Secret,
    ServiceAccount,
    PersistentVolumeClaim,
    /// `v1` Event.
    CoreEvent,
    /// `events.k8s.io/v1` Event; the same objects in another dress.
    Event,
    Lease,
    Job,
    CustomResourceDefinition,
    SelfSubjectReview,
    SelfSubjectAccessReview,
    TokenReview,
}

/// Through which door an existing object is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Endpoint {
    /// The object itself.
    Main,
    /// Its `status` subresource.
    Status,
    /// The `finalize` subresource of a namespace.
    Finalize,
}

impl Endpoint {
    /// As `managedFields[].subresource` names it.
    pub fn subresource(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Finalize => "finalize",
        }
    }
}

/// The names of a built-in kind.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub scope: Scope,
}

const fn namespaced(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
) -> Info {
    Info {
        group,
        version: "v1",
        kind,
        plural,
        singular,
        scope: Scope::Namespaced,
    }
}

const fn cluster(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
) -> Info {
    Info {
        group,
        version: "v1",
        kind,
        plural,
        singular,
        scope: Scope::Cluster,
    }
}

impl Builtin {
    pub const ALL: &'static [Self] = &[
        Self::Namespace,
        Self::Node,
        Self::Pod,
        Self::ConfigMap,
        Self::Secret,
        Self::ServiceAccount,
        Self::PersistentVolumeClaim,
        Self::CoreEvent,
        Self::Event,
        Self::Lease,
        Self::Job,
        Self::CustomResourceDefinition,
        Self::SelfSubjectReview,
        Self::SelfSubjectAccessReview,
        Self::TokenReview,
    ];

    pub const fn info(self) -> Info {
        match self {
            Self::Namespace => cluster("", "Namespace", "namespaces", "namespace"),
            Self::Node => cluster("", "Node", "nodes", "node"),
            Self::Pod => namespaced("", "Pod", "pods", "pod"),
            Self::ConfigMap => namespaced("", "ConfigMap", "configmaps", "configmap"),
            Self::Secret => namespaced("", "Secret", "secrets", "secret"),
            Self::ServiceAccount => namespaced("", "ServiceAccount", "serviceaccounts", "serviceaccount"),
            Self::PersistentVolumeClaim => namespaced(
                "",
                "PersistentVolumeClaim",
                "persistentvolumeclaims",
                "persistentvolumeclaim",
            ),
            Self::CoreEvent => namespaced("", "Event", "events", "event"),
            Self::Event => namespaced("events.k8s.io", "Event", "events", "event"),
            Self::Lease => namespaced("coordination.k8s.io", "Lease", "leases", "lease"),
            Self::Job => namespaced("batch", "Job", "jobs", "job"),
            Self::CustomResourceDefinition => cluster(
                "apiextensions.k8s.io",
                "CustomResourceDefinition",
                "customresourcedefinitions",
                "customresourcedefinition",
            ),
            Self::SelfSubjectReview => cluster(
                "authentication.k8s.io",
                "SelfSubjectReview",
                "selfsubjectreviews",
                "selfsubjectreview",
            ),
            Self::SelfSubjectAccessReview => cluster(
                "authorization.k8s.io",
                "SelfSubjectAccessReview",
                "selfsubjectaccessreviews",
                "selfsubjectaccessreview",
            ),
            Self::TokenReview => cluster(
                "authentication.k8s.io",
                "TokenReview",
                "tokenreviews",
                "tokenreview",
            ),
        }
    }

    /// A review answers a create and is not stored.
    pub const fn is_review(self) -> bool {
        matches!(
            self,
            Self::SelfSubjectReview | Self::SelfSubjectAccessReview | Self::TokenReview
        )
    }

    /// Whether the kind has a `status` subresource.
    pub const fn has_status(self) -> bool {
        matches!(
            self,
            Self::Namespace
                | Self::Node
                | Self::Pod
                | Self::PersistentVolumeClaim
                | Self::Job
                | Self::CustomResourceDefinition
        )
    }

    /// Whether the server counts `metadata.generation` for the kind.
    pub const fn has_generation(self) -> bool {
        matches!(self, Self::Pod | Self::Job | Self::CustomResourceDefinition)
    }
}
pub fn validate_create(_b: Builtin, _o: &serde_json::Value) -> Vec<crate::field::FieldError> { Vec::new() }
pub fn validate_update(_b: Builtin, _e: Endpoint, _n: &serde_json::Value, _o: &serde_json::Value) -> Vec<crate::field::FieldError> { Vec::new() }
