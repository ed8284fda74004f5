//! The decisions about a run, played against a world that carries them out at once.

mod cancels;
mod steps;
mod waits;
mod world;
