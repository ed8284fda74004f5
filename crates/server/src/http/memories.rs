//! Memories of `/v1`. What is in their Secrets is never read here, and so never told.

use std::sync::Arc;

use axum::extract::State;
use jangar_api::{
    Kind,
    agents::memory::{Memory, MemorySpec},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    answer::Answer,
    bodies::{MemoryRecord, OneMemory},
    extract::{Address, Document, Key, Params, Who},
    objects::{InNamespace, json_of},
};
use crate::{
    plane::ControlPlane,
    refusal::{Refusal, Trouble},
    world::{Object, text},
};

/// A new Memory, or a new version of one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NewMemory {
    name: String,
    namespace: Option<String>,
    spec: MemorySpec,
}

pub(super) async fn post(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Key(_): Key,
    Document(new): Document<NewMemory>,
) -> Result<Answer<OneMemory>, Refusal> {
    let namespace = plane.namespace(new.namespace.as_deref())?;
    if new.spec.connection.secret_ref.name.trim().is_empty() {
        return Err(Refusal::missing("spec.connection.secretRef.name")
            .remedy("name the Secret that holds the connection"));
    }
    let manifest = json_of(&Memory::new(&new.name, new.spec))?;
    let object = plane.apply(&caller, Kind::Memory, &namespace, manifest).await?;
    Ok(Answer::made(told(object.into()), false))
}

pub(super) async fn get(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Address(name): Address<String>,
    Params(at): Params<InNamespace>,
) -> Result<Answer<OneMemory>, Refusal> {
    let namespace = plane.namespace(at.namespace.as_deref())?;
    let object = plane.get(&caller, Kind::Memory, &namespace, &name).await?;
    Ok(Answer::ok(told(object)))
}

/// The object, and the same in short with the names that earlier versions had in their database.
fn told(object: Arc<Object>) -> OneMemory {
    let created = text(&object.json, "/metadata/creationTimestamp");
    OneMemory {
        memory: MemoryRecord {
            id: object.uid.clone(),
            memory_name: object.name.clone(),
            namespace: object.namespace.clone(),
            provider: text(&object.json, "/spec/type"),
            status: object.phase.clone(),
            updated_at: text(&object.json, "/status/updatedAt").or_else(|| created.clone()),
            created_at: created,
        },
        resource: object.into(),
    }
}

/// Earlier versions searched the store of a Memory, over a connection whose other end nobody checked and with vectors that were
/// made up where there was no model. Agents reach their Memory themselves; here is nothing that could do it as well.
pub(super) async fn query(Who(_): Who) -> Refusal {
    Refusal::new(
        Trouble::NotBuilt,
        "memories are not searched by the control plane in this version",
    )
    .remedy("ask the store itself, with the connection in the Secret that GET /v1/memories/NAME names")
}
