//! The kinds of Jangar: what people write, what the controllers answer, and the names both use.
//!
//! This crate is the public contract. It holds the nineteen custom resources with their fields and rules, the words of
//! their status (phases, reasons, condition types), the keys of labels and finalizers, and the rules by which names are
//! made. The CustomResourceDefinitions under `charts/agents/crds` are generated from it.
//!
//! It depends on nothing but data types (`serde`, `schemars`, `k8s-openapi`, the derive macros of `kube`): no input or
//! output, no clock and no asynchronous code, so that every other crate may depend on it.
//!
//! Start reading at [`kinds::Kind`], the table of the nineteen kinds; then at [`agents::agent_run`] and
//! [`orchestration::orchestration_run`], which most of the product is about; then at [`condition`] and [`reason`].

#![expect(
    clippy::duplicated_attributes,
    reason = "printer columns of one kind that have the same type are not duplicates"
)]

pub mod agents;
pub mod approvals;
pub mod artifacts;
pub mod budgets;
pub mod cancel;
pub mod condition;
pub mod crd;
pub mod kinds;
pub mod labels;
pub mod names;
pub mod orchestration;
pub mod phase;
pub mod reason;
pub mod refs;
pub mod rights;
mod rules;
pub mod schedules;
pub mod security;
pub mod signals;
pub mod step;
pub mod strings;
pub mod tools;
pub mod values;
pub mod workspaces;
mod yaml;

pub use kinds::Kind;
