//! The whole server, in process: requests go in where a socket would bring them, answers come out.
//!
//! One file per subject. The clock is tokio's and stands still unless every task waits, so minutes of server time pass in
//! no time and a test that waits for something that never happens ends at once instead of hanging.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod custom_kinds;
mod deletion;
mod durability;
mod kube_client;
mod kube_runtime;
mod list;
mod metadata;
mod no_panics;
mod owners;
mod support;
mod watch;
mod writes;
