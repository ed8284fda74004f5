//! Runs of `/v1`: submitted, listed, found, explained, cancelled, run again, their logs and Events.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use jangar_api::Kind;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    answer::Answer,
    bodies::{
        AgentRunPage, CancelledRun, Explained, LogAnswer, MadeAgentRun, MadeOrchestrationRun, MadeRun,
        OneAgentRun, OneOrchestrationRun, OneRun, OrchestrationRunPage, RunEvents, RunParts, RunWord,
    },
    extract::{Address, Document, Key, OptionalDocument, Params, Who},
    sse,
};
use crate::{
    metrics::Protocol,
    plane::{
        Caller, ControlPlane,
        logs::LogQuery,
        objects::ListQuery,
        runs::{RUN_KINDS, Run, RunRecord, record, remembered},
        submit::{AgentRunSubmission, OrchestrationRunSubmission},
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
) -> Result<Answer<MadeAgentRun>, Refusal> {
    let submitted = plane.submit_agent_run(&caller, &key, submission).await?;
    let before = submitted.idempotent;
    let made = MadeAgentRun {
        agent_run: submitted.record,
        resource: submitted.resource.into(),
        idempotent: before,
    };
    Ok(Answer::made(made, before))
}

pub(super) async fn post_orchestration_run(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Key(key): Key,
    Document(submission): Document<OrchestrationRunSubmission>,
) -> Result<Answer<MadeOrchestrationRun>, Refusal> {
    let submitted = plane.submit_orchestration_run(&caller, &key, submission).await?;
    let before = submitted.idempotent;
    let made = MadeOrchestrationRun {
        orchestration_run: submitted.record,
        resource: submitted.resource.into(),
        idempotent: before,
    };
    Ok(Answer::made(made, before))
}

pub(super) async fn list_agent_runs(
    plane: State<Arc<ControlPlane>>,
    who: Who,
    query: Params<RunList>,
) -> Result<Answer<AgentRunPage>, Refusal> {
    let (agent_runs, next_cursor) = list(Kind::AgentRun, plane, who, query).await?;
    Ok(Answer::ok(AgentRunPage {
        agent_runs,
        next_cursor,
    }))
}

pub(super) async fn list_orchestration_runs(
    plane: State<Arc<ControlPlane>>,
    who: Who,
    query: Params<RunList>,
) -> Result<Answer<OrchestrationRunPage>, Refusal> {
    let (orchestration_runs, next_cursor) = list(Kind::OrchestrationRun, plane, who, query).await?;
    Ok(Answer::ok(OrchestrationRunPage {
        orchestration_runs,
        next_cursor,
    }))
}

/// A page of runs in short, and where the next one begins.
async fn list(
    kind: Kind,
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Params(query): Params<RunList>,
) -> Result<(Vec<RunRecord>, Option<String>), Refusal> {
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
        return Ok((page.items.iter().map(remembered).collect(), page.next));
    }
    let page = plane.list(&caller, kind, &query).await?;
    let records = page.objects.iter().map(|run| record(kind, &run.json));
    Ok((records.collect(), page.next))
}

pub(super) async fn get_agent_run(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Address(id): Address<String>,
    Params(which): Params<WhichRun>,
) -> Result<Answer<OneAgentRun>, Refusal> {
    let run = plane
        .run(&caller, &id, which.namespace.as_deref(), Some(Kind::AgentRun))
        .await?;
    Ok(Answer::ok(OneAgentRun {
        agent_run: record(run.kind(), run.document()),
        parts: parts(&plane, run).await?,
    }))
}

pub(super) async fn get_orchestration_run(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Address(id): Address<String>,
    Params(which): Params<WhichRun>,
) -> Result<Answer<OneOrchestrationRun>, Refusal> {
    let kind = Some(Kind::OrchestrationRun);
    let run = plane.run(&caller, &id, which.namespace.as_deref(), kind).await?;
    Ok(Answer::ok(OneOrchestrationRun {
        orchestration_run: record(run.kind(), run.document()),
        parts: parts(&plane, run).await?,
    }))
}

async fn parts(plane: &ControlPlane, run: Run) -> Result<RunParts, Refusal> {
    let history = plane.history_of(&run).await?;
    let (resource, archived) = match run {
        Run::Live(object) => (object.into(), false),
        Run::Archived { document, .. } => (document.into(), true),
    };
    Ok(RunParts {
        resource,
        archived,
        history,
    })
}

pub(super) async fn get_run(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Address(id): Address<String>,
    Params(which): Params<WhichRun>,
) -> Result<Answer<OneRun>, Refusal> {
    let run = find(&plane, &caller, &id, which).await?;
    Ok(Answer::ok(OneRun {
        kind: match run.kind() {
            Kind::OrchestrationRun => RunWord::Orchestration,
            Kind::ToolRun => RunWord::Tool,
            _ => RunWord::Agent,
        },
        run: record(run.kind(), run.document()),
        parts: parts(&plane, run).await?,
    }))
}

pub(super) async fn explain_run(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Address(id): Address<String>,
    Params(which): Params<WhichRun>,
) -> Result<Answer<Explained>, Refusal> {
    let run = find(&plane, &caller, &id, which).await?;
    let explanation = plane.explain(&caller, &run).await?.into();
    Ok(Answer::ok(Explained { explanation }))
}

pub(super) async fn cancel_run(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Address(id): Address<String>,
    Params(which): Params<WhichRun>,
    OptionalDocument(body): OptionalDocument<CancelBody>,
) -> Result<Answer<CancelledRun>, Refusal> {
    let run = find(&plane, &caller, &id, which).await?;
    let cancelled = plane.cancel(&caller, run.live()?, body.reason.as_deref()).await?;
    Ok(Answer::ok(CancelledRun {
        message: cancelled.message,
        resource: cancelled.resource.into(),
    }))
}

pub(super) async fn retry_run(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Key(key): Key,
    Address(id): Address<String>,
    Params(which): Params<WhichRun>,
) -> Result<Answer<MadeRun>, Refusal> {
    let run = find(&plane, &caller, &id, which).await?;
    let submitted = plane.retry(&caller, run.live()?, &key).await?;
    let before = submitted.idempotent;
    let made = MadeRun {
        run: submitted.record,
        resource: submitted.resource.into(),
        idempotent: before,
    };
    Ok(Answer::made(made, before))
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
    Ok(Answer::ok(LogAnswer { log }).into_response())
}

pub(super) async fn run_events(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Address(id): Address<String>,
    Params(which): Params<WhichEvents>,
) -> Result<Answer<RunEvents>, Refusal> {
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
    Ok(Answer::ok(RunEvents { events }))
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
