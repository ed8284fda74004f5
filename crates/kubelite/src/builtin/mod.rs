//! The kinds that are built in: what they look like, which values they take by default, what is wrong with an object of
//! theirs, and what the server fills in or refuses when one is written.
//!
//! Everything here is a pure function of objects. The server asks for it by matching on `Builtin`.

mod components;
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
pub mod validate;

pub use components::{component_name, openapi};
pub use decode::{DecodeError, DecodeProblem, decode};
pub use defaults::default;
pub use definition::{ConflictingName, NameConflict, crd_status, name_conflict};
pub use events::{to_core, to_events_v1};
pub use prepare::{grace_period, prepare_create, prepare_update};
pub use resources::{resources, selectable_value};
pub use reviews::{User, self_subject_access_review, self_subject_review, token_review};
pub use schema::schema;
pub use validate::{validate_create, validate_name, validate_update};

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

    /// Whether an update of an object that does not exist creates it.
    pub const fn creates_on_update(self) -> bool {
        matches!(self, Self::CoreEvent | Self::Event | Self::Lease)
    }

    /// Whether an update may leave out the version of the object that it is based on.
    pub const fn allows_unconditional_update(self) -> bool {
        !matches!(self, Self::Lease | Self::CustomResourceDefinition)
    }

    /// Whether the server counts `metadata.generation` for the kind.
    pub const fn has_generation(self) -> bool {
        matches!(self, Self::Pod | Self::Job | Self::CustomResourceDefinition)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// Values of every type, with the names of fields that the hooks look for.
    fn anything() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-z0-9.]{0,4}".prop_map(Value::from),
        ];
        let names = prop::sample::select(vec![
            "spec",
            "status",
            "metadata",
            "name",
            "labels",
            "template",
            "containers",
            "volumes",
            "env",
            "ports",
            "selector",
            "resources",
            "limits",
            "conditions",
            "type",
            "rules",
            "podFailurePolicy",
            "versions",
            "names",
            "data",
            "schema",
            "finalizers",
            "taints",
            "eventTime",
            "series",
            "topologySpreadConstraints",
            "affinity",
            "uid",
            "secrets",
        ]);
        leaf.prop_recursive(6, 64, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(names.clone(), inner, 0..6).prop_map(|map| map
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_object_makes_a_hook_panic(mut object in anything(), other in anything(), index in 0..Builtin::ALL.len()) {
            let builtin = Builtin::ALL[index];
            let _ = decode(builtin, &mut object.clone());
            default(builtin, &mut object);
            prepare_create(builtin, &mut object);
            let _ = validate_create(builtin, &object);
            for endpoint in [Endpoint::Main, Endpoint::Status, Endpoint::Finalize] {
                prepare_update(builtin, endpoint, &mut object, &other);
                let _ = validate_update(builtin, endpoint, &object, &other);
            }
            let _ = (to_core(&object), to_events_v1(&object));
            let _ = crd_status(&object, name_conflict(&object, [&other]).as_ref(), "2024-05-01T12:00:00Z");
            let _ = (self_subject_access_review(&object), token_review(&object, None));
        }
    }

    #[test]
    fn reading_and_defaulting_twice_changes_nothing() {
        let mut job = json!({
            "metadata": {"name": "j"},
            "spec": {"template": {"spec": {"containers": [{
                "name": "c", "image": "i", "resources": {"limits": {"cpu": "0.5"}},
                "livenessProbe": {"tcpSocket": {"port": "web"}},
            }], "volumes": [{"name": "v"}]}}},
        });
        decode(Builtin::Job, &mut job).unwrap();
        default(Builtin::Job, &mut job);
        let once = job.clone();
        decode(Builtin::Job, &mut job).unwrap();
        default(Builtin::Job, &mut job);
        assert_eq!(job, once);
    }
}
