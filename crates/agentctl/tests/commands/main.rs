//! agentctl as people use it: the built program, against an API server with objects in given states.
//!
//! What it prints is compared as a whole: standard output, standard error and the exit code of every command.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bad_input;
mod insight;
mod logs;
mod manifests;
mod objects;
mod own;
mod runs;
mod support;
mod waiting;
