//! The bench itself: that it is the cluster which the other suites take it for.
//!
//! `cargo test` leaves this out, because it needs a real Kubernetes: `make cluster-tests` boots one.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

mod fake_nodes;
mod kinds;
mod network;
mod nodes;
mod real_node;
mod rules;
mod tools;
mod users;
