//! `jangar up`, `jangar controllers` and `jangar control-plane` as a person runs them: the program itself, on free ports, in temporary directories.
//!
//! Nothing here sleeps for a fixed time: tests wait for a line of output or for what the API shows, with a bound that only a
//! broken program reaches.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod agent_runs;
mod control_plane;
mod controllers;
mod custom;
mod end;
mod forge;
mod history;
mod manifests;
mod objects;
mod orchestrations;
mod plain;
mod pods;
mod process;
mod queue;
mod release_jobs;
mod start;
mod tools;
mod version_control;
mod webhooks;
mod workflows;
