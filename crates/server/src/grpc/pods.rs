//! The pods of runs, and what those of tools write.

use std::sync::Arc;

use jangar_api::Kind;
use jangar_proto::v1::{
    ListRunPodsRequest, ListRunPodsResponse, StreamAgentRunLogsRequest, StreamAgentRunLogsResponse,
};
use serde_json::Value;
use tonic::{Request, Response, codegen::BoxStream as AnswerStream};

use super::{caller, streams};
use crate::{
    plane::{ControlPlane, create::kind_named},
    refusal::Refusal,
};

pub(super) async fn list_run_pods(
    plane: &Arc<ControlPlane>,
    request: Request<ListRunPodsRequest>,
) -> Result<Response<ListRunPodsResponse>, Refusal> {
    let caller = caller(&request)?;
    let request = request.into_inner();
    let kind = kind_named(&request.kind)?;
    let namespace = plane.namespace(Some(&request.namespace))?;
    let run = plane
        .run(&caller, &request.name, Some(&namespace), Some(kind))
        .await?;
    let step = Some(request.step.as_str()).filter(|step| !step.is_empty());
    let pods = plane.pods(&caller, &run, step).await?;
    Ok(Response::new(ListRunPodsResponse {
        json: Value::Array(pods).to_string(),
    }))
}

pub(super) async fn stream_tool_run_logs(
    plane: &Arc<ControlPlane>,
    request: Request<StreamAgentRunLogsRequest>,
) -> Result<Response<AnswerStream<StreamAgentRunLogsResponse>>, Refusal> {
    streams::logs(plane, Kind::ToolRun, request).await
}
