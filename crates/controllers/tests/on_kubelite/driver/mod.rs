//! The driver, with plans that the tests write, and the controllers as a whole.

mod acting;
mod archiving;
mod barrier;
mod canary;
mod controllers;
mod illegible;
mod life;
mod occupied;
mod own_jobs;
mod queueing;
mod refused;
mod retention;
pub(crate) mod stage;
mod tap;
mod tokens;
mod version_control;
mod waking;
