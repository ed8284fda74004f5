//! The group `schedules.proompteng.ai`: runs that start by the clock.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    condition::CommonStatus,
    phase::ObjectPhase,
    values::{Timestamp, absent_as_default, if_legible},
};

/// When a run starts, and which one.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "schedules.proompteng.ai",
    version = "v1alpha1",
    kind = "Schedule",
    plural = "schedules",
    namespaced,
    status = "ScheduleStatus",
    derive = "PartialEq",
    shortname = "sched",
    doc = "A Schedule starts a copy of an AgentRun or OrchestrationRun at the times of a cron expression.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Cron", type_ = "string", json_path = ".spec.cron"),
    printcolumn(name = "LastRun", type_ = "date", json_path = ".status.lastRunTime"),
    printcolumn(
        name = "Target",
        type_ = "string",
        priority = 1,
        json_path = ".spec.targetRef.name"
    )
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct ScheduleSpec {
    /// Times to start, as a cron expression with five fields.
    pub cron: String,
    /// Time zone of the expression by its name in the tz database, for example `Europe/Berlin`. Default: that of the
    /// controllers, usually UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// The run whose spec is the template for the runs that are started.
    pub target_ref: TargetRef,
}

absent_as_default!(ScheduleSpec);

/// The run whose spec is the template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetRef {
    /// Group and version of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the run: `AgentRun` or `OrchestrationRun`.
    pub kind: String,
    /// Name of the run.
    pub name: String,
    /// Namespace of the run. Absent: that of the Schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Whether the schedule is in effect, and when it last started a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleStatus {
    #[serde(flatten)]
    pub common: CommonStatus,
    /// `Active`, or `Invalid` if the expression or the target is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<ObjectPhase>,
    /// When a run was last started.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_run_time: Option<Timestamp>,
}
