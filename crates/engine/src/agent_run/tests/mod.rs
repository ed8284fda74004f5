//! The life of a run, played on values.

mod bad_input;
mod ends;
mod starts;
mod stops;
mod workflow_input;
mod workflows;
mod world;

use self::world::{World, object};
