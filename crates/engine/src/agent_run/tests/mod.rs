//! The life of a run, played on values.

mod bad_input;
mod ends;
mod starts;
mod stops;
mod version_control;
mod world;

use self::world::{World, object};
