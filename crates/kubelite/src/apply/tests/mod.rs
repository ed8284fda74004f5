//! Tests of apply and update tracking as a whole.

mod behaviour;
mod harness;
mod random;
mod table;
