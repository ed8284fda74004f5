//! The way to a Temporal server: it starts, follows and stops the workflows that do the work of runs.
//!
//! [`Server`] is what the controllers know as [`jangar_controllers::outside::Temporal`]. It connects when it is first asked for
//! something, so that a server that is away keeps nobody from starting. It speaks the server's own calls, because two of their
//! details matter here that the helpers above them hide: the id of a request, by which the server tells whose start it was that
//! took the id of a workflow, and the reasons that it gives with an error.
//!
//! - `connection` reads the settings and the files that they name, and connects;
//! - `server` makes the calls;
//! - `closed` reads how a workflow ended;
//! - `words` says what an error means, and what to do about it.

mod closed;
mod connection;
mod server;
mod words;

pub use self::{connection::BadSettings, server::Server};
