//! The decisions about a run, played against a world that carries them out at once.

#![expect(
    clippy::needless_pass_by_value,
    reason = "every caller makes the value on the spot"
)]

mod cancels;
mod steps;
mod waits;
mod world;
