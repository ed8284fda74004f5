//! The hash of a run's spec, by which an edit is recognised that got past the API server.

use jangar_api::agents::agent_run::AgentRunSpec;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The fields that may change after the run was accepted, and are therefore not part of the hash.
const WRITABLE: &[&str] = &[
    "cancel",
    "desiredState",
    "cancelReason",
    "ttlSecondsAfterFinished",
];

/// SHA-256, in hexadecimal, of the spec as JSON with sorted keys. The order of `secrets` does not matter.
pub fn spec_hash(spec: &AgentRunSpec) -> String {
    // A spec is data with string keys, which always becomes JSON.
    let mut value = serde_json::to_value(spec).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        for field in WRITABLE {
            fields.remove(*field);
        }
        if let Some(Value::Array(secrets)) = fields.get_mut("secrets") {
            secrets.sort_by(|one, other| one.as_str().cmp(&other.as_str()));
        }
    }
    let digest = Sha256::digest(value.to_string().as_bytes());
    format!("{digest:x}")
}
