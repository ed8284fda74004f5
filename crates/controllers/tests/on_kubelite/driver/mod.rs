//! The driver, with plans that the tests write, and the controllers as a whole.

mod acting;
mod barrier;
mod controllers;
mod life;
mod queueing;
mod stage;
mod tap;
mod waking;
