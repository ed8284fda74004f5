//! The decisions about a run, played against a world that carries them out at once.

#![expect(
    clippy::needless_pass_by_value,
    reason = "every caller makes the value on the spot"
)]

mod adoption;
mod agreement;
mod bounds;
mod cancels;
mod children;
mod retention;
mod steps;
mod stops;
mod survivors;
mod unsaid;
mod waits;
mod world;

use jangar_api::tools::ToolRun;
use serde_json::json;

/// The run that a step of the kind ToolRun makes, for those who look after it from then on.
pub(crate) fn tool_run_of_a_step() -> ToolRun {
    let mut world =
        world::World::of(json!([{"name": "t", "kind": "ToolRun", "toolRef": {"name": "linter"}}]));
    world.settle();
    serde_json::from_value(world.child("run-t-1")).expect("a ToolRun")
}
