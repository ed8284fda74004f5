//! The chart, what Argo CD makes of it, and the scripts that check both, with the real Helm, kustomize and kubeconform.
//!
//! `cargo test` leaves this out, because it needs those programs: `make chart-tests` builds them and names them.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod delivery;
mod earlier;
mod env;
mod examples;
mod gitops;
mod helm;
mod metrics;
mod refusals;
mod renders;
mod rights;
