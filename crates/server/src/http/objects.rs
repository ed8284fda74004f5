//! Agents and Orchestrations of `/v1`, and objects of any kind.

use std::sync::Arc;

use axum::extract::State;
use jangar_api::{
    Kind,
    agents::agent::AgentSpec,
    orchestration::{Orchestration, OrchestrationSpec},
    security::SecretBinding,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    answer::Answer,
    bodies::OneObject,
    extract::{Address, Document, Key, Params, Who},
};
use crate::{
    access::Question,
    plane::{Caller, ControlPlane, policy, submit::PolicyRefs},
    refusal::{Refusal, Trouble},
    world::Object,
};

/// Where an object is.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct InNamespace {
    /// Absent: the namespace of Jangar itself.
    pub(super) namespace: Option<String>,
}

/// A new Agent, or a new version of one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NewAgent {
    name: String,
    namespace: Option<String>,
    spec: AgentSpec,
    policy: Option<PolicyRefs>,
}

/// A new Orchestration, or a new version of one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NewOrchestration {
    name: String,
    namespace: Option<String>,
    spec: OrchestrationSpec,
    policy: Option<PolicyRefs>,
}

pub(super) async fn post_agent(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Key(_): Key,
    Document(new): Document<NewAgent>,
) -> Result<Answer<OneObject>, Refusal> {
    let namespace = plane.namespace(new.namespace.as_deref())?;
    let secrets = new
        .spec
        .security
        .as_ref()
        .map(|security| security.allowed_secrets.clone());
    let refs = new.policy.unwrap_or_default();
    let manifest = json!({
        "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "Agent",
        "metadata": {"name": new.name}, "spec": json_of(&new.spec)?,
    });
    let (policies, who, place) = (Arc::clone(&plane), caller.clone(), namespace.clone());
    let check = Box::pin(async move {
        let binding = match refs.secret_binding_ref.as_deref() {
            Some(name) => Some(binding(&policies, &who, &place, name).await?),
            None => None,
        };
        policy::check_secrets(&new.name, &secrets.unwrap_or_default(), binding.as_ref())?;
        check_budget(&policies, &who, &place, refs.budget_ref.as_deref()).await
    });
    let object = plane
        .apply_if(&caller, Kind::Agent, &namespace, manifest, check)
        .await?;
    Ok(made(object))
}

pub(super) async fn post_orchestration(
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Key(_): Key,
    Document(new): Document<NewOrchestration>,
) -> Result<Answer<OneObject>, Refusal> {
    let namespace = plane.namespace(new.namespace.as_deref())?;
    jangar_engine::orchestration::read_named(&new.name, &new.spec).map_err(|mistakes| {
        Refusal::new(Trouble::Invalid, mistakes.rejection().message)
            .named("spec.steps")
            .remedy("mend the steps that it names")
    })?;
    let budget = new.policy.and_then(|refs| refs.budget_ref);
    let manifest = json_of(&Orchestration::new(&new.name, new.spec.clone()))?;
    let (policies, who, place) = (Arc::clone(&plane), caller.clone(), namespace.clone());
    let check = Box::pin(async move {
        // Whoever may not write it learns nothing of the policies that are there.
        let question = Question::on("patch", Kind::Orchestration, &place, &new.name);
        policies.gatekeeper.require(&who.identity, &question).await?;
        policies.check_gates(&place, &new.spec).await?;
        check_budget(&policies, &who, &place, budget.as_deref()).await
    });
    let object = plane
        .apply_if(&caller, Kind::Orchestration, &namespace, manifest, check)
        .await?;
    Ok(made(object))
}

pub(super) async fn get_agent(
    plane: State<Arc<ControlPlane>>,
    who: Who,
    name: Address<String>,
    at: Params<InNamespace>,
) -> Result<Answer<OneObject>, Refusal> {
    get(Kind::Agent, plane, who, name, at).await
}

pub(super) async fn get_orchestration(
    plane: State<Arc<ControlPlane>>,
    who: Who,
    name: Address<String>,
    at: Params<InNamespace>,
) -> Result<Answer<OneObject>, Refusal> {
    get(Kind::Orchestration, plane, who, name, at).await
}

async fn get(
    kind: Kind,
    State(plane): State<Arc<ControlPlane>>,
    Who(caller): Who,
    Address(name): Address<String>,
    Params(at): Params<InNamespace>,
) -> Result<Answer<OneObject>, Refusal> {
    let namespace = plane.namespace(at.namespace.as_deref())?;
    let object = plane.get(&caller, kind, &namespace, &name).await?;
    Ok(Answer::ok(OneObject {
        resource: object.into(),
    }))
}

/// An object that was applied.
pub(super) fn made(object: Object) -> Answer<OneObject> {
    let resource = object.into();
    Answer::made(OneObject { resource }, false)
}

async fn binding(
    plane: &ControlPlane,
    caller: &Caller,
    namespace: &str,
    name: &str,
) -> Result<SecretBinding, Refusal> {
    let object = plane.get(caller, Kind::SecretBinding, namespace, name).await?;
    typed(&object.json)
}

async fn check_budget(
    plane: &ControlPlane,
    caller: &Caller,
    namespace: &str,
    name: Option<&str>,
) -> Result<(), Refusal> {
    let Some(name) = name else { return Ok(()) };
    let object = plane.get(caller, Kind::Budget, namespace, name).await?;
    policy::check_budget(&typed(&object.json)?)
}

fn typed<T: serde::de::DeserializeOwned>(json: &Value) -> Result<T, Refusal> {
    serde_json::from_value(json.clone()).map_err(|error| {
        Refusal::new(Trouble::Conflict, format!("the policy cannot be read: {error}")).remedy("mend it")
    })
}

pub(super) fn json_of(value: &impl serde::Serialize) -> Result<Value, Refusal> {
    serde_json::to_value(value).map_err(|error| {
        Refusal::new(
            Trouble::BadRequest,
            format!("the object cannot be written: {error}"),
        )
    })
}
