//! What the benchmark on a real cluster makes of what it saw: figures, and how they are shown.
//!
//! The program itself is in `program`. What can be told right from wrong without a cluster is here: the numbers of a sample
//! ([`statistics`]), the time between two steps ([`hops`]), the writes in an audit log ([`audit`]), what a cancel looked like
//! from outside ([`cancel`]), whether limits hold ([`limits`]), what `/proc` says of a process ([`process`]), what is promised
//! of all that ([`bounds`]), and the results as JSON ([`results`]), as a table ([`table`]) and as a picture ([`picture`]).

pub mod audit;
pub mod bounds;
pub mod cancel;
pub mod hops;
pub mod limits;
pub mod picture;
pub mod process;
pub mod results;
pub mod statistics;
pub mod table;
