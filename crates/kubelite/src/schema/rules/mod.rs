//! CEL rules (`x-kubernetes-validations`), compiled once per schema and run on every write.
//!
//! The language itself comes with kube. What is here is what the API server adds around it: which value a rule sees and
//! in which types, the old value of the same part, what is forgiven when nothing changed, and the wording of failures.

mod check;
mod compile;
mod estimate;
mod field_path;
mod functions;
mod library;
mod meter;
mod run;
mod source;
mod value;
mod walk;

pub(super) use field_path::normalize as normalize_field_path;

use std::{collections::BTreeMap, sync::Arc, thread};

use serde_json::Value;

use crate::{
    field::{FieldError, FieldPath},
    schema::{CelRule, Schema},
};

/// The compiled rules of one schema.
#[derive(Debug, Default)]
pub struct Rules {
    root: Option<Box<Node>>,
    /// Some expression needs more stack than a request handler has.
    is_deep: bool,
}

/// The rules of a schema node and of those below it. Nodes without any are left out.
#[derive(Debug)]
struct Node {
    schema: Arc<Schema>,
    /// The root of the object or of an embedded resource, whose name is visible whatever the schema says.
    is_resource_root: bool,
    rules: Vec<Compiled>,
    /// What the rules look at: nothing else of a value is converted for them.
    uses: value::Uses,
    properties: BTreeMap<String, Node>,
    additional: Option<Box<Node>>,
    items: Option<Box<Node>>,
}

#[derive(Debug)]
struct Compiled {
    rule: CelRule,
    expression: meter::Metered,
    message: Option<meter::Metered>,
    uses_old_self: bool,
    /// `fieldPath` in the notation of error messages, empty if there is none.
    field_path: String,
}

/// Compiles all rules of a schema. Errors are rooted at the schema.
pub fn compile(schema: &Schema) -> Result<Rules, Vec<FieldError>> {
    compile_at(schema, &FieldPath::root())
}

/// Compiles all rules of a schema that stands at `path` of a definition.
pub fn compile_at(schema: &Schema, path: &FieldPath) -> Result<Rules, Vec<FieldError>> {
    compile::compile(schema, true, path)
}

/// As `compile_at` for a part of a schema that is no resource of its own.
pub(super) fn compile_part(schema: &Schema, path: &FieldPath) -> Result<Rules, Vec<FieldError>> {
    compile::compile(schema, schema.embedded_resource, path)
}

impl Rules {
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Runs the rules on an object. With `old`, rules about changes run too, and failures of rules that only look at
    /// parts that did not change are forgiven.
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        self.validate_at(&FieldPath::root(), new, old)
    }

    /// As `validate` for a value that stands at `path`.
    pub fn validate_at(&self, path: &FieldPath, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        match &self.root {
            None => Vec::new(),
            Some(root) if self.is_deep => {
                with_large_stack(|| run::run(root, new, old, path)).unwrap_or_else(|| {
                    let detail = "internal error: validation rules could not be run";
                    vec![FieldError::forbidden(path.clone(), detail)]
                })
            }
            Some(root) => run::run(root, new, old, path),
        }
    }
}

/// Does work on a thread with the stack that the deepest expressions need: the parser and the interpreter call themselves
/// once per level or more, with frames that take tens of kilobytes in builds that are not optimised. `None` if there is
/// no such thread to be had.
fn with_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    const BYTES: usize = 128 * 1024 * 1024;

    thread::scope(|scope| {
        let handle = thread::Builder::new()
            .stack_size(BYTES)
            .spawn_scoped(scope, work)
            .ok()?;
        handle.join().ok()
    })
}

#[cfg(test)]
mod cost_tests;
#[cfg(test)]
mod language_tests;
#[cfg(test)]
mod tests;
