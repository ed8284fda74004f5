//! The contract of agent-runner, held by the program itself: agents are shell scripts in temporary directories.
//!
//! No agent here lives longer than 30 s by itself, so a test that goes wrong ends all the same.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

mod bad_input;
mod ends;
mod git;
mod git_server;
mod install;
mod outcomes;
mod plain;
mod ssh;
mod workspace;
