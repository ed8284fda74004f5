//! The hash of a run's spec, by which an edit is recognised that got past the API server.

use jangar_api::{cancel::CancelRequest, tools::ToolRunSpec};
use sha2::{Digest, Sha256};

/// SHA-256, in hexadecimal, of the spec as JSON with sorted keys, without what may change after the run was accepted.
pub fn spec_hash(spec: &ToolRunSpec) -> String {
    let fixed = ToolRunSpec {
        stop: CancelRequest::default(),
        ttl_seconds_after_finished: None,
        ..spec.clone()
    };
    // A spec is data with string keys, which always becomes JSON.
    let value = serde_json::to_value(fixed).unwrap_or_default();
    let digest = Sha256::digest(value.to_string().as_bytes());
    format!("{digest:x}")
}
