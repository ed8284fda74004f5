//! Submission: a run is created once for each key.
//!
//! The name of the run is made from namespace, agent and key, and the run is created, never updated. So the API server alone
//! decides who was first, however many replicas are asked at the same moment and wherever one of them dies.

mod draft;
mod once;
mod request;

use std::sync::Arc;

use jangar_api::{
    Kind,
    agents::{
        agent::Agent,
        agent_run::{AgentRun, AgentRunSpec},
    },
    budgets::Budget,
    labels,
    orchestration::{Orchestration, orchestration_run::OrchestrationRunSpec},
    refs::LocalRef,
    security::SecretBinding,
};
use jangar_engine::{
    queue::{Lane, no_room, repository_of},
    waiting::Full,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::draft::{Draft, agent_run_spec, created_by, orchestration_run_json, to_json};
pub use self::{
    draft::run_name,
    once::Submitted,
    request::{AgentRunSubmission, Described, OrchestrationRunSubmission, PolicyRefs, checked_key},
};
use super::{Caller, ControlPlane, objects::checked_name, policy};
use crate::{
    access::Question,
    refusal::{Refusal, Trouble},
    world::Object,
};

/// When a client that was told that the queue is full may try again.
const QUEUE_RETRY_SECONDS: u32 = 15;

impl ControlPlane {
    /// Creates an AgentRun, or finds the one that the key made before.
    pub async fn submit_agent_run(
        self: &Arc<Self>,
        caller: &Caller,
        key: &str,
        submission: AgentRunSubmission,
    ) -> Result<Submitted, Refusal> {
        let namespace = self.namespace(submission.namespace.as_deref())?;
        let agent_name = submission.agent_ref.name.trim().to_owned();
        checked_name("agentRef.name", &agent_name)?;
        let policy = submission.policy.clone().unwrap_or_default();
        let spec = agent_run_spec(submission, key)?;
        let draft = Draft {
            kind: Kind::AgentRun,
            action: "agent_run.created",
            namespace: namespace.clone(),
            subject: agent_name.clone(),
            key: key.to_owned(),
            spec: to_json(&spec)?,
            annotations: created_by(caller),
        };
        self.once(caller, draft, move |plane, draft| async move {
            plane.check_agent_run(&spec, &policy, &draft).await?;
            Ok(draft)
        })
        .await
    }

    /// What an AgentRun has to keep to.
    async fn check_agent_run(
        &self,
        spec: &AgentRunSpec,
        policy: &PolicyRefs,
        draft: &Draft,
    ) -> Result<(), Refusal> {
        let (namespace, agent_name) = (&draft.namespace, &draft.subject);
        let agent: Agent = self
            .referred(Kind::Agent, "agentRef.name", namespace, agent_name)
            .await?;
        let config = spec.runtime.config.as_ref().map(to_json).transpose()?;
        let account = config.as_ref().and_then(|config| config.get("serviceAccount"));
        policy::check_service_account(&agent, account.and_then(Value::as_str))?;
        self.check_budget(namespace, policy.budget_ref.as_deref()).await?;
        let binding: Option<SecretBinding> = match policy.secret_binding_ref.as_deref() {
            Some(name) => Some(
                self.referred(Kind::SecretBinding, "policy.secretBindingRef", namespace, name)
                    .await?,
            ),
            None => None,
        };
        policy::check_secrets(agent_name, &spec.secrets, binding.as_ref())?;
        self.check_room(namespace, draft)
    }

    /// Creates an OrchestrationRun, or finds the one that the key made before.
    pub async fn submit_orchestration_run(
        self: &Arc<Self>,
        caller: &Caller,
        key: &str,
        submission: OrchestrationRunSubmission,
    ) -> Result<Submitted, Refusal> {
        let namespace = self.namespace(submission.namespace.as_deref())?;
        let orchestration = submission.orchestration_ref.name.trim().to_owned();
        checked_name("orchestrationRef.name", &orchestration)?;
        let policy = submission.policy.clone().unwrap_or_default();
        let spec = OrchestrationRunSpec {
            orchestration_ref: LocalRef {
                name: orchestration.clone(),
            },
            parameters: submission.parameters,
            delivery_id: Some(key.to_owned()),
            ..OrchestrationRunSpec::default()
        };
        let draft = Draft {
            kind: Kind::OrchestrationRun,
            action: "orchestration_run.created",
            namespace: namespace.clone(),
            subject: orchestration.clone(),
            key: key.to_owned(),
            spec: orchestration_run_json(spec)?,
            annotations: created_by(caller),
        };
        self.once(caller, draft, move |plane, draft| async move {
            let (namespace, name) = (&draft.namespace, &draft.subject);
            let definition: Orchestration = plane
                .referred(Kind::Orchestration, "orchestrationRef.name", namespace, name)
                .await?;
            plane.check_gates(namespace, &definition.spec).await?;
            plane
                .check_budget(namespace, policy.budget_ref.as_deref())
                .await?;
            Ok(draft)
        })
        .await
    }

    /// Creates a run like one that has ended.
    pub async fn retry(
        self: &Arc<Self>,
        caller: &Caller,
        run: &Object,
        key: &str,
    ) -> Result<Submitted, Refusal> {
        let (kind, namespace) = (run.kind, run.namespace.clone());
        let phase = run.phase.clone().unwrap_or_else(|| "Pending".to_owned());
        if !matches!(phase.as_str(), "Succeeded" | "Failed" | "Cancelled") {
            return Err(Refusal::new(
                Trouble::Conflict,
                format!(
                    "{} {namespace}/{} is {phase}, and only a run that has ended is run again",
                    kind.info().kind,
                    run.name
                ),
            )
            .remedy("wait until it has ended, or cancel it"));
        }
        let mut spec = run.json.get("spec").cloned().unwrap_or_else(|| json!({}));
        let key_field = match kind {
            Kind::OrchestrationRun => "deliveryId",
            _ => "idempotencyKey",
        };
        if let Some(fields) = spec.as_object_mut() {
            for stop in ["cancel", "desiredState", "cancelReason"] {
                fields.remove(stop);
            }
            if kind != Kind::ToolRun {
                fields.insert(key_field.to_owned(), json!(key));
            }
        }
        let mut annotations = created_by(caller);
        annotations.insert(labels::RETRY_OF.to_owned(), run.name.clone());
        let draft = Draft {
            kind,
            action: match kind {
                Kind::OrchestrationRun => "orchestration_run.retried",
                Kind::ToolRun => "tool_run.retried",
                _ => "agent_run.retried",
            },
            namespace,
            subject: run.subject.clone().unwrap_or_else(|| run.name.clone()),
            key: key.to_owned(),
            spec,
            annotations,
        };
        self.once(caller, draft, |plane, draft| async move {
            if draft.kind == Kind::AgentRun {
                plane.check_room(&draft.namespace, &draft)?;
            }
            Ok(draft)
        })
        .await
    }

    /// That the caller may create runs, before they learn anything of what there is.
    async fn require_create(&self, caller: &Caller, kind: Kind, namespace: &str) -> Result<(), Refusal> {
        let question = Question::on("create", kind, namespace, "");
        self.gatekeeper.require(&caller.identity, &question).await?;
        if self.world.covers(namespace) {
            Ok(())
        } else {
            Err(self.not_covered(namespace))
        }
    }

    /// An object that a submission names.
    async fn referred<T: DeserializeOwned>(
        &self,
        kind: Kind,
        field: &str,
        namespace: &str,
        name: &str,
    ) -> Result<T, Refusal> {
        checked_name(field, name)?;
        let info = kind.info();
        let found = self.seen(kind, namespace, name).await?.ok_or_else(|| {
            Refusal::new(
                Trouble::NotFound,
                format!(
                    "{field}=`{name}`: there is no {} of this name in namespace {namespace}",
                    info.kind
                ),
            )
            .named(field)
            .remedy(format!("create the {} first, or name another one", info.kind))
        })?;
        serde_json::from_value(found.json.clone()).map_err(|error| {
            Refusal::new(
                Trouble::Conflict,
                format!(
                    "{field}=`{name}`: {} {namespace}/{name} cannot be read: {error}",
                    info.kind
                ),
            )
            .named(field)
            .remedy("mend it")
        })
    }

    async fn check_budget(&self, namespace: &str, name: Option<&str>) -> Result<(), Refusal> {
        let Some(name) = name else { return Ok(()) };
        let budget: Budget = self
            .referred(Kind::Budget, "policy.budgetRef", namespace, name)
            .await?;
        policy::check_budget(&budget)
    }

    /// Whether one more run may wait.
    fn check_room(&self, namespace: &str, draft: &Draft) -> Result<(), Refusal> {
        let manifest = draft.manifest();
        let repository = serde_json::from_value::<AgentRun>(manifest)
            .ok()
            .and_then(|run| repository_of(&run));
        let lane = Lane {
            namespace: namespace.to_owned(),
            agent: draft.subject.clone(),
            repository,
        };
        let waiting = self.world.waiting();
        match no_room(&waiting, &lane, &self.settings.limits) {
            None => Ok(()),
            Some(full) => Err(queue_is_full(&full)),
        }
    }
}

fn queue_is_full(full: &Full) -> Refusal {
    let Full { scope, in_use, limit } = full;
    Refusal::new(
        Trouble::TooMany,
        format!("the queue of {scope} is full: {in_use} runs wait, and the limit is {limit}"),
    )
    .remedy("submit again when some of them have started, or raise the limit of the queue")
    .details(json!({"scope": scope.word(), "waiting": in_use, "limit": limit}))
    .retry_after(QUEUE_RETRY_SECONDS)
}
