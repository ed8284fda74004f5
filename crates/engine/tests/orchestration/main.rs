//! The engine against the reference: every small graph, and random large ones; and the table in the documentation.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod agreement;
mod reference;
mod table;
