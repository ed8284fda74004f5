//! Every decision of Jangar, as pure functions of what is observed, the settings and the time.
//!
//! Nothing in here waits, reads a clock, draws a random number or talks to anything: time and ids are arguments, and
//! what should happen is returned as a value. So a decision can be printed, compared and tested without a cluster, and the
//! same observation always leads to the same plan. It depends on `jangar-api`, on the data types of Kubernetes and on
//! nothing that does input or output; a test holds it to that.
//!
//! Start reading at [`decision`], the vocabulary: what can be asked, done and written. Then at [`agent_run`], the life of a
//! run, and [`job`], which makes the Job of one attempt, and [`vcs`], the repository it works on. [`agent`], [`agent_provider`] and [`implementation_spec`] are small and
//! show the shape of every kind. What they stand on:
//!
//! - [`settings`]: what an operator can choose;
//! - [`conditions`]: how a status says what is true, and [`plain_status`]: what is left of one that is refused;
//! - [`template`]: texts with places for values, and [`as_given`]: parts of a pod as people wrote them.

pub mod agent;
pub mod agent_provider;
pub mod agent_run;
pub mod as_given;
pub mod conditions;
pub mod decision;
pub mod implementation_spec;
pub mod job;
pub mod plain_status;
pub mod settings;
pub mod template;
mod validity;
pub mod vcs;
