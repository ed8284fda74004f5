//! ImplementationSource: a forge or tracker whose issues become ImplementationSpecs.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    condition::CommonStatus,
    phase::WebhookState,
    refs::KeyRef,
    strings::string_enum,
    values::{Int32, Timestamp, if_legible},
};

string_enum! {
    /// The systems whose issues can be taken in.
    closed enum SourceProvider {
        Github = "github",
        Linear = "linear",
    }
}

/// Where issues come from, which of them are taken in, and how their deliveries are verified.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "agents.proompteng.ai",
    version = "v1alpha1",
    kind = "ImplementationSource",
    plural = "implementationsources",
    namespaced,
    status = "ImplementationSourceStatus",
    derive = "PartialEq",
    shortname = "implsrc",
    doc = "An ImplementationSource takes in issues of a forge or tracker by webhook and keeps an ImplementationSpec for \
           each.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Provider", type_ = "string", json_path = ".spec.provider"),
    printcolumn(name = "LastSync", type_ = "date", json_path = ".status.lastSyncedAt")
)]
#[serde(rename_all = "camelCase")]
pub struct ImplementationSourceSpec {
    /// The system the issues come from: `github` or `linear`.
    pub provider: SourceProvider,
    /// The secret that deliveries are signed with.
    pub auth: SourceAuth,
    /// Which issues are taken in. Absent: all that are delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<SourceScope>,
    /// Whether deliveries are accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<SourceWebhook>,
    /// Names of fields of an issue by names of fields of the ImplementationSpec. It is kept, and not read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mapping: BTreeMap<String, String>,
}

/// The secret that deliveries are signed with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceAuth {
    /// Secret and key with the shared webhook secret; the key is `token` unless given.
    pub secret_ref: KeyRef,
}

/// Which issues are taken in; all that is set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceScope {
    /// Labels that an issue must all have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Organization that the issue belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub organization: Option<String>,
    /// Project that the issue belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Search expression in the language of the provider. No delivery can be held against it, so that a source that sets it
    /// takes none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// Repository that the issue belongs to, as `owner/name`; upper and lower case are the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Team that the issue belongs to, by its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
}

/// Whether deliveries are accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceWebhook {
    /// Accept deliveries for this source. Default: false, and then the source is not ready (`WebhookDisabled`).
    #[serde(default)]
    pub enabled: bool,
}

/// Whether the source is ready, and what it received last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImplementationSourceStatus {
    #[serde(flatten)]
    pub common: CommonStatus,
    /// When an issue was last taken in.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_synced_at: Option<Timestamp>,
    /// The last delivery and what became of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_webhook: Option<LastWebhook>,
}

/// A webhook delivery and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastWebhook {
    /// How often it was tried to process the delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<Int32>,
    /// Id that the sender gave the delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_id: Option<String>,
    /// Why processing failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Id of the issue at its origin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// Key by which a repeated delivery is recognised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// When processing ended.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processed_at: Option<Timestamp>,
    /// System that sent the delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// When the delivery arrived.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_at: Option<Timestamp>,
    /// Version of the issue in the delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_version: Option<String>,
    /// What became of it: `queued`, `synced`, `retrying` or `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<WebhookState>,
}
