//! The contract of gRPC between agentctl and the control plane: `proto/proompteng/jangar/v1/agentctl.proto`, as Rust.
//!
//! The methods for the nineteen kinds all have the same shape. [`Verb::method`] has the rule by which they are called, so that a
//! client needs no list of them, and [`call`] calls them by it.

mod by_kind;

pub use self::by_kind::{ANSWER_MAX_BYTES, ByKind, Verb, call};

/// The messages, the client and the server of the contract.
pub mod v1 {
    #![expect(
        clippy::pedantic,
        clippy::allow_attributes,
        clippy::allow_attributes_without_reason,
        reason = "this is generated"
    )]
    tonic::include_proto!("proompteng.jangar.v1");
}

/// The contract as the reflection service tells it.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The full name of the service.
pub const SERVICE: &str = "proompteng.jangar.v1.AgentctlService";
