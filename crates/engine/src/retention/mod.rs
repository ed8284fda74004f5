//! How long things are kept after their end, and how fast they go.
//!
//! | what | kept for | by whom it is removed |
//! |---|---|---|
//! | the finished Job, its pod and the pod's log | `JANGAR_AGENT_RUNNER_JOB_TTL_SECONDS` | Kubernetes, after we have let the Job go |
//! | archived logs | `JANGAR_AGENT_RUNNER_LOG_RETENTION_SECONDS` | whoever archives them |
//! | the run | `JANGAR_AGENTS_CONTROLLER_AGENTRUN_RETENTION_SECONDS` | the controllers, at a bounded pace |
//!
//! [`Ladder`] is the three of them for one run or for all; [`Retain`] is the word of a person who wants to keep a run;
//! [`Budget`] bounds how many runs are deleted in a minute.

mod budget;
mod ladder;
mod retain;

pub use self::{
    budget::{Budget, Turn},
    ladder::{Ladder, UpsideDown},
    retain::Retain,
};
pub(crate) use self::{ladder::run_retention, retain::kept_until};
