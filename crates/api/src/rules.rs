//! The CEL rules of the kinds.
//!
//! They are evaluated at the API server, so that a mistake is refused where it is made. Kubernetes bounds the cost of a
//! rule by the sizes the schema admits; these stay far below the bound because they compare and never iterate over
//! anything but conditions.

use kube::core::{Message, Reason, Rule};

/// A run must say what is to be done. Of a workflow each step may, which the controllers look at: a rule that goes through a
/// list without a bound is one that Kubernetes may find too costly.
pub(crate) fn some_implementation() -> Rule {
    Rule::new("has(self.implementationSpecRef) || has(self.implementation) || has(self.workflow)")
        .message("say what is to be done: set implementationSpecRef or implementation.inline")
}

/// A system prompt comes from one place.
pub(crate) fn one_system_prompt() -> Rule {
    Rule::new("!(has(self.systemPrompt) && has(self.systemPromptRef))")
        .message("systemPrompt and systemPromptRef exclude each other: set one of them")
}

/// Refuses run names that are too long to be the value of a label.
///
/// Only a new run is refused: the API server drops `status` on create, so a run that has one was stored before this rule
/// existed, and must stay editable or its finalizer could never be removed.
pub(crate) fn run_name() -> Rule {
    Rule::new("has(self.status) || self.metadata.name.size() <= 63").message(
        "the name of a run becomes the value of labels and the stem of its Jobs' names, so it may have at most 63 \
         characters: choose a shorter metadata.name, or leave the choice to metadata.generateName",
    )
}

/// Refuses edits of the `fixed` fields of the spec once the run was accepted, that is once its condition `Accepted` is
/// true or its phase is anything but `Pending`. The `writable` ones, which are all others, are named in the message.
///
/// What the API server compares: every declared field in full, and every value of a map. The one gap is an object that
/// is free-form as a whole (`spec.runtime` of a ToolRun), where renaming a key while keeping the number of keys goes
/// unseen. The hash that the controller takes of the spec of a run is the second line, and covers that.
pub(crate) fn fixed_once_accepted(fixed: &[&str], writable: &[&str]) -> Rule {
    // Every write of a status passes here with an unchanged spec, so that is asked before the fields are. To compare is dear all the
    // same, and in a crowd the first status of a run is often its only one: what needs no comparison is asked first.
    let unchanged: Vec<String> = fixed
        .iter()
        .map(|field| {
            let (new, old) = (format!("self.spec.{field}"), format!("oldSelf.spec.{field}"));
            format!("has({new}) == has({old}) && (!has({new}) || {new} == {old})")
        })
        .collect();
    let rule = format!(
        "!has(oldSelf.status)\n\
         || self.spec == oldSelf.spec\n\
         || !((has(oldSelf.status.phase) && !(oldSelf.status.phase in ['', 'Pending']))\n\
         || (has(oldSelf.status.conditions)\n\
         && oldSelf.status.conditions.exists(c, c.type == 'Accepted' && c.status == 'True')))\n\
         || (has(self.spec) == has(oldSelf.spec) && (!has(self.spec) || (\n{}\n)))",
        unchanged.join("\n&& "),
    );
    Rule::new(rule)
        .message(Message::Message(format!(
            "the run was accepted, so nothing in its spec can be edited any more but {}: submit a new run instead",
            writable.join(", "),
        )))
        .reason(Reason::FieldValueForbidden)
        .field_path(".spec")
}
