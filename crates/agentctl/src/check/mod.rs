//! What can be said of a manifest before it is applied: `lint` says what is wrong, `plan` says what it would do.
//!
//! `schema` and `rules` are what the API server looks at; the rest is asked of the engine, which the controllers ask as well.

pub mod lint;
pub mod plan;
mod render;
mod schema;
mod world;
