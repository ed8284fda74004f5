//! The runtime `temporal`: work that a workflow of a Temporal server does.
//!
//! Here is the vocabulary: what a [`call`] of the server is and how it can be answered, and what a [`result`] says. What
//! follows from all that for a run is decided in `agent_run::temporal`. `docs/temporal-runtime.md` tells whoever writes such a
//! workflow what it gets and what becomes of what it returns.

pub mod call;
pub mod result;
