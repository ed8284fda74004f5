//! Runs of `/v1`: submitted, listed, found, explained, cancelled, run again, their logs and Events.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use jangar_api::Kind;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    answer::Answer,
    extract::{Address, Document, Key, OptionalDocument, Params, Who},
    sse,
};
use crate::{
    metrics::Protocol,
    plane::{
        Caller, ControlPlane,
        logs::LogQuery,
        objects::ListQuery,
        runs::{RUN_KINDS, Run, record, remembered},
        submit::{AgentRunSubmission, OrchestrationRunSubmission, Submitted},
    },
    refusal::Refusal,
    world::text,
};

/// Which runs are listed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RunList {
    /// `*` is every one; absent: the namespace of Jangar itself.
    pub(super) namespace: Option<String>,
    /// Only runs of this Agent.
    agent_name: Option<String>,
    /// The same, under its older name.
    agent_id: Option<String>,
    /// Only runs of this Orchestration.
    orchestration_name: Option<String>,
    /// The same, under its older name.
    orchestration_id: Option<String>,
    label_selector: Option<String>,
    phase: Option<String>,
    runtime: Option<String>,
    /// Words that name, labels or summary have to contain.
    search: Option<String>,
    /// At most 500.
    limit: Option<u32>,
    /// Where the page before this one ended.
    cursor: Option<String>,
    /// Runs that history has, whether or not they are in the cluster any more.
    archived: Option<bool>,
}

/// Which run is meant, where its id is a name.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WhichRun {
    /// Absent: the namespace of Jangar itself.
    namespace: Option<String>,
    /// AgentRun, OrchestrationRun or ToolRun.
    kind: Option<String>,
}

/// Which part of a log is meant.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WhichLog {
    namespace: Option<String>,
    kind: Option<String>,
    pod: Option<String>,
    container: Option<String>,
    /// Of this step of a workflow.
    step: Option<String>,
    /// Of what history has: this attempt.
    attempt: Option<u32>,
    /// At most 5000.
    tail_lines: Option<u32>,
    /// As server-sent events, until the container ends.
    follow: Option<bool>,
}

/// Which Events are meant.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WhichEvents {
    namespace: Option<String>,
    kind: Option<String>,
    /// At most 200.
    limit: Option<u32>,
}

/// Why a run is cancelled.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CancelBody {
    reason: Option<String>,
}

pub(super) async fn post_agent_run(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Key(key): Key,
    Document(submission): Document<AgentRunSubmission>,
) -> Result<Answer, Refusal> {
    let submitted = plane.submit_agent_run(&caller, &key, submission).await?;
    Ok(made("agentRun", &submitted))
}

pub(super) async fn post_orchestration_run(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Key(key): Key,
    Document(submission): Document<OrchestrationRunSubmission>,
) -> Result<Answer, Refusal> {
    let submitted = plane.submit_orchestration_run(&caller, &key, submission).await?;
    Ok(made("orchestrationRun", &submitted))
}

fn made(record: &str, submitted: &Submitted) -> Answer {
    let before = submitted.idempotent;
    Answer::made(
        json!({record: submitted.record, "resource": submitted.resource, "idempotent": before}),
        before,
    )
}

pub(super) async fn list_agent_runs(
    plane: State<Arc<ControlPlane>>,
    who: Who,
    query: Params<RunList>,
) -> Result<Answer, Refusal> {
    list(Kind::AgentRun, "agentRuns", plane, who, query).await
}

pub(super) async fn list_orchestration_runs(
    plane: State<Arc<ControlPlane>>,
    who: Who,
    query: Params<RunList>,
) -> Result<Answer, Refusal> {
    list(Kind::OrchestrationRun, "orchestrationRuns", plane, who, query).await
}

async fn list(
    kind: Kind,
    field: &str,
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Params(query): Params<RunList>,
) -> Result<Answer, Refusal> {
    let subject = match kind {
        Kind::OrchestrationRun => query.orchestration_name.or(query.orchestration_id),
        _ => query.agent_name.or(query.agent_id),
    };
    let archived = query.archived == Some(true);
    let query = ListQuery {
        namespace: query
            .namespace
            .unwrap_or_else(|| plane.default_namespace().to_owned()),
        label_selector: query.label_selector.unwrap_or_default(),
        phase: query.phase.unwrap_or_default(),
        runtime: query.runtime.unwrap_or_default(),
        subject: subject.unwrap_or_default(),
        search: query.search.unwrap_or_default(),
        limit: query.limit.unwrap_or_default(),
        cursor: query.cursor.unwrap_or_default(),
    };
    if archived {
        let page = plane.remembered_runs(&caller, kind, &query).await?;
        let records: Vec<Value> = page.items.iter().map(remembered).collect();
        return Ok(Answer::ok(json!({field: records, "nextCursor": page.next})));
    }
    let page = plane.list(&caller, kind, &query).await?;
    let records: Vec<Value> = page.objects.iter().map(|run| record(kind, &run.json)).collect();
    Ok(Answer::ok(json!({field: records, "nextCursor": page.next})))
}

pub(super) async fn get_agent_run(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Address(id): Address<String>,
    Params(which): Params<WhichRun>,
) -> Result<Answer, Refusal> {
    let run = plane
        .run(&caller, &id, which.namespace.as_deref(), Some(Kind::AgentRun))
        .await?;
    told(&plane, "agentRun", &run).await
}

pub(super) async fn get_orchestration_run(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Address(id): Address<String>,
    Params(which): Params<WhichRun>,
) -> Result<Answer, Refusal> {
    let kind = Some(Kind::OrchestrationRun);
    let run = plane.run(&caller, &id, which.namespace.as_deref(), kind).await?;
    told(&plane, "orchestrationRun", &run).await
}

async fn told(plane: &ControlPlane, field: &str, run: &Run) -> Result<Answer, Refusal> {
    let history = plane.history_of(run).await?;
    Ok(Answer::ok(json!({
        field: record(run.kind(), run.document()),
        "resource": run.document(),
        "archived": matches!(run, Run::Archived { .. }),
        "history": history,
    })))
}

pub(super) async fn get_run(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Address(id): Address<String>,
    Params(which): Params<WhichRun>,
) -> Result<Answer, Refusal> {
    let run = find(&plane, &caller, &id, which).await?;
    let kind = match run.kind() {
        Kind::OrchestrationRun => "orchestration",
        Kind::ToolRun => "tool",
        _ => "agent",
    };
    let history = plane.history_of(&run).await?;
    Ok(Answer::ok(json!({
        "kind": kind,
        "run": record(run.kind(), run.document()),
        "resource": run.document(),
        "archived": matches!(run, Run::Archived { .. }),
        "history": history,
    })))
}

pub(super) async fn explain_run(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Address(id): Address<String>,
    Params(which): Params<WhichRun>,
) -> Result<Answer, Refusal> {
    let run = find(&plane, &caller, &id, which).await?;
    let explanation = plane.explain(&caller, &run).await?;
    Ok(Answer::ok(json!({"explanation": explanation})))
}

pub(super) async fn cancel_run(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Address(id): Address<String>,
    Params(which): Params<WhichRun>,
    OptionalDocument(body): OptionalDocument<CancelBody>,
) -> Result<Answer, Refusal> {
    let run = find(&plane, &caller, &id, which).await?;
    let cancelled = plane.cancel(&caller, run.live()?, body.reason.as_deref()).await?;
    Ok(Answer::ok(
        json!({"message": cancelled.message, "resource": cancelled.resource}),
    ))
}

pub(super) async fn retry_run(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Key(key): Key,
    Address(id): Address<String>,
    Params(which): Params<WhichRun>,
) -> Result<Answer, Refusal> {
    let run = find(&plane, &caller, &id, which).await?;
    let submitted = plane.retry(&caller, run.live()?, &key).await?;
    Ok(made("run", &submitted))
}

pub(super) async fn run_logs(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Address(id): Address<String>,
    Params(which): Params<WhichLog>,
) -> Result<Response, Refusal> {
    let WhichLog {
        namespace,
        kind,
        pod,
        container,
        step,
        attempt,
        tail_lines,
        follow,
    } = which;
    let run = find(&plane, &caller, &id, WhichRun { namespace, kind }).await?;
    let query = LogQuery {
        pod,
        container,
        step,
        attempt,
        tail_lines: tail_lines.unwrap_or_default(),
        ..LogQuery::default()
    };
    if follow == Some(true) {
        let said = plane
            .follow_log(&caller, &run, &query, true, Protocol::Http)
            .await?;
        return Ok(sse::lines(said));
    }
    let log = plane.log(&caller, &run, &query).await?;
    Ok(Answer::ok(json!({"log": log})).into_response())
}

pub(super) async fn run_events(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Address(id): Address<String>,
    Params(which): Params<WhichEvents>,
) -> Result<Answer, Refusal> {
    let WhichEvents {
        namespace,
        kind,
        limit,
    } = which;
    let run = find(&plane, &caller, &id, WhichRun { namespace, kind }).await?;
    let document = run.document();
    let namespace = text(document, "/metadata/namespace").unwrap_or_default();
    let name = text(document, "/metadata/name").unwrap_or_default();
    let uid = text(document, "/metadata/uid");
    let kind = &run.kind().info().kind;
    let events = plane
        .events(
            &caller,
            &namespace,
            kind,
            &name,
            uid.as_deref(),
            limit.unwrap_or_default(),
        )
        .await?;
    Ok(Answer::ok(json!({"events": events})))
}

async fn find(plane: &ControlPlane, caller: &Caller, id: &str, which: WhichRun) -> Result<Run, Refusal> {
    let kind = which.kind.as_deref().map(run_kind).transpose()?;
    plane.run(caller, id, which.namespace.as_deref(), kind).await
}

fn run_kind(word: &str) -> Result<Kind, Refusal> {
    let found = RUN_KINDS.into_iter().find(|kind| {
        let short = kind.info().kind.strip_suffix("Run").unwrap_or_default();
        kind.info().kind.eq_ignore_ascii_case(word) || short.eq_ignore_ascii_case(word)
    });
    found.ok_or_else(|| {
        Refusal::field("kind", word, "this is no kind of run")
            .remedy("give AgentRun, OrchestrationRun or ToolRun")
    })
}
