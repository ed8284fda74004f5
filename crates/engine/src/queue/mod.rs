//! Which runs may start: the limits, and the order in which runs get the places that are free.
//!
//! Everything is derived from objects, so that a restart changes nothing. The Job of an attempt is the record that its run was
//! let in, and says when. It takes a **slot** of its Agent, its repository, its namespace and the cluster until its pod has
//! ended or is known to be gone, whatever the phase of the run says.
//!
//! Runs that could start **contend**. Of those for which there is room, the first is let in, then the next, until there is
//! room for none. First is
//!
//! 1. who has the larger `spec.priority`;
//! 2. whose repository (whose Agent, for a run without one) was let in longest ago;
//! 3. who was created first; and among those, who has the smaller UID.
//!
//! A run for which there is no room is passed over: it holds up nobody who needs other slots, and nothing is kept free for it.
//! Among those who need the same slot the order is strict.
//!
//! The queue limits decide nothing about who starts. The runs that wait have places by the order in which they were created,
//! and those beyond the last place are told that the queue is full; they move up as places free, and start in their turn.
//!
//! | module | subject |
//! |---|---|
//! | `facts` | what the objects of one run say |
//! | `index` | all of it, kept up to date, and who is next |
//! | `line` | the order of those who contend |
//! | `places` | who is beyond the queue limit |
//! | `room` | whether one more run may be handed in |
//! | `told` | the limit that each of those who wait was told of |
//! | `usage` | what is taken, and what was let in lately |
//!
//! One change costs as much as a few look-ups, however many runs there are; a test holds it to the same answers as a plain
//! search through all of them.

mod facts;
mod index;
mod line;
mod places;
mod room;
mod scope;
#[cfg(test)]
mod tests;
mod told;
mod usage;

use jiff::Timestamp;
use serde::Serialize;

pub use self::{
    facts::{Demand, Facts, repository_of},
    index::{Index, Unseen},
    room::{no_room, waits_in},
    scope::{Lane, Scope},
    told::Told,
};
use crate::{decision::Key, waiting::Waiting};

/// A run that was let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Grant {
    pub key: Key,
    /// It is stamped on the Job.
    pub at: Timestamp,
}

/// What a run that asks whether it may start is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Answer {
    /// It may, and has its slot since then. The Job says the same time.
    Granted { at: Timestamp },
    /// Not yet. It is told when it may.
    Waiting(Box<Waiting>),
    /// Never: this run is executed in its place.
    Duplicate { of: String },
}
