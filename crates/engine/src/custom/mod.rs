//! The runtime `custom`: work that an HTTP endpoint of somebody's own does.
//!
//! Here is the vocabulary: which [`endpoint`]s may be called, which [`address`]es may be connected to, what a [`call`] is and
//! how it can be answered, and what an endpoint reports in a [`callback`]. What follows from all that for a run is decided in
//! `agent_run::custom`. `docs/custom-runtime.md` is the contract that endpoints are written against.

pub mod address;
pub mod call;
pub mod callback;
pub mod endpoint;
