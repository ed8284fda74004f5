//! Why an apply fails, in the words of Kubernetes.

use std::fmt;

use serde_json::Value;

use super::{
    managed_of,
    shape::Shape,
    validate::{Misfit, misfits},
};
use crate::error::{ApiError, Cause, Reason};

/// A field that someone else owns with another value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Conflict {
    /// The owner, as messages name it: `"kubectl" using v1`.
    pub manager: String,
    pub field: String,
}

/// Why an object cannot be applied.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ApplyError {
    #[error("{}", describe(.0))]
    Conflicts(Vec<Conflict>),
    #[error("error decoding YAML: the applied configuration is not an object")]
    NotAnObject,
    #[error("invalid object type: {0}")]
    WrongType(ObjectType),
    #[error("metadata.managedFields must be nil")]
    ManagedFieldsGiven,
    #[error("failed to create typed patch object ({object}): {}", list(.misfits))]
    Misfits {
        object: ObjectName,
        misfits: Vec<Misfit>,
    },
}

/// Group, version and kind as Go prints them: `apps/v1, Kind=Deployment`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ObjectType {
    api_version: String,
    kind: String,
}

impl fmt::Display for ObjectType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.api_version.contains('/') { "" } else { "/" };
        write!(f, "{slash}{}, Kind={}", self.api_version, self.kind)
    }
}

/// Which object it is about: `default/web; apps/v1, Kind=Deployment`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ObjectName {
    namespace: String,
    name: String,
    type_: ObjectType,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}; {}", self.namespace, self.name, self.type_)
    }
}

fn describe(conflicts: &[Conflict]) -> String {
    if let [Conflict { manager, field }] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {manager}: {field}");
    }
    let mut lines = Vec::new();
    for of_one in conflicts.chunk_by(|left, right| left.manager == right.manager) {
        lines.extend(
            of_one
                .first()
                .map(|conflict| format!("conflicts with {}:", conflict.manager)),
        );
        lines.extend(of_one.iter().map(|conflict| format!("- {}", conflict.field)));
    }
    format!(
        "Apply failed with {} conflicts: {}",
        conflicts.len(),
        lines.join("\n")
    )
}

fn list(misfits: &[Misfit]) -> String {
    match misfits {
        [one] => one.to_string(),
        many => many
            .iter()
            .fold("errors:".to_owned(), |text, misfit| format!("{text}\n  {misfit}")),
    }
}

impl From<ApplyError> for ApiError {
    fn from(error: ApplyError) -> Self {
        let message = error.to_string();
        match error {
            ApplyError::Conflicts(conflicts) => {
                conflicts
                    .into_iter()
                    .fold(Self::new(Reason::Conflict, message), |error, conflict| {
                        error.with_cause(Cause {
                            reason: "FieldManagerConflict".to_owned(),
                            message: format!("conflict with {}", conflict.manager),
                            field: conflict.field,
                        })
                    })
            }
            ApplyError::NotAnObject | ApplyError::WrongType(_) | ApplyError::ManagedFieldsGiven => {
                Self::bad_request(message)
            }
            // Kubernetes gives no reason here and blames itself.
            ApplyError::Misfits { .. } => Self::new(Reason::Unknown, message),
        }
    }
}

/// Refuses an applied object that cannot be merged.
pub(super) fn check_body(shape: Shape<'_>, applied: &Value, api_version: &str) -> Result<(), ApplyError> {
    if !applied.is_object() {
        return Err(ApplyError::NotAnObject);
    }
    let text = |path: &str| {
        applied
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let type_ = ObjectType {
        api_version: text("/apiVersion"),
        kind: text("/kind"),
    };
    if type_.api_version != api_version {
        return Err(ApplyError::WrongType(type_));
    }
    if managed_of(applied).is_some() {
        return Err(ApplyError::ManagedFieldsGiven);
    }
    let misfits = misfits(shape, applied);
    if misfits.is_empty() {
        return Ok(());
    }
    let object = ObjectName {
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
        type_,
    };
    Err(ApplyError::Misfits { object, misfits })
}
