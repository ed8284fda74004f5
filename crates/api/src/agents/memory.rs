//! Memory: a store that agents keep what they learned in.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    condition::CommonStatus,
    refs::KeyRef,
    strings::string_enum,
    values::{Timestamp, if_legible},
};

string_enum! {
    /// What kind of store a Memory is.
    closed enum MemoryType {
        Postgres = "postgres",
        Redis = "redis",
        Weaviate = "weaviate",
        Pinecone = "pinecone",
        Custom = "custom",
    }
}

/// What kind of store it is and how it is reached.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "agents.proompteng.ai",
    version = "v1alpha1",
    kind = "Memory",
    plural = "memories",
    namespaced,
    status = "MemoryStatus",
    derive = "PartialEq",
    shortname = "mem",
    doc = "A Memory is a store that agents keep what they learned in, reached with the connection in a Secret.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Default", type_ = "boolean", json_path = ".spec.default")
)]
#[serde(rename_all = "camelCase")]
pub struct MemorySpec {
    /// What kind of store it is: `postgres`, `redis`, `weaviate`, `pinecone` or `custom`.
    #[serde(rename = "type")]
    pub type_: MemoryType,
    /// How the store is reached.
    pub connection: MemoryConnection,
    /// What the store can do, for example `vector`, `kv` or `blob`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
    /// Use this Memory for runs in the namespace for which neither the run nor its agent names one. Default: false. If
    /// several say so, the first by name is used.
    #[serde(default, rename = "default")]
    pub is_default: bool,
}

/// How the store is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryConnection {
    /// Secret with the connection. Without a key the whole Secret is meant.
    pub secret_ref: KeyRef,
}

/// Whether the store's connection is there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryStatus {
    #[serde(flatten)]
    pub common: CommonStatus,
    /// When the connection was last checked.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_checked_at: Option<Timestamp>,
}
