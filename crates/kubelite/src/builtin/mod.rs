//! The kinds that are built in.

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
