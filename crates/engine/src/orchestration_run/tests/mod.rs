//! The decisions about a run, as plans.
