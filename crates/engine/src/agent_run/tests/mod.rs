//! The life of a run, played on values.

mod bad_input;
mod custom;
mod custom_stops;
mod ends;
mod starts;
mod stops;
mod world;

use self::world::{World, object};
