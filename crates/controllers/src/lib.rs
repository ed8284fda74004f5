//! Observe, plan, act, report: carries the engine's decisions out on a Kubernetes API.
//!
//! Watches feed caches; a change puts a key into a queue; a worker observes that key in the caches, lets the engine plan,
//! executes the plan's effects in order, writes the status once, and plans again until there is nothing left to do. One
//! process at a time does so: the one that holds the Lease.
//!
//! Start reading at [`driver`]: what a controller supplies, and one reconcile from beginning to end. Then at
//! [`agents`], [`agent_run`], [`tools`], [`orchestration`] and [`gates`], the controllers. What they stand on:
//!
//! - [`caches`]: what is known of the cluster, and which change concerns whom;
//! - [`Admissions`]: which runs may start;
//! - [`queue`]: which key is next, and when (pure);
//! - `effects`, `status`, `live`: the requests, one at a time;
//! - [`archive`]: finished runs on their way into history;
//! - [`outside`]: endpoints that do the work of runs, and what they report;
//! - [`forges`], [`deliveries`]: whether the work of runs arrived where it belongs;
//! - [`lease`], [`start`]: who may write, and what happens when that changes;
//! - `canary`: what a new version would do, before it leads;
//! - [`release_jobs`]: what lets Jobs go when there are no controllers any more.
//!
//! It depends on the engine, and speaks Kubernetes through `kube::Client` alone, so that a real cluster and the embedded one
//! look the same to it; endpoints are called through [`outside::Endpoints`] alone, Temporal through [`outside::Temporal`], and
//! forges are asked through [`forges::Forges`]. It reads the time through [`clock::Clock`] and waits through tokio's clock only.
//! Nothing in here depends on the order of a hash map or on chance, so that a simulation can repeat what happened.

mod admissions;
pub mod agent_run;
pub mod agents;
pub mod archive;
mod backoff;
pub mod caches;
mod canary;
mod children;
pub mod clock;
pub mod deliveries;
pub mod driver;
mod effects;
pub mod events;
pub mod forges;
pub mod gates;
pub mod halt;
mod kept_jobs;
pub mod lease;
mod live;
pub mod metrics;
pub mod orchestration;
mod outbox;
pub mod outside;
pub mod queue;
pub mod release_jobs;
mod report;
mod served;
mod signal;
mod start;
mod status;
mod tokens;
pub mod tools;

pub use admissions::Admissions;
pub use served::Unserved;
pub use start::{Controllers, Setup, State, start, start_with};
