//! What the tests of Jangar share. It is a dev-dependency only: nothing of it is in a program.

pub mod cluster;
pub mod conformance;
