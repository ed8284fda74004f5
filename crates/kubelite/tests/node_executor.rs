//! Pods as processes: a real API server in memory, a real executor, real processes.
//!
//! Nothing here sleeps: tests wait for what the API shows, with a bound that only a broken executor reaches. Every test has
//! its own directory and ends what it started.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of a test may fail it"
)]

#[path = "node_executor/cluster.rs"]
mod cluster;
#[path = "node_executor/containers.rs"]
mod containers;
#[path = "node_executor/end.rs"]
mod end;
#[path = "node_executor/full_disk.rs"]
mod full_disk;
#[path = "node_executor/logs.rs"]
mod logs;
#[path = "node_executor/restart.rs"]
mod restart;
#[path = "node_executor/sandbox.rs"]
mod sandbox;
#[path = "node_executor/standby.rs"]
mod standby;
#[path = "node_executor/turns.rs"]
mod turns;
#[path = "node_executor/volumes.rs"]
mod volumes;
