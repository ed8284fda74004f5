//! Every decision of Jangar, as pure functions of what is observed, the settings and the time.
//!
//! Nothing in here waits, reads a clock, draws a random number or talks to anything: time and ids are arguments, and
//! what should happen is returned as a value. So a decision can be printed, compared and tested without a cluster, and the
//! same observation always leads to the same plan. It depends on `jangar-api`, on the data types of Kubernetes and on
//! nothing that does input or output; a test holds it to that.
//!
//! Start reading at [`decision`], the vocabulary: what can be asked, done and written. Then at `life`, the life of a run that
//! Jobs execute, and at [`agent_run`] and [`tool_run`], which live it; [`job`] makes the Job of one attempt, [`vcs`] is about
//! the repository it works on, and [`custom`] and [`temporal`] have the words for work that is done elsewhere. [`agent`],
//! [`agent_provider`], [`implementation_spec`], [`tool`], [`approval_policy`], [`signal`] and [`signal_delivery`] are small and show
//! the shape of every kind. [`queue`] decides across
//! runs which of them may start. [`orchestration`] says what a graph of steps means, and [`orchestration_run`] runs it. What they
//! stand on:
//!
//! - [`settings`]: what an operator can choose, and [`retention`]: how long things are kept;
//! - [`waiting`]: why something waits, as a value and as a sentence, and [`explain`]: the answer for a person who asks;
//! - [`conditions`]: how a status says what is true, and [`plain_status`]: what is left of one that is refused;
//! - [`last_sight`]: what is known of an object that went away, and [`removal`]: what a run that is over may have outside;
//! - [`template`]: texts with places for values, and [`as_given`]: parts of a pod as people wrote them.
//! - [`leisure`]: what gives way while there is much to do.

pub mod agent;
pub mod agent_provider;
pub mod agent_run;
pub mod approval;
pub mod approval_policy;
pub mod as_given;
pub mod conditions;
pub mod custom;
pub mod decision;
pub mod explain;
pub mod implementation_spec;
pub mod job;
pub mod last_sight;
pub mod leisure;
mod life;
pub mod orchestration;
pub mod orchestration_run;
pub mod parent;
pub mod plain_status;
pub mod queue;
pub mod removal;
pub mod retention;
pub mod settings;
pub mod signal;
pub mod signal_delivery;
pub mod template;
pub mod temporal;
pub mod tool;
pub mod tool_run;
mod validity;
pub mod vcs;
pub mod waiting;
