//! The life of a run, played on values.

mod bad_input;
mod brief;
mod custom;
mod custom_stops;
mod ends;
mod own_jobs;
mod retention;
mod starts;
mod stops;
mod temporal;
mod temporal_stops;
mod tokens;
mod version_control;
mod version_control_steps;
mod waits;
mod workflow_input;
mod workflows;
mod world;

use self::world::{World, object};
