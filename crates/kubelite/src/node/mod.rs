//! The node: what runs the pods that the API server only stores.

pub mod executor;
