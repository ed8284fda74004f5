//! agentctl as people use it: the built program, against an API server with objects in given states.
//!
//! What it prints is compared as a whole: standard output, standard error and the exit code of every command. The same commands
//! are played through a control plane, and what is different then is written down with the reason.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bad_input;
mod control_plane;
mod history;
mod insight;
mod logs;
mod manifests;
mod modes;
mod objects;
mod own;
mod plane;
mod runs;
mod support;
mod tls;
mod waiting;
