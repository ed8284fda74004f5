//! Observe, plan, act, report: carries the engine's decisions out on a Kubernetes API.
//!
//! Watches feed caches; a change puts a key into a queue; a worker observes that key in the caches, lets the engine plan,
//! executes the plan's effects in order, writes the status once, and plans again until there is nothing left to do. One
//! process at a time does so: the one that holds the Lease.
//!
//! It depends on the engine, and speaks Kubernetes through `kube::Client` alone, so that a real cluster and the embedded one
//! look the same to it. It reads the time through [`clock::Clock`] and waits through tokio's clock only.

pub mod clock;
pub mod events;
pub mod lease;
pub mod metrics;
