//! Jangar on a real Kubernetes: the shipped program, with exactly the rights of `tests/cluster/role.yaml`, and real pods.
//!
//! `cargo test` leaves this out, because it needs a real cluster: `make e2e-tests` boots one.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod cable;
mod connection;
mod control_plane;
mod ends;
mod fake_nodes;
mod limits;
mod orchestrations;
mod rbac;
mod replica;
mod replicas;
mod rights;
mod runs;
mod stage;
mod taken_away;
mod uninstalled;
