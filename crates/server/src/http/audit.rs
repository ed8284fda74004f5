//! Who changed what through the control plane, for who may read all of it.

use std::sync::Arc;

use axum::extract::State;
use jangar_store::{AuditFilter, Namespaces, PageRequest};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    answer::Answer,
    bodies::AuditPage,
    extract::{Params, Who},
};
use crate::{plane::ControlPlane, refusal::Refusal, told::AuditRecord};

/// Which entries are wanted.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct AuditList {
    /// Absent: all namespaces.
    namespace: Option<String>,
    /// Who did it, as Kubernetes calls them.
    actor: Option<String>,
    /// Such as `agent_run.created`.
    action: Option<String>,
    /// Such as `AgentRun`.
    kind: Option<String>,
    /// Of the object.
    name: Option<String>,
    /// At this time or later, such as 2026-03-01T12:00:00Z.
    since: Option<String>,
    /// Before this time.
    until: Option<String>,
    /// At most 500.
    limit: Option<u32>,
    /// Where the page before this one ended.
    cursor: Option<String>,
}

fn time(field: &str, text: Option<&str>) -> Result<Option<Timestamp>, Refusal> {
    let read = |text: &str| {
        text.parse().map_err(|_| {
            Refusal::field(field, text, "this is no time").remedy("write it like 2026-03-01T12:00:00Z")
        })
    };
    text.map(read).transpose()
}

pub(super) async fn list(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Params(query): Params<AuditList>,
) -> Result<Answer<AuditPage>, Refusal> {
    let filter = AuditFilter {
        namespaces: query
            .namespace
            .map_or(Namespaces::All, |name| Namespaces::Only(vec![name])),
        actor: query.actor,
        action: query.action,
        kind: query.kind,
        name: query.name,
        since: time("since", query.since.as_deref())?,
        until: time("until", query.until.as_deref())?,
    };
    let mut page = PageRequest {
        cursor: query.cursor,
        ..PageRequest::default()
    };
    if let Some(limit) = query.limit {
        page.limit = limit;
    }
    let found = plane.audit_entries(&caller, &filter, &page).await?;
    Ok(Answer::ok(AuditPage {
        entries: found.items.into_iter().map(AuditRecord::from).collect(),
        next_cursor: found.next,
    }))
}
