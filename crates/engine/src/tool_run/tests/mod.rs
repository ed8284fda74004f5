//! The life of a ToolRun, decision by decision. What it has in common with an AgentRun is tested there in full; here is what it has
//! of its own, and that the rest is really the same.

mod ends;
mod jobs;
mod starts;
mod stops;
mod world;

use self::world::World;
