//! The four methods that every kind has.

use std::sync::Arc;

use jangar_api::Kind;
use jangar_proto::v1::{
    ApplyRequest, ApplyResponse, DeleteRequest, DeleteResponse, GetRequest, GetResponse, ListRequest,
    ListResponse,
};
use jangar_store::altered;
use serde_json::Value;
use tonic::{Request, Response};

use super::caller;
use crate::{
    plane::{
        Caller, ControlPlane,
        objects::{Applying, ListQuery, Outcome, list_document},
        runs::{Run, remembered_object},
    },
    refusal::{Refusal, Trouble},
};

/// As agentctl calls itself when it speaks to Kubernetes: whoever applies a file both ways has no conflict with themselves.
const AGENTCTL: &str = "agentctl";

pub(super) async fn list(
    plane: &Arc<ControlPlane>,
    kind: Kind,
    request: Request<ListRequest>,
) -> Result<Response<ListResponse>, Refusal> {
    let caller = caller(&request)?;
    let request = request.into_inner();
    let namespace = if request.namespace.is_empty() {
        plane.default_namespace().to_owned()
    } else {
        request.namespace
    };
    let query = ListQuery {
        namespace,
        label_selector: request.label_selector,
        phase: request.phase,
        runtime: request.runtime,
        subject: request.subject,
        search: request.search,
        limit: request.limit,
        cursor: request.cursor,
    };
    if request.archived {
        return remembered(plane, &caller, kind, &query).await;
    }
    let page = plane.list(&caller, kind, &query).await?;
    Ok(Response::new(ListResponse {
        json: page.document(kind).to_string(),
        next_cursor: page.next.unwrap_or_default(),
    }))
}

/// A page of what history has.
async fn remembered(
    plane: &ControlPlane,
    caller: &Caller,
    kind: Kind,
    query: &ListQuery,
) -> Result<Response<ListResponse>, Refusal> {
    if !kind.is_run() {
        return Err(Refusal::field("archived", true, "history has none of this kind")
            .remedy("leave it out: only runs are remembered"));
    }
    let page = plane.remembered_runs(caller, kind, query).await?;
    let items: Vec<Value> = page
        .items
        .iter()
        .map(|run| remembered_object(kind, run))
        .collect();
    let next_cursor = page.next.unwrap_or_default();
    Ok(Response::new(ListResponse {
        json: list_document(kind, &items, &next_cursor).to_string(),
        next_cursor,
    }))
}

fn found(run: &Run) -> GetResponse {
    let (archived, cut) = match run {
        Run::Live(_) => (false, false),
        Run::Archived { cut, .. } => (true, *cut),
    };
    GetResponse {
        json: run.document().to_string(),
        archived,
        cut,
        altered: if archived {
            altered(run.document())
        } else {
            Vec::new()
        },
    }
}

pub(super) async fn get(
    plane: &Arc<ControlPlane>,
    kind: Kind,
    request: Request<GetRequest>,
) -> Result<Response<GetResponse>, Refusal> {
    let caller = caller(&request)?;
    let request = request.into_inner();
    let namespace = plane.namespace(Some(&request.namespace))?;
    match plane.get(&caller, kind, &namespace, &request.name).await {
        Ok(object) => Ok(Response::new(GetResponse {
            json: object.json.to_string(),
            ..GetResponse::default()
        })),
        Err(gone) if gone.trouble == Trouble::NotFound && request.archived_too && kind.is_run() => {
            match plane
                .run(&caller, &request.name, Some(&namespace), Some(kind))
                .await
            {
                Ok(run) => Ok(Response::new(found(&run))),
                // Nobody remembers it.
                Err(refusal) if refusal.trouble == Trouble::NotFound => Err(gone),
                Err(refusal) => Err(refusal),
            }
        }
        Err(refusal) => Err(refusal),
    }
}

pub(super) async fn apply(
    plane: &Arc<ControlPlane>,
    kind: Kind,
    request: Request<ApplyRequest>,
) -> Result<Response<ApplyResponse>, Refusal> {
    let caller = caller(&request)?;
    let request = request.into_inner();
    let namespace = plane.namespace(Some(&request.namespace))?;
    let how = Applying {
        dry_run: request.dry_run,
        refuse_conflicts: request.refuse_conflicts,
        compare: true,
        manager: Some(AGENTCTL),
    };
    let manifest = document(&request.manifest_yaml)?;
    let applied = plane.apply_as(&caller, kind, &namespace, manifest, how).await?;
    Ok(Response::new(ApplyResponse {
        json: applied.object.json.to_string(),
        outcome: applied.outcome.map(Outcome::word).unwrap_or_default().to_owned(),
    }))
}

/// The one document of a request.
pub(super) fn document(manifest_yaml: &str) -> Result<Value, Refusal> {
    serde_saphyr::from_str(manifest_yaml).map_err(|error| {
        Refusal::new(
            Trouble::BadRequest,
            format!("manifest_yaml cannot be read: {error}"),
        )
        .named("manifest_yaml")
        .remedy("send one document in YAML or JSON")
    })
}

pub(super) async fn delete(
    plane: &Arc<ControlPlane>,
    kind: Kind,
    request: Request<DeleteRequest>,
) -> Result<Response<DeleteResponse>, Refusal> {
    let caller = caller(&request)?;
    let request = request.into_inner();
    let namespace = plane.namespace(Some(&request.namespace))?;
    let object = plane.delete(&caller, kind, &namespace, &request.name).await?;
    Ok(Response::new(DeleteResponse {
        ok: true,
        message: match &object {
            Some(_) => "it is being deleted".to_owned(),
            None => "it is deleted".to_owned(),
        },
        json: object.map(|object| object.json.to_string()).unwrap_or_default(),
    }))
}
