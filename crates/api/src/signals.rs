//! The group `signals.proompteng.ai`: events from outside that runs wait for.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    condition::CommonStatus,
    phase::{DeliveryPhase, ObjectPhase},
    refs::LocalRef,
    values::{FreeForm, Timestamp, absent_as_default, if_legible},
};

/// What the signal is. Keys beyond those listed are kept.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "signals.proompteng.ai",
    version = "v1alpha1",
    kind = "Signal",
    plural = "signals",
    namespaced,
    status = "SignalStatus",
    derive = "PartialEq",
    shortname = "sig",
    doc = "A Signal is something that can happen outside, which a step of an orchestration can wait for.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase")
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct SignalSpec {
    /// Where the signal comes from, in words of the sender's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// What it means, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What deliveries carry, as an example or as defaults. Any keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<FreeForm>,
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

absent_as_default!(SignalSpec);

/// Whether the signal can be delivered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SignalStatus {
    #[serde(flatten)]
    pub common: CommonStatus,
    /// `Active` once the signal was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<ObjectPhase>,
    /// When the signal was last delivered.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_delivery_at: Option<Timestamp>,
}

/// Which signal happened, and what came with it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "signals.proompteng.ai",
    version = "v1alpha1",
    kind = "SignalDelivery",
    plural = "signaldeliveries",
    namespaced,
    status = "SignalDeliveryStatus",
    derive = "PartialEq",
    shortname = "sigd",
    doc = "A SignalDelivery says that a Signal happened once. It can release a step that waits for it.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Signal", type_ = "string", json_path = ".spec.signalRef.name")
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct SignalDeliverySpec {
    /// The Signal that happened.
    pub signal_ref: LocalRef,
    /// Id that the sender gave the delivery. A step may wait for a delivery with a certain id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_id: Option<String>,
    /// What came with it. Any keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<FreeForm>,
}

absent_as_default!(SignalDeliverySpec);

/// What became of the delivery.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SignalDeliveryStatus {
    #[serde(flatten)]
    pub common: CommonStatus,
    /// `Delivered`, `Pending` while the Signal does not exist, or `Invalid` if it names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<DeliveryPhase>,
    /// When it was delivered.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<Timestamp>,
    /// The step that it released. One delivery releases one step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumed_by: Option<ConsumedBy>,
}

/// A step that a delivery released.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConsumedBy {
    /// Name of the OrchestrationRun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// UID of the OrchestrationRun.
    pub run_uid: String,
    /// Name of the step.
    pub step: String,
}
