//! The control plane on an API server in the same process, whose questions about rights the test answers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod access;
mod approvals;
mod bad_input;
mod described;
mod fuzz;
mod gates;
mod grpc;
mod hidden;
mod history;
mod lists;
mod memories;
mod objects;
mod runs;
mod stage;
mod streams;
mod submission;
mod webhooks;
