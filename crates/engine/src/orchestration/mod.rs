//! What an Orchestration means: its steps as a graph, and what follows when some of them have ended.
//!
//! | module | subject |
//! |---|---|
//! | `read` | whether the steps make sense: all mistakes of a definition at once |
//! | [`graph`] | the steps, once they do |
//! | `cycles`, `names` | how a mistake is told so that it can be mended |
//! | [`work`] | what a step does, as it was written |
//! | [`condition`] | `when`, in CEL |
//! | [`size`] | how large the object of a run can become |
//! | [`values`] | what templates and conditions can look up |
//! | [`advance`] | which steps start, which are skipped and why, and how the run ends |
//! | [`check`] | what the status of an Orchestration says |
//!
//! `docs/orchestration-semantics.md` has the rules as a table, which is made by a second, much smaller implementation of them
//! that the tests hold this one against.

pub mod advance;
pub mod check;
pub mod condition;
mod cycles;
pub mod graph;
mod names;
mod read;
pub mod size;
#[cfg(test)]
mod tests;
pub mod values;
pub mod work;

pub use self::{
    graph::{Graph, Node, StepId},
    read::{Mistakes, RETRIES_MAX, STEPS_MAX, read, read_named},
    size::OBJECT_MAX_BYTES,
};
