//! The calls that go on: logs, and the status of a run until it has ended.

use std::sync::Arc;

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use jangar_api::Kind;
use jangar_proto::v1::{
    StreamAgentRunLogsRequest, StreamAgentRunLogsResponse, StreamStatusRequest, StreamStatusResponse,
};
use tonic::{Request, Response, Status, codegen::BoxStream as AnswerStream};

use super::caller;
use crate::{
    metrics::Protocol,
    plane::{
        ControlPlane,
        logs::{Line, LogQuery, Said},
        stream::{Subscription, Told},
    },
    refusal::Refusal,
    world::{Action, Filter},
};

pub(super) use super::{objects::watch_objects, pods::stream_tool_run_logs};

pub(super) async fn stream_agent_run_logs(
    plane: &Arc<ControlPlane>,
    request: Request<StreamAgentRunLogsRequest>,
) -> Result<Response<AnswerStream<StreamAgentRunLogsResponse>>, Refusal> {
    logs(plane, Kind::AgentRun, request).await
}

/// What one pod of a run writes.
pub(super) async fn logs(
    plane: &Arc<ControlPlane>,
    kind: Kind,
    request: Request<StreamAgentRunLogsRequest>,
) -> Result<Response<AnswerStream<StreamAgentRunLogsResponse>>, Refusal> {
    let caller = caller(&request)?;
    let request = request.into_inner();
    let namespace = plane.namespace(Some(&request.namespace))?;
    let run = plane
        .run(&caller, &request.name, Some(&namespace), Some(kind))
        .await?;
    let query = log_query(&request)?;
    let said = plane
        .follow_log(&caller, &run, &query, request.follow, Protocol::Grpc)
        .await?;
    let lines = said.filter_map(async |said| match said {
        Ok(Said::Line(line)) => Some(Ok(of_line(line))),
        // HTTP/2 has its own.
        Ok(Said::Heartbeat) => None,
        Err(refusal) => Some(Err(Status::from(refusal))),
    });
    Ok(Response::new(lines.boxed()))
}

fn of_line(line: Line) -> StreamAgentRunLogsResponse {
    let Line {
        origin,
        text,
        cut,
        partial,
    } = line;
    StreamAgentRunLogsResponse {
        stream: "stdout".to_owned(),
        message: text,
        pod: origin.pod.clone(),
        container: origin.container.clone(),
        archived: origin.archived,
        cut,
        step: origin.step.clone(),
        attempt: origin.attempt,
        partial,
    }
}

fn log_query(request: &StreamAgentRunLogsRequest) -> Result<LogQuery, Refusal> {
    let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let since_time = match request.since_time.as_str() {
        "" => None,
        text => Some(text.parse().map_err(|_| {
            Refusal::field("since_time", text, "this is no time").remedy("write it like 2026-03-01T12:00:00Z")
        })?),
    };
    Ok(LogQuery {
        pod: given(&request.pod),
        container: given(&request.container),
        step: given(&request.step),
        attempt: Some(request.attempt).filter(|attempt| *attempt > 0),
        archived: request.archived,
        tail_lines: request.tail_lines,
        timestamps: request.timestamps,
        since_seconds: Some(request.since_seconds).filter(|seconds| *seconds > 0),
        since_time,
    })
}

pub(super) async fn stream_agent_run_status(
    plane: &Arc<ControlPlane>,
    request: Request<StreamStatusRequest>,
) -> Result<Response<AnswerStream<StreamStatusResponse>>, Refusal> {
    status(plane, Kind::AgentRun, request).await
}

pub(super) async fn stream_orchestration_run_status(
    plane: &Arc<ControlPlane>,
    request: Request<StreamStatusRequest>,
) -> Result<Response<AnswerStream<StreamStatusResponse>>, Refusal> {
    status(plane, Kind::OrchestrationRun, request).await
}

async fn status(
    plane: &Arc<ControlPlane>,
    kind: Kind,
    request: Request<StreamStatusRequest>,
) -> Result<Response<AnswerStream<StreamStatusResponse>>, Refusal> {
    let caller = caller(&request)?;
    let request = request.into_inner();
    let namespace = plane.namespace(Some(&request.namespace))?;
    let subscription = Subscription {
        kinds: vec![kind],
        filter: Filter {
            namespace: Some(namespace.clone()),
            ..Filter::default()
        },
        name: Some(request.name.clone()),
        last_id: None,
        snapshot: true,
    };
    // First the stream, then the object: so that no change falls between them.
    let changes = plane
        .changes(caller.clone(), subscription, Protocol::Grpc)
        .await?;
    let now = plane.get(&caller, kind, &namespace, &request.name).await?;
    let known = stream::iter([Ok(Told::Object {
        id: None,
        action: Action::Modified,
        object: now,
    })]);
    let following = Watched {
        told: known.chain(changes).boxed(),
        version: String::new(),
        over: false,
    };
    Ok(Response::new(stream::unfold(following, next).boxed()))
}

/// A run that is followed until it has ended.
struct Watched {
    told: BoxStream<'static, Result<Told, Refusal>>,
    /// The version that was told last.
    version: String,
    over: bool,
}

async fn next(mut following: Watched) -> Option<(Result<StreamStatusResponse, Status>, Watched)> {
    while !following.over {
        match following.told.next().await? {
            Ok(Told::Object { action, object, .. }) => {
                let phase = object.phase.clone().unwrap_or_else(|| "Pending".to_owned());
                following.over = action == Action::Deleted
                    || matches!(phase.as_str(), "Succeeded" | "Failed" | "Cancelled");
                if object.version == following.version && !following.over {
                    continue;
                }
                following.version.clone_from(&object.version);
                let json = object.json.to_string();
                return Some((Ok(StreamStatusResponse { json, phase }), following));
            }
            Ok(Told::Reset { .. } | Told::Synced { .. } | Told::Heartbeat { .. }) => {}
            Err(refusal) => {
                following.over = true;
                return Some((Err(Status::from(refusal)), following));
            }
        }
    }
    None
}
