//! What the controllers do to an API server, against one in the same process and on virtual time.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod driver;
mod election;
mod events;
mod gate;
mod one_writer;
mod release_jobs;
mod support;
