//! What must hold for an object of a built-in kind, in the words of Kubernetes.
//!
//! The object has been through `decode`, `default` and `prepare_create` or `prepare_update`. Labels, annotations, owners and
//! finalizers in its metadata are the same for every kind and not looked at here; its name is.

mod container;
mod definition;
mod errors;
mod event;
mod job;
mod job_status;
mod lifecycle;
pub mod names;
mod pod;
mod selectors;
mod small;
mod volume;

use serde_json::Value;

use self::{errors::Errors, event::Via};
use super::{Builtin, Endpoint, look::text, to_core};
use crate::field::{FieldError, FieldPath};

/// What is wrong with an object that is being created.
pub fn validate_create(builtin: Builtin, object: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    name(&mut errors, builtin, object);
    match builtin {
        Builtin::Namespace => small::namespace(&mut errors, object, false),
        Builtin::Node => small::node(&mut errors, object),
        Builtin::Pod => pod::create(&mut errors, object),
        Builtin::ConfigMap => small::config_map(&mut errors, object),
        Builtin::Secret => small::secret(&mut errors, object),
        Builtin::PersistentVolumeClaim => small::claim(&mut errors, object),
        Builtin::CoreEvent => event::create(&mut errors, object, Via::Core),
        Builtin::Event => event::create(&mut errors, &to_core(object), Via::EventsV1),
        Builtin::Lease => small::lease(&mut errors, object),
        Builtin::Job => job::job(&mut errors, object),
        Builtin::CustomResourceDefinition => definition::create(&mut errors, object),
        Builtin::SelfSubjectAccessReview => small::access_review(&mut errors, object),
        Builtin::TokenReview if text(object, "spec.token").is_empty() => {
            errors.required(FieldPath::new("spec.token"), "");
        }
        Builtin::ServiceAccount | Builtin::SelfSubjectReview | Builtin::TokenReview => {}
    }
    errors.0
}

/// What is wrong with a change to an object.
pub fn validate_update(builtin: Builtin, endpoint: Endpoint, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    match endpoint {
        Endpoint::Main => main(&mut errors, builtin, new, old),
        Endpoint::Status => status(&mut errors, builtin, new, old),
        Endpoint::Finalize => small::namespace(&mut errors, new, true),
    }
    errors.0
}

fn main(errors: &mut Errors, builtin: Builtin, new: &Value, old: &Value) {
    match builtin {
        Builtin::Namespace => small::namespace(errors, new, false),
        Builtin::Node => {
            small::node(errors, new);
            small::node_update(errors, new, old);
        }
        Builtin::Pod => pod::update(errors, new, old),
        Builtin::ConfigMap => {
            small::frozen(errors, new, old, &["data", "binaryData"]);
            small::config_map(errors, new);
        }
        Builtin::Secret => {
            errors.unchanged(FieldPath::new("type"), new.get("type"), old.get("type"));
            small::frozen(errors, new, old, &["data"]);
            small::secret(errors, new);
        }
        Builtin::PersistentVolumeClaim => small::claim_update(errors, new, old),
        Builtin::CoreEvent => event::update(errors, new, old, Via::Core),
        Builtin::Event => event::update(errors, &to_core(new), &to_core(old), Via::EventsV1),
        Builtin::Lease => small::lease(errors, new),
        Builtin::Job => job::update(errors, new, old),
        Builtin::CustomResourceDefinition => definition::update(errors, new, old),
        Builtin::ServiceAccount
        | Builtin::SelfSubjectReview
        | Builtin::SelfSubjectAccessReview
        | Builtin::TokenReview => {}
    }
}

fn status(errors: &mut Errors, builtin: Builtin, new: &Value, old: &Value) {
    match builtin {
        Builtin::Namespace => small::namespace_status(errors, new),
        Builtin::Node => small::node_update(errors, new, old),
        Builtin::Pod => pod::update_status(errors, new, old),
        Builtin::Job => job_status::update(errors, new, old),
        Builtin::CustomResourceDefinition => definition::update_status(errors, new),
        Builtin::PersistentVolumeClaim
        | Builtin::ConfigMap
        | Builtin::Secret
        | Builtin::ServiceAccount
        | Builtin::CoreEvent
        | Builtin::Event
        | Builtin::Lease
        | Builtin::SelfSubjectReview
        | Builtin::SelfSubjectAccessReview
        | Builtin::TokenReview => {}
    }
}

/// The rule for the name of an object of this kind: the messages for what is wrong with it.
pub fn validate_name(builtin: Builtin, name: &str) -> Vec<String> {
    match builtin {
        Builtin::Namespace => names::dns_label(name),
        // An event of the old API may be called whatever fits into a path, and a review has no name.
        Builtin::CoreEvent
        | Builtin::SelfSubjectReview
        | Builtin::SelfSubjectAccessReview
        | Builtin::TokenReview => Vec::new(),
        Builtin::Node
        | Builtin::Pod
        | Builtin::ConfigMap
        | Builtin::Secret
        | Builtin::ServiceAccount
        | Builtin::PersistentVolumeClaim
        | Builtin::Event
        | Builtin::Lease
        | Builtin::Job
        | Builtin::CustomResourceDefinition => names::dns_subdomain(name),
    }
}

fn name(errors: &mut Errors, builtin: Builtin, object: &Value) {
    let path = FieldPath::new("metadata.name");
    let name = text(object, "metadata.name");
    if builtin.is_review() {
        return;
    }
    if name.is_empty() {
        errors.required(path, "name or generateName is required");
    } else {
        errors.messages(&path, name, validate_name(builtin, name));
    }
}

#[cfg(test)]
mod tests;
