//! Tests of the kinds as the API server and other programs see them: their definitions, their rules, their objects.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

mod admitted;
mod contract;
mod definitions;
mod objects;
mod rules;
mod support;
mod words;
